"""Times small capsules, and the list of many."""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import msgspec
import torch

from kernlib import dump


def plain_call(sequence: int, **parts: object) -> dump.Call:
    return dump.Call(
        sequence=sequence,
        api="PagedDecode.run",
        status="started",
        started_at=dump.utc_now(),
        package="bench",
        module="bench.ops",
        qualname="PagedDecode.run",
        kind="method",
        thread=dump.Thread(name="MainThread", ident=1),
        caller="bench.py:1 main",
        **parts,
    )


def record(session: dump.SessionWriter, sequence: int, values: dict) -> tuple[float, float]:
    begin = time.perf_counter()
    encoder = dump.Encoder()
    kwargs = {name: encoder.encode(value, name) for name, value in values.items()}
    storages = encoder.storages()
    writer = session.begin(sequence, "PagedDecode.run", dump.input_bytes(storages))
    call = plain_call(
        sequence,
        arguments=dump.Arguments(args=[], kwargs=kwargs),
        views=encoder.views,
        storages=storages,
    )
    writer.start(call, dump.input_blobs(encoder.memory, call))
    started = time.perf_counter()
    result = torch.empty(4, 8, 128)
    before_finish = time.perf_counter()
    node = encoder.encode(result, "result")
    call = msgspec.structs.replace(
        call,
        status="returned",
        finished_at=dump.utc_now(),
        result=node,
        views=encoder.views,
        storages=encoder.storages(),
    )
    left = dump.outcome(encoder.memory, call, writer.stored)
    call = msgspec.structs.replace(call, changed=left.changed)
    writer.finish(call, left.blobs)
    return started - begin, time.perf_counter() - before_finish


def report(name: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    low, high = ordered[len(ordered) // 10], ordered[len(ordered) * 9 // 10]
    middle = statistics.median(ordered)
    print(f"{name:28} median {middle * 1e6:7.1f} us   10-90 % {low * 1e6:.1f}-{high * 1e6:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=None, help="where to write; a temporary folder")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--keep", type=int, default=50, help="capsules kept while timing")
    parser.add_argument("--list", type=int, default=10_000, help="capsules to list")
    parser.add_argument("--pause", type=float, default=0.0, help="milliseconds between calls")
    options = parser.parse_args()
    process = dump.Process(host="bench", pid=1, argv=(), python="3", versions={})
    values = {
        "q": torch.randn(4, 8, 128),
        "kv_pool": torch.randn(64, 512),
        "workspace": torch.randn(32768),
        "kv_indices": torch.arange(4096, dtype=torch.int32),
        "scale": 0.125,
        "causal": True,
    }
    root = Path(tempfile.mkdtemp(dir=options.dir))
    try:
        session = dump.SessionWriter(root, process, dump.Budget(max_calls=options.keep))
        times = []
        for number in range(1, options.calls + 1):
            times.append(record(session, number, values))
            time.sleep(options.pause / 1e3)
        times = times[min(options.keep * 2, len(times) // 2) :]
        nbytes = sum(v.untyped_storage().nbytes() for v in values.values() if hasattr(v, "shape"))
        print(f"{nbytes / 1e6:.2f} MB in 4 tensors, cpu, under {root}, perf_counter")
        report("start, eviction included", [start for start, _ in times])
        report("finish", [finish for _, finish in times])
        small = {"x": torch.zeros(8), **{f"flag{at}": at for at in range(20)}}
        many = dump.SessionWriter(root, process)
        for number in range(options.list):
            record(many, number, small)
        for _ in range(3):
            begin = time.perf_counter()
            entries = dump.list_calls(many.path)
            print(f"list of {len(entries)} capsules: {time.perf_counter() - begin:.3f} s")
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()

"""What recording costs a decode loop, step by step, and a million calls into one ring.

The loop is one layer of a decode step at a quarter of Llama-3-8B's heads: norm, append to the
paged cache, attention, norm, activation. Every way of recording runs the same loop, interleaved
with the bare one; outputs are checked to be the same first. Host time by time.perf_counter_ns.
"""

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import kernlib
from kernlib import ring
from kernlib._registry import Api
from kernlib._runtime import build_recorder
from kernlib.config import Config, Level
from kernlib.logging import disable, enable, process, recorded

HEADS, KV_HEADS, HEAD_DIM, PAGE_SIZE = 8, 2, 128, 16
APIS_A_STEP = 6
MILLION = 1_000_000
PATIENCE_SECONDS = 60
WAYS = {
    "bare": None,
    "calls ring": ("calls", "ring"),
    "args ring": ("args", "ring"),
    "args json": ("args", "json"),
    "stats json": ("stats", "json"),
    "dump json": ("dump", "json"),
}


class Loop:
    """The state of a decode loop; a step gives the same output every time."""

    def __init__(self, sequences: int, tokens: int, device: str) -> None:
        torch.manual_seed(0)
        pages, place, bf16 = -(-tokens // PAGE_SIZE), torch.device(device), torch.bfloat16

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(shape, dtype=bf16, device=place)

        self.cache = random(sequences * pages, 2, KV_HEADS, PAGE_SIZE, HEAD_DIM)
        self.hidden = random(sequences, HEADS * HEAD_DIM)
        self.key = random(sequences, KV_HEADS, HEAD_DIM)
        self.weight = torch.ones(HEADS * HEAD_DIM, dtype=bf16, device=place)
        every = torch.arange(sequences + 1, dtype=torch.int32, device=place)
        self.indptr, self.batch = every * pages, every[:-1]
        self.indices = torch.randperm(sequences * pages, device=place).to(torch.int32)
        self.last = torch.full_like(self.batch, (tokens - 1) % PAGE_SIZE + 1)
        self.positions = torch.full_like(self.batch, tokens - 1)
        self.attention = kernlib.PagedDecode(HEADS, KV_HEADS, HEAD_DIM, PAGE_SIZE)

    def step(self) -> torch.Tensor:
        q = kernlib.rms_norm(self.hidden, self.weight).view(-1, HEADS, HEAD_DIM)
        pages = self.indices, self.indptr, self.last
        kernlib.append_paged_kv(self.key, self.key, self.cache, *pages, self.batch, self.positions)
        self.attention.plan(self.indptr, self.indices, self.last)
        found = self.attention.run(q, self.cache)
        out: torch.Tensor = found if isinstance(found, torch.Tensor) else found[0]
        out = kernlib.rms_norm(out.view(len(self.hidden), -1), self.weight)
        return kernlib.silu_and_mul(out)


def switch(way: str, folder: Path) -> None:
    """Record as a way says, and wait until the native recorder does its part."""
    setting = WAYS[way]
    if setting is None:
        disable()
        return
    level, form = setting
    place = folder / way.replace(" ", "-")
    enable(level, log_format=form, log_dest=place, dump_dir=folder / "dumps", dump_max_calls=64)
    recorder = process.recorder
    assert recorder is not None  # noqa: S101 - a level was set
    sink: Any = recorder._sinks[0]  # noqa: SLF001 - nobody else asks
    begin = time.monotonic()
    small, weight = torch.zeros(1, 8), torch.ones(8)
    while Level[level.upper()] <= Level.ARGS and sink.native is None:
        kernlib.rms_norm(small, weight)
        expect(time.monotonic() - begin < PATIENCE_SECONDS, "the native recorder is there")
        time.sleep(0.01)


def timed(work: Callable[[], object], count: int) -> float:
    """Return the microseconds that a call of ``work`` takes, averaged over ``count``."""
    begin = time.perf_counter_ns()
    for _ in range(count):
        work()
    return (time.perf_counter_ns() - begin) / count / 1e3


def expect(holds: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not holds:
        sys.exit(f"bench_decode_loop: this does not hold: {what}")


def decode_loop(options: argparse.Namespace, folder: Path) -> None:
    loop = Loop(options.sequences, options.tokens, options.device)
    right = loop.step()
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way, measured in times.items():  # interleaved, so that drift meets every way alike
            switch(way, folder)
            expect(torch.equal(loop.step(), right), f"{way} changes no output")
            measured.append(timed(loop.step, 20 if way.startswith(("stats", "dump")) else 100))
    disable()
    bare = statistics.median(times["bare"])
    print(
        f"one layer's decode step: {options.sequences} sequences of {options.tokens} tokens, "
        f"bfloat16, {APIS_A_STEP} recorded calls"
    )
    print(f"{'way':<14}{'median us':>12}{'min':>11}{'max':>11}{'x bare':>9}")
    for way, values in times.items():
        middle = statistics.median(values)
        print(
            f"{way:<14}{middle:>12.1f}{min(values):>11.1f}{max(values):>11.1f}{middle / bare:>9.3f}"
        )


def million_calls(folder: Path) -> None:
    """Record a million calls in one ring, and read what it keeps of them."""
    place = folder / "million.ring"
    recorder = build_recorder(Config(log_level=Level.ARGS, log_format="ring", log_dest=str(place)))
    public = recorded(passed_on, Api("passed_on", passed_on), recorder)
    x = torch.zeros(4, 8)
    begin = time.perf_counter()
    for number in range(MILLION):
        public(x, number)
    seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    found = ring.read_ring(place)
    reading = time.perf_counter() - begin
    numbers = [record.values["number"] for record in found.records if "number" in record.values]
    expect(numbers == list(range(MILLION - len(numbers), MILLION)), "the newest calls are kept")
    expect((found.damaged, found.torn) == (0, False), "every record is whole")
    expect(found.overwritten + len(found.records) == 2 * MILLION, "each record is counted")
    print(
        f"a million calls, a tensor and a number each: {seconds:.2f} s, {seconds:.2f} us a call "
        f"with the loop; {len(found.records)} records kept, read in {reading:.2f} s"
    )


def passed_on(x: torch.Tensor, number: int) -> torch.Tensor:  # noqa: ARG001 - recorded, not used
    return x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=512)
    options = parser.parse_args()
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"torch {torch.__version__}, {options.device}; {options.rounds} interleaved rounds"
    )
    with tempfile.TemporaryDirectory(prefix="kernlib-bench-") as scratch:
        decode_loop(options, Path(scratch))
        million_calls(Path(scratch))


if __name__ == "__main__":
    main()

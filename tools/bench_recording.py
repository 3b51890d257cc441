"""What recording costs a call at every level, against the bare function, in one run.

Host time by time.perf_counter_ns, medians over interleaved rounds. What each level records is
checked before it is timed.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from kernlib._registry import Api
from kernlib._runtime import build_recorder
from kernlib.config import Config, Level
from kernlib.logging import recorded
from kernlib.logging._decorator import connect
from kernlib.logging._switch import Switch, clone

Call = Callable[..., torch.Tensor]
LEVELS = (Level.OFF, Level.CALLS, Level.ARGS, Level.STATS, Level.DUMP)


def attend(
    q: torch.Tensor,
    k: torch.Tensor,  # noqa: ARG001 - an api that does nothing
    v: torch.Tensor,  # noqa: ARG001
    mask: torch.Tensor,  # noqa: ARG001
    *,
    scale: float = 1.0,  # noqa: ARG001
) -> torch.Tensor:
    return q


def make(level: Level, folder: Path, **changes: tuple[str, ...]) -> tuple[Call, Path]:
    """Return the api recorded at a level, and where its lines go."""
    lines = folder / f"{level.name.lower()}{'-filtered' if changes else ''}.log"
    config = Config(
        log_level=level, log_dest=str(lines), log_format="json", dump_dir=folder / "dumps",
        dump_max_calls=64, **changes,
    )  # fmt: skip
    return recorded(attend, Api("attend", attend), build_recorder(config)), lines


def switched_off_again(folder: Path) -> Call:
    """Return the api after its code was exchanged, called, and put back."""
    again = clone(attend)
    api, code = Api("attend", again), again.__code__
    config = Config(log_level=Level.CALLS, log_dest=str(folder / "again.log"))
    switch = Switch(again)
    expect(connect(switch, api, build_recorder(config)), "an api is switched on")
    again(*[torch.ones(1)] * 4)
    expect("attend" in (folder / "again.log").read_text(), "a switched api is recorded")
    connect(switch, api, None)
    expect(again.__code__ is code, "an api that is switched off runs its own code")
    return again


def check(level: Level, call: Call, tensors: list[torch.Tensor], lines: Path) -> None:
    """Make sure that the level records what it says before it is timed."""
    call(*tensors)
    if level is Level.OFF:
        expect(call is attend, "off returns the function itself")
        return
    first = json.loads(lines.read_text().splitlines()[0])
    expect(first["api"] == "attend", "the line names the api")
    expect((level >= Level.ARGS) == ("args" in first), "arguments from level args on")
    if level >= Level.ARGS:
        expect(first["args"]["q"]["shape"] == list(tensors[0].shape), "the shape of q")
    expect((level >= Level.STATS) == ("stats" in str(first)), "statistics from level stats on")
    if level >= Level.DUMP:
        capsules = list(lines.parent.glob("dumps/*/*attend/inputs.safetensors"))
        expect(bool(capsules), "a capsule at level dump")


def one_round(call: Call, tensors: list[torch.Tensor], count: int) -> float:
    """Return the nanoseconds a call takes, averaged over ``count`` calls."""
    begin = time.perf_counter_ns()
    for _ in range(count):
        call(*tensors, scale=0.5)
    return (time.perf_counter_ns() - begin) / count


def expect(holds: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not holds:
        sys.exit(f"bench_recording: a level does not record what it says: {what}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    shapes = [(8, 32, 64), (8, 32, 64), (8, 32, 64), (8, 32, 32)]
    tensors = [torch.randn(shape, device=options.device).to(torch.float32) for shape in shapes]
    megabytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors) / 1e6
    with tempfile.TemporaryDirectory(prefix="kernlib-bench-") as scratch:
        folder = Path(scratch)
        calls: dict[str, Call] = {"bare": attend}
        for level in LEVELS:
            call, lines = make(level, folder)
            check(level, call, tensors, lines)
            calls[level.name.lower()] = call
        calls["filtered (at dump)"], _ = make(Level.DUMP, folder, exclude=("attend",))
        expect(calls["filtered (at dump)"] is attend, "a filtered api is the function itself")
        calls["off again"] = switched_off_again(folder)
        counts = {name: 20 if name in {"stats", "dump"} else 400 for name in calls}
        counts |= dict.fromkeys(("bare", "off", "filtered (at dump)", "off again"), 20_000)
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(options.rounds):  # interleaved, so that drift meets every level alike
            for name, call in calls.items():
                times[name].append(one_round(call, tensors, counts[name]))
    bare = statistics.median(times["bare"])
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"torch {torch.__version__}, {options.device}"
    )
    print(
        f"4 tensors float32, {megabytes:.2f} MB in all, shapes {shapes}; "
        f"perf_counter_ns, {options.rounds} interleaved rounds"
    )
    print(f"{'level':<20}{'median us':>11}{'min':>9}{'max':>9}{'added us':>11}{'x bare':>10}")
    for name, values in times.items():
        middle = statistics.median(values)
        print(
            f"{name:<20}{middle / 1e3:>11.3f}{min(values) / 1e3:>9.2f}{max(values) / 1e3:>9.2f}"
            f"{(middle - bare) / 1e3:>11.3f}{middle / bare:>10.1f}"
        )
    print(
        f"off is the function itself: {calls['off'] is attend}; "
        f"filtered is the function itself: {calls['filtered (at dump)'] is attend}"
    )


if __name__ == "__main__":
    main()

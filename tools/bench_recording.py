"""What recording costs a call at every level, against the bare function, in one run.

Host time by time.perf_counter_ns, medians over interleaved rounds. What each level records is
checked before it is timed.
"""

import argparse
import itertools
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from kernlib import ring
from kernlib._registry import Api
from kernlib._runtime import build_recorder
from kernlib.config import Config, Level
from kernlib.logging import LogSink, Recorder, RingSink, recorded
from kernlib.logging._decorator import connect
from kernlib.logging._switch import Switch

Call = Callable[..., object]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
PATIENCE_SECONDS = 60
SIZES = {"small": (8, 32, 64), "large": (64, 1024, 64)}
#: Calls of this many bytes and more are timed a quarter as often where their data is read.
MANY_BYTES = 8 << 20


def attend(*tensors: torch.Tensor, scale: float = 1.0) -> torch.Tensor:  # noqa: ARG001 - does nothing
    return tensors[0]


API = Api("attend", attend)


@dataclass(frozen=True)
class Way:
    """One way of recording: the level, who writes what, and calls a round."""

    level: Level
    form: str
    calls: int
    native: bool = True

    def __str__(self) -> str:
        writer = "" if self.level > Level.ARGS else ", native" if self.native else ", structlog"
        if self.form == "ring":
            writer = "" if self.native else ", Python"
        return f"{self.level.name.lower()} {self.form}{writer}"


WAYS = (
    Way(Level.CALLS, "ring", 4000),
    Way(Level.CALLS, "json", 2000),
    Way(Level.CALLS, "json", 400, native=False),
    Way(Level.ARGS, "ring", 4000),
    Way(Level.ARGS, "ring", 400, native=False),
    Way(Level.ARGS, "json", 2000),
    Way(Level.ARGS, "json", 400, native=False),
    Way(Level.STATS, "json", 20),
    Way(Level.DUMP, "json", 20),
)


@dataclass(frozen=True)
class Recording:
    """The api recorded in a way, by which sink, and the file that its calls go to."""

    call: Call
    sink: Any
    place: Path


def make(way: Way, folder: Path, count: int) -> Recording:
    """Return the api recorded in a way."""
    place = folder / f"{way}-{count}".replace(" ", "-").replace(",", "")
    config = Config(
        log_level=way.level, log_dest=str(place), log_format=way.form,
        dump_dir=folder / f"dumps-{count}", dump_max_calls=16,
    )  # fmt: skip
    if way.native:
        recorder = build_recorder(config)
    elif way.form == "ring":
        recorder = Recorder([RingSink(config, dict, lambda: None)])
    else:
        recorder = Recorder([LogSink(config)])
    assert recorder is not None  # noqa: S101 - the level is above off
    return Recording(recorded(attend, API, recorder), recorder.sinks_for(API)[0], place)


def warm_up(way: Way, recording: Recording, tensors: list[torch.Tensor]) -> None:
    """Wait until the native recorder does its part, and make sure that all is recorded."""
    call, place = recording.call, recording.place
    begin = time.monotonic()
    while way.native and way.level <= Level.ARGS and recording.sink.native is None:
        expect(time.monotonic() - begin < PATIENCE_SECONDS, "the native recorder is there")
        call(*tensors, scale=0.5)
        time.sleep(0.01)
    if way.level >= Level.STATS:
        fused = recording.sink._measured  # noqa: SLF001 - nobody else waits for it
        kernel = fused.kernel_on(tensors[0].device) if tensors[0].is_cuda else fused.kernel
        expect(kernel.wait(PATIENCE_SECONDS) is not None, "the statistics' kernel is there")
    call(*tensors, scale=0.5)
    if way.level >= Level.STATS and tensors[0].is_cuda:
        time.sleep(0.5)  # they come later
    if way.form == "ring":
        events = [record.event() for record in ring.read_ring(place).records]
    else:
        events = [json.loads(line) for line in place.read_text().splitlines()]
    starts = [event for event in events if event["event"] == "call"]
    last = json.loads(json.dumps(starts[-1]))
    expect(last["api"] == "attend", "the name of the api")
    expect((way.level >= Level.ARGS) == ("args" in last), "arguments from level args on")
    if way.level >= Level.ARGS:
        expect(last["args"]["args[0]"]["shape"] == list(tensors[0].shape), "the shape")
        expect(last["args"]["scale"] == 0.5, "the value of scale")  # noqa: PLR2004 - what is passed
    told = any('"absmax"' in json.dumps(event) for event in events)
    expect((way.level >= Level.STATS) == told, "statistics from stats on")
    if way.level >= Level.DUMP:
        capsules = list(place.parent.glob("dumps*/*/*attend/inputs.safetensors"))
        expect(bool(capsules), "a capsule at level dump")


def start_alone(recording: Recording, tensors: list[torch.Tensor]) -> tuple[Call, Arguments]:
    """Return the native call that records the start of a call, without Python's part around it."""
    target = recording.sink.native
    names = ["attend", *(f"args[{at}]" for at in range(len(tensors))), "scale"]
    site = target.add_site("\0".join(names).encode(), b"attend\0result")
    arguments = (target.number, site, 1, 0, False, *tensors, 0.5)
    expect(bool(target.started(*arguments)), "the native recorder takes the call")
    return target.started, (arguments, {})


def switched_off_again(folder: Path) -> Call:
    """Return the api after it was recorded and then let go: it runs its own code again."""
    again = FunctionType(
        attend.__code__, attend.__globals__, attend.__name__, attend.__defaults__, None
    )
    again.__kwdefaults__ = attend.__kwdefaults__
    code, switch = again.__code__, Switch(again)
    place = folder / "again.log"
    config = Config(log_level=Level.CALLS, log_dest=str(place))
    connect(switch, API, build_recorder(config))
    again(torch.zeros(1))
    expect("attend" in place.read_text(), "a switched api is recorded")
    connect(switch, API, None)
    expect(again.__code__ is code, "an api that is switched off runs its own code")
    return again


def one_round(call: Call, arguments: Arguments, count: int) -> float:
    """Return the nanoseconds a call takes, averaged over ``count`` calls."""
    args, kwargs = arguments
    begin = time.perf_counter_ns()
    for _ in range(count):
        call(*args, **kwargs)
    return (time.perf_counter_ns() - begin) / count


def expect(holds: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not holds:
        sys.exit(f"bench_recording: this does not hold: {what}")


def measure(
    tensors: list[torch.Tensor], rounds: int, folder: Path, levels: tuple[Level, Level]
) -> None:
    """Print what every way costs with these tensors."""
    filtered, off = Config(log_level=Level.DUMP, exclude=("attend",)), Config()
    given: Arguments = (tuple(tensors), {"scale": 0.5})
    calls: dict[str, tuple[Call, Arguments, int]] = {
        "bare": (attend, given, 20_000),
        "off": (recorded(attend, API, build_recorder(off)), given, 20_000),
        "filtered": (recorded(attend, API, build_recorder(filtered)), given, 20_000),
        "off again": (switched_off_again(folder), given, 20_000),
    }
    same = [name for name in ("off", "filtered") if calls[name][0] is attend]
    expect(same == ["off", "filtered"], "off and filtered return the function itself")
    least, most = levels
    for way in (way for way in WAYS if least <= way.level <= most):
        recording = make(way, folder, len(tensors))
        warm_up(way, recording, tensors)
        large = sum(tensor.nbytes for tensor in tensors) >= MANY_BYTES
        reads = way.level >= Level.STATS
        calls[str(way)] = (recording.call, given, way.calls // 4 if large and reads else way.calls)
        if way.level is Level.ARGS and way.native:
            calls[f"  its start alone, {way.form}"] = (*start_alone(recording, tensors), way.calls)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):  # interleaved, so that drift meets every way alike
        for name, (call, arguments, count) in calls.items():
            times[name].append(one_round(call, arguments, count))
    bare = statistics.median(times["bare"])
    for name, values in times.items():
        middle = statistics.median(values)
        print(
            f"{name:<24}{middle / 1e3:>11.3f}{min(values) / 1e3:>10.2f}{max(values) / 1e3:>10.2f}"
            f"{(middle - bare) / 1e3:>11.3f}{middle / bare:>10.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tensors", type=int, nargs="+", default=[4], metavar="N")
    parser.add_argument("--size", choices=SIZES, nargs="+", default=["small"])
    levels = [level.name.lower() for level in Level]
    parser.add_argument("--least", choices=levels, default="off", help="the lowest level timed")
    parser.add_argument("--most", choices=levels, default="dump", help="the highest one")
    options = parser.parse_args()
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"torch {torch.__version__}, {options.device}; perf_counter_ns, {options.rounds} "
        "interleaved rounds; off and filtered are the function itself"
    )
    for size, count in itertools.product(options.size, options.tensors):
        shape = SIZES[size]
        tensors = [torch.randn(shape, device=options.device) for _ in range(count)]
        megabytes = sum(tensor.nbytes for tensor in tensors) / 1e6
        print(f"\n{count} tensors float32 {list(shape)}, {megabytes:.2f} MB in all")
        title = f"{'level, form, writer':<24}{'median us':>11}{'min':>10}{'max':>10}"
        print(f"{title}{'added us':>11}{'x bare':>10}")
        with tempfile.TemporaryDirectory(prefix="kernlib-bench-") as scratch:
            bounds = (Level[options.least.upper()], Level[options.most.upper()])
            measure(tensors, options.rounds, Path(scratch), bounds)


if __name__ == "__main__":
    main()

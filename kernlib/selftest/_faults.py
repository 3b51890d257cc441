"""The planted faults, and what must be found of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from kernlib import jit

__all__ = ["FAULTS", "Expected", "Fault", "Planted", "planted_line"]

_SOURCES = {
    "cpu": ("include/kernlib/selftest.h", "include/kernlib/selftest_cpu.h"),
    "cuda": ("include/kernlib/selftest.h", "include/kernlib/selftest.cuh"),
}


@dataclass(frozen=True)
class Expected:
    """What a replay of a planted fault must say on one kind of device.

    ``rungs`` are those that can see the fault: one of them has to be the one that did.
    ``argument`` None means that no argument may be blamed: the kernel itself is wrong.
    ``line`` is whether a line is to be named: a wrong value has none that a tool could see.
    """

    verdicts: tuple[str, ...]
    rungs: tuple[str, ...]
    argument: str | None = None
    line: bool = True
    variants: tuple[str, ...] = ("eager",)


@dataclass(frozen=True)
class Fault:
    """A planted fault: what is wrong, and what is expected on each kind of device.

    ``hangs`` is whether the recording child has to be stopped, ``devices`` how many GPUs it takes.
    """

    name: str
    wrong: str
    cpu: Expected
    cuda: Expected
    hangs: bool = False
    devices: int = 0

    @property
    def api(self) -> str:
        """The name of the api that has the fault."""
        return f"selftest_{self.name}"

    def expected(self, backend: str) -> Expected:
        """Return what is expected on ``cpu`` or ``cuda``."""
        return self.cpu if backend == "cpu" else self.cuda


@dataclass(frozen=True)
class Planted:
    """A line of kernel source that is wrong on purpose."""

    file: str
    line: int
    text: str


@cache
def planted_line(fault: str, backend: str) -> Planted | None:
    """Return the one line that a backend's sources mark as a fault's, or None if none is."""
    found = [
        Planted(name, number, text.strip())
        for name in _SOURCES[backend]
        for number, text in enumerate(
            (jit.source_root() / name).read_text(encoding="utf-8").splitlines(), 1
        )
        if text.endswith(f"// planted: {fault}")
    ]
    return found[0] if len(found) == 1 else None


#: Plain memory, then fences, then what a sanitizer or another build adds.
_MEMORY = ("recorded", "blocking", "fence-end", "fence-start")
_CPU = (*_MEMORY, "address", "undefined", "debug")
_CUDA = (*_MEMORY, "memcheck", "lineinfo", "debug")
_DIED = ("reproduced",)
#: What the recorded run did not show is another end than the recorded one.
_UNSEEN = ("different_fault", "silent_corruption")
_REFUSED = ("reproduced", "invalid_input")

FAULTS = (
    Fault(
        "read_out_of_bounds", "an index leads far past the end of what is read",
        Expected(_DIED, _CPU, "indices", variants=("eager", "thread", "worker")),
        Expected(_DIED, _CUDA, "indices", variants=("eager", "streams", "worker")),
    ),
    Fault(
        "write_out_of_bounds", "an index leads far past the end of what is written",
        Expected(_DIED, _CPU, "indices"),
        Expected(_DIED, _CUDA, "indices"),
    ),
    Fault(
        "off_by_one", "one element past the end is read; a plain run never shows it",
        Expected(_UNSEEN, ("fence-end", "address"), "x", variants=("eager", "worker")),
        Expected(_UNSEEN, ("fence-end",), "x", variants=("eager", "graph", "streams", "worker")),
    ),
    Fault(
        "misalignment", "eight bytes are loaded at an address that is a multiple of four",
        Expected(_UNSEEN, ("address", "undefined"), "x"),
        Expected(_DIED, _CUDA, "x"),
    ),
    Fault(
        "assertion", "an assertion of the kernel fails",
        Expected(_DIED, _CPU, "indices"),
        Expected(_DIED, _CUDA, "indices"),
    ),
    Fault(
        "race", "threads meet that should have waited for each other",
        Expected(_UNSEEN, ("thread",)),
        Expected(_UNSEEN, ("racecheck",)),
    ),
    Fault(
        "hang", "a loop never ends",
        Expected(("timed_out",), ("recorded",), "step", line=False),
        Expected(("timed_out",), ("recorded",), "step", line=False),
        hangs=True,
    ),
    Fault(
        "not_a_number", "finite inputs give NaN",
        Expected(("invalid_input",), ("check",), "scale", line=False),
        Expected(("invalid_input",), ("check",), "scale", line=False),
    ),
    Fault(
        "int32_overflow", "a product wraps in 32 bits and leads to before the tensor",
        Expected(_UNSEEN, ("fence-start", "address", "undefined"), "table"),
        Expected((*_UNSEEN, *_DIED), _CUDA, "table", variants=("eager", "graph")),
    ),
    Fault(
        "stale_workspace", "the result depends on what a workspace held before",
        Expected(("mismatch",), ("poison",), "workspace", line=False),
        Expected(("mismatch",), ("poison",), "workspace", line=False),
    ),
    Fault(
        "wrong_device", "a tensor on another kind of device is handed in, and refused",
        Expected(_REFUSED, ("recorded",), "bias", line=False),
        Expected(_REFUSED, ("recorded",), "bias", line=False),
    ),
    Fault(
        "other_device", "a tensor on another GPU is handed in, and not refused",
        Expected(_DIED, (), "bias"),
        Expected(_DIED, _CUDA, "bias"),
        devices=2,
    ),
)  # fmt: skip

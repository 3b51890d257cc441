"""Reads what a process told of its fatal signal."""

from __future__ import annotations

import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernlib.replay._sanitizers import Fault, Frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "CRASH_FILE",
    "PYTHON_FILE",
    "Crash",
    "Module",
    "fault_of_crash",
    "parse_crash",
    "read_symbols",
]

CRASH_FILE = "crash.txt"
PYTHON_FILE = "python.txt"

_MOST_FRAMES = 32
_ADDR2LINE_SECONDS = 60
_FACT = re.compile(
    r"^(?:(signal|code) (-?\d{1,9})|(address|pc|frame) (0x[0-9a-f]{1,16})|(access) (\w+))$"
)
_MAP = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) \S+ \d+ +(/.+)$")
_PYTHON = re.compile(
    r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$', re.MULTILINE
)
_PLACE = re.compile(r"^(?P<file>.+):(?P<line>\d+|\?)(?: \(discriminator \d+\))?$")


@dataclass(frozen=True, slots=True)
class Module:
    """A file whose code was mapped: where its first byte was, and the addresses it took."""

    path: str
    base: int
    end: int


@dataclass(frozen=True, slots=True)
class Crash:
    """A fatal signal: its number, what was accessed and how, the stack from the innermost on."""

    signal: int
    address: int | None
    access: str
    stack: tuple[int, ...]
    modules: tuple[Module, ...]

    def module_of(self, address: int) -> Module | None:
        """Return the file whose code lies at an address."""
        there = (module for module in self.modules if module.base <= address < module.end)
        return next(there, None)


def parse_crash(text: str) -> Crash | None:
    """Return what the handler wrote, up to where it stops; None if it wrote nothing."""
    told, _, maps = text.partition("\nmaps\n")
    facts: dict[str, str] = {}
    frames: list[int] = []
    for line in told.splitlines():
        if match := _FACT.match(line):
            name, value = (part for part in match.groups() if part is not None)
            if name == "frame":
                frames.append(int(value, 16))
            facts[name] = value
    if "signal" not in facts:
        return None
    address = facts.get("address")
    return Crash(
        int(facts["signal"]),
        int(address, 16) if address is not None else None,
        facts.get("access", ""),
        _from_fault(int(facts.get("pc", "0"), 16), frames),
        tuple(_modules(maps.splitlines())),
    )


def _from_fault(pc: int, frames: Sequence[int]) -> tuple[int, ...]:
    """Leave out the handler's own frames.

    What lies above the faulting instruction is return addresses: the call is one byte before.
    """
    callers = frames[frames.index(pc) + 1 :] if pc in frames else frames
    return tuple([pc, *(frame - 1 for frame in callers)][:_MOST_FRAMES])


def _modules(lines: Iterable[str]) -> list[Module]:
    """Join the mappings of each file; the first of them holds its first byte."""
    found: list[Module] = []
    for line in lines:
        if (match := _MAP.match(line)) is None:
            continue
        start, end, offset, path = (
            int(match[1], 16), int(match[2], 16), int(match[4], 16), match[5],
        )  # fmt: skip
        if found and found[-1].path == path and offset:
            found[-1] = Module(path, found[-1].base, end)
        elif not offset:
            found.append(Module(path, start, end))
    return found


def read_symbols(output: str) -> dict[int, list[Frame]]:
    """Return, by address, the frames in ``addr2line -a -f -i``'s output, the innermost first."""
    found: dict[int, list[Frame]] = {}
    current: list[Frame] = []
    function = ""
    for line in output.splitlines():
        if line.startswith("0x") and ":" not in line:
            current = found.setdefault(int(line, 16), [])
            function = ""
        elif not function:
            function = line
        elif match := _PLACE.match(line):
            number = int(match["line"]) if match["line"].isdigit() else 0
            file = match["file"] if number else ""
            current.append(Frame("" if function == "??" else function, file, number))
            function = ""
    return found


def _symbols(module: str, offsets: Sequence[int]) -> tuple[dict[int, list[Frame]], str]:
    """Ask addr2line for lines; return them and why there are none."""
    command = ["addr2line", "-C", "-a", "-f", "-i", "-e", module, *(f"{at:#x}" for at in offsets)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=True,
            timeout=_ADDR2LINE_SECONDS,
        )  # fmt: skip
    except FileNotFoundError:
        return {}, "addr2line was not found, so no line can be named; install binutils"
    except (OSError, subprocess.SubprocessError) as error:
        return {}, f"addr2line named no line: {error}"
    return read_symbols(done.stdout), ""


def fault_of_crash(folder: Path, artifacts: Path) -> Fault | None:
    """Return the fault that a process told in ``folder``; None if it told none.

    Lines are looked up in the libraries below ``artifacts`` alone: those of torch and of Python
    have none, and are large.
    """
    try:
        text = (folder / CRASH_FILE).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    if (crash := parse_crash(text)) is None:
        return None
    frames, note = _frames(crash, artifacts)
    name = signal.Signals(crash.signal).name
    text = name
    if crash.address is not None:
        text = f"{name}: a {crash.access} at 0x{crash.address:x}"
    elif crash.access:
        text = f"{name}: an access to an address that no process can have"
    return Fault(
        name,
        text,
        "operating system",
        (*frames, *_python_frames(folder)),
        crash.address,
        access=crash.access if crash.access in {"read", "write"} else "",
        note=note,
    )


def _python_frames(folder: Path) -> list[Frame]:
    """Return the frames of Python down to the replay's own."""
    try:
        text = (folder / PYTHON_FILE).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    frames = [Frame(m["function"], m["file"], int(m["line"])) for m in _PYTHON.finditer(text)]
    ours = next((at for at, frame in enumerate(frames) if _is_ours(frame)), len(frames))
    return frames[:ours]


def _is_ours(frame: Frame) -> bool:
    return Path(frame.file).parent == Path(__file__).parent


def _frames(crash: Crash, artifacts: Path) -> tuple[list[Frame], str]:
    """Return the stack with lines where kernels have them."""
    wanted: dict[str, list[int]] = {}
    places = [(address, crash.module_of(address)) for address in crash.stack]
    for address, module in places:
        if module is not None and Path(module.path).is_relative_to(artifacts):
            wanted.setdefault(module.path, []).append(address - module.base)
    note = ""
    known: dict[str, dict[int, list[Frame]]] = {}
    for path, offsets in wanted.items():
        known[path], problem = _symbols(path, offsets)
        note = note or problem
    frames: list[Frame] = []
    for address, module in places:
        if module is None:
            frames.append(Frame(f"0x{address:x}", "", 0))
            continue
        offset = address - module.base
        bare = Frame(f"{Path(module.path).name}+0x{offset:x}", "", 0)
        frames += known.get(module.path, {}).get(offset) or [bare]
    return frames, note

"""Reads what sanitizers and assertions print."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Fault",
    "Frame",
    "read_address_sanitizer",
    "read_device_assertion",
    "read_thread_sanitizer",
    "read_undefined",
]


@dataclass(frozen=True, slots=True)
class Frame:
    """One level of a call stack; ``line`` is 0 where no line table was at hand."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Fault:
    """What a tool or the operating system says about the end of a child.

    ``kind`` is the tool's own word (``heap-buffer-overflow``, ``SIGSEGV``); ``frames`` run from
    the faulting function outwards. ``access`` is ``read`` or ``write`` of ``size`` bytes, where
    that is known; ``region`` is the block of memory that the tool says was left, from its first
    address to the one after its last. ``candidates`` are addresses and threads of which some
    faulted, where it is not known which. ``note`` says what could not be found out, and why.
    """

    kind: str
    text: str
    tool: str
    frames: tuple[Frame, ...] = ()
    address: int | None = None
    thread: str = ""
    count: int = 1
    access: str = ""
    size: int = 0
    region: tuple[int, int] | None = None
    candidates: tuple[tuple[int, str], ...] = ()
    note: str = ""


# A path that holds blanks begins with a slash: what else stands before it, such as the ``const``
# after a member function's parameters, belongs to the function.
_FRAME = re.compile(
    r"^\s*#\d+\s+(?:0x[0-9a-f]+\s+)?(?:in\s+)?(?P<function>.*?)\s+"
    r"(?:(?P<file>/[^()]*?|[^\s()/][^\s()]*?):(?P<line>\d+)(?::\d+)?(?: \([^()]*\))?"
    r"|(?:<null> )?\((?P<module>[^)]*)\))\s*$"
)
_HEAD = re.compile(r"^==\d+==\s*ERROR: AddressSanitizer: (?P<what>.+)$", re.MULTILINE)
_ACCESS = re.compile(r"^(?P<direction>READ|WRITE) of size (?P<size>\d+)", re.MULTILINE)
_SIGNAL_ACCESS = re.compile(r"The signal is caused by a (?P<direction>READ|WRITE) memory access")
_WHERE = re.compile(r"^(0x[0-9a-f]+) is located (.+)$", re.MULTILINE)
_REGION = re.compile(r"-byte region \[(0x[0-9a-f]+),(0x[0-9a-f]+)\)")
_UNDEFINED = re.compile(
    r"^(?P<file>\S+?):(?P<line>\d+):\d+: runtime error: (?P<what>.+)$", re.MULTILINE
)
_RACE = re.compile(r"^WARNING: ThreadSanitizer: (.+?) \(pid=\d+\)$", re.MULTILINE)
_RACING = re.compile(
    r"^ +(?:Previous )?(?P<what>(?:atomic )?(?:read|write)) of size (?P<size>\d+) "
    r"at (?P<address>0x[0-9a-f]+) by (?P<thread>main thread|thread \S+?)(?: \(.*\))?:$",
    re.MULTILINE | re.IGNORECASE,
)
_ASSERTION = re.compile(
    r"^(?P<file>\S.*?):(?P<line>\d+): (?P<function>.+): block: \[(?P<block>\d+,\d+,\d+)\], "
    r"thread: \[(?P<thread>\d+,\d+,\d+)\] (?P<what>Assertion `.+` failed)\.?$",
    re.MULTILINE,
)
_HEAP_BLOCK = re.compile(r"Location is heap block of size (\d+) at (0x[0-9a-f]+)")


def _frames(lines: list[str]) -> Iterator[Frame]:
    """Yield the frames of the first stack in ``lines``."""
    begun = False
    for line in lines:
        if match := _FRAME.match(line):
            begun = True
            function = "" if match["function"] == "<null>" else match["function"]
            yield Frame(function, match["file"] or "", int(match["line"] or 0))
        elif begun and not line.strip().startswith("#"):
            return


def read_address_sanitizer(log: str) -> Fault | None:
    """Return the error in an AddressSanitizer report, or None if there is no report."""
    head = _HEAD.search(log)
    if head is None:
        return None
    body = log[head.start() :]
    what = head["what"]
    kind = what.split()[0]
    text = what.split(" (pc ")[0]
    access = _ACCESS.search(body) or _SIGNAL_ACCESS.search(body)
    direction = access["direction"].lower() if access else ""
    size = int(access["size"]) if access and "size" in access.groupdict() else 0
    if size:
        text = f"{kind}: {direction} of {size} bytes"
    elif direction:
        text = f"{text}, a {direction}"
    region = None
    if where := _WHERE.search(body):
        text += f", {where[2].split(' [')[0]}"
        bounds = _REGION.search(where[2])
        region = (int(bounds[1], 16), int(bounds[2], 16)) if bounds else None
    address = re.search(r"address (0x[0-9a-f]+)", what)
    return Fault(
        kind,
        text,
        "AddressSanitizer",
        tuple(_frames(body.splitlines()[1:])),
        int(address[1], 16) if address else None,
        access=direction,
        size=size,
        region=region,
    )


def read_undefined(log: str) -> Fault | None:
    """Return the first error of the undefined-behaviour sanitizer, or None."""
    match = _UNDEFINED.search(log)
    if match is None:
        return None
    rest = log[match.end() :].splitlines()
    frames = tuple(_frames(rest[:64]))
    if not frames:
        frames = (Frame("", match["file"], int(match["line"])),)
    return Fault("undefined-behaviour", match["what"], "UBSan", frames)


def _races(log: str) -> list[Fault]:
    parts = [log[head.end() :] for head in _RACE.finditer(log)]
    return [_race(head[1], part) for head, part in zip(_RACE.finditer(log), parts, strict=True)]


def _race(kind: str, body: str) -> Fault:
    """Return one report: both accesses, the stack of the first."""
    body = body.partition("\nSUMMARY: ")[0]
    accesses = list(_RACING.finditer(body))
    if not accesses:
        return Fault(kind, kind, "ThreadSanitizer", tuple(_frames(body.splitlines())))
    first = accesses[0]
    frames = tuple(_frames(body[first.end() :].splitlines()))
    text = f"{kind}: {first['what'].lower()} of {first['size']} bytes"
    if len(accesses) > 1:
        text += f", against a {accesses[1]['what'].lower()} by {accesses[1]['thread']}"
        other = next(_frames(body[accesses[1].end() :].splitlines()), None)
        text += f" at {other.file}:{other.line}" if other is not None and other.line else ""
    heap = _HEAP_BLOCK.search(body)
    start = int(heap[2], 16) if heap else 0
    return Fault(
        kind,
        text,
        "ThreadSanitizer",
        frames,
        int(first["address"], 16),
        first["thread"],
        access="write" if "write" in first["what"].lower() else "read",
        size=int(first["size"]),
        region=(start, start + int(heap[1])) if heap else None,
    )


def read_thread_sanitizer(log: str) -> Fault | None:
    """Return the first race in ThreadSanitizer's reports that has a line, or None if none is told.

    One without a line lies in a library that is not instrumented. The fault counts them all.
    """
    races = _races(log)
    if not races:
        return None
    found = next((race for race in races if any(frame.line for frame in race.frames)), races[0])
    return replace(found, count=len(races))


def read_device_assertion(log: str) -> Fault | None:
    """Return the first assertion that failed in a kernel, or None; the fault counts them all."""
    found = list(_ASSERTION.finditer(log))
    if not found:
        return None
    first = found[0]
    return Fault(
        "device assertion",
        first["what"],
        "CUDA runtime",
        (Frame(first["function"], first["file"], int(first["line"])),),
        thread=f"block ({first['block']}) thread ({first['thread']})",
        count=len(found),
    )

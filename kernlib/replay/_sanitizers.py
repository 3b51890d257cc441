"""Reads the reports of AddressSanitizer, UBSan and compute-sanitizer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Fault", "Frame", "read_address_sanitizer", "read_memcheck", "read_undefined"]


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
    address to the one after its last. ``note`` says what could not be found out, and why.
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
    note: str = ""


# A path that holds blanks begins with a slash: what else stands before it, such as the ``const``
# after a member function's parameters, belongs to the function.
_FRAME = re.compile(
    r"^\s*#\d+\s+0x[0-9a-f]+\s+(?:in\s+)?(?P<function>.*?)\s+"
    r"(?:(?P<file>/[^()]*?|[^\s()/][^\s()]*?):(?P<line>\d+)(?::\d+)?|\((?P<module>[^)]*)\))\s*$"
)
_HEAD = re.compile(r"^==\d+==\s*ERROR: AddressSanitizer: (?P<what>.+)$", re.MULTILINE)
_ACCESS = re.compile(r"^(?P<direction>READ|WRITE) of size (?P<size>\d+)", re.MULTILINE)
_SIGNAL_ACCESS = re.compile(r"The signal is caused by a (?P<direction>READ|WRITE) memory access")
_WHERE = re.compile(r"^(0x[0-9a-f]+) is located (.+)$", re.MULTILINE)
_REGION = re.compile(r"-byte region \[(0x[0-9a-f]+),(0x[0-9a-f]+)\)")
_UNDEFINED = re.compile(
    r"^(?P<file>\S+?):(?P<line>\d+):\d+: runtime error: (?P<what>.+)$", re.MULTILINE
)


def _frames(lines: list[str]) -> Iterator[Frame]:
    """Yield the frames of the first stack in ``lines``."""
    begun = False
    for line in lines:
        if match := _FRAME.match(line):
            begun = True
            yield Frame(match["function"], match["file"] or "", int(match["line"] or 0))
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


def _text(node: ET.Element | None, path: str) -> str:
    found = node.findtext(path) if node is not None else None
    return (found or "").strip()


def _position(record: ET.Element, name: str) -> str:
    numbers = [_text(record, f"who/{name}/{axis}") for axis in "xyz"]
    return f"({','.join(numbers)})" if all(numbers) else ""


def _device_frame(node: ET.Element) -> Frame:
    line = _text(node, "line")
    return Frame(_text(node, "func"), _text(node, "path"), int(line) if line.isdigit() else 0)


def read_memcheck(xml: str) -> Fault | None:
    """Return the first device error in compute-sanitizer's XML output, or None.

    A file cut short by the death of the process is read up to the cut.
    """
    parser: Any = ET.XMLPullParser(events=("end",))
    records: list[ET.Element] = []
    try:
        parser.feed(xml)
        for _, node in parser.read_events():
            if node.tag == "record" and node.find("where") is not None:
                records.append(node)
    except ET.ParseError:
        pass  # what was whole before the damage is kept
    for record in records:
        frames = [_device_frame(where) for where in record.findall("where")]
        frames += [_device_frame(frame) for frame in record.findall("deviceStack/frame")]
        address = _text(record, "what/address")
        block, thread = _position(record, "blockIdx"), _position(record, "threadIdx")
        return Fault(
            _text(record, "what/error") or "device error",
            _text(record, "what/text"),
            "compute-sanitizer",
            tuple(frames),
            int(address, 16) if address.startswith("0x") else None,
            f"block {block} thread {thread}" if block else "",
            len(records),
        )
    return None

"""Reads the reports of compute-sanitizer's tools."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from kernlib.replay._sanitizers import Fault, Frame

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["read_compute_sanitizer", "read_compute_sanitizer_text"]

_TOOL = "compute-sanitizer"
_HOST = {"hostStack", "saveHostStack"}
_ACCESS = re.compile(r"\b(read|write|atomic)\b(?: access)?(?: of size (\d+))?", re.IGNORECASE)
_NEAREST = re.compile(r"nearest allocation at (0x[0-9a-f]+) of size (\d+)")


def _child(node: ET.Element | None, path: str) -> str:
    found = node.findtext(path) if node is not None else None
    return (found or "").strip()


def _position(record: ET.Element, name: str) -> str:
    numbers = [_child(record, f"who/{name}/{axis}") for axis in "xyz"]
    return f"({','.join(numbers)})" if all(numbers) else ""


def _device_frames(node: ET.Element) -> Iterator[Frame]:
    """Yield every place in device code below a node, in the order they stand in."""
    for child in node:
        if child.tag in _HOST:
            continue
        if child.find("func") is not None:
            line = _child(child, "line")
            yield Frame(
                _child(child, "func"), _child(child, "path"), int(line) if line.isdigit() else 0
            )
        yield from _device_frames(child)


def _whole_records(xml: str) -> list[ET.Element]:
    """Return the records of a file, up to where it is cut or damaged."""
    parser: Any = ET.XMLPullParser(events=("end",))
    records: list[ET.Element] = []
    try:
        parser.feed(xml)
        records += [node for _, node in parser.read_events() if node.tag == "record"]
    except ET.ParseError:
        pass  # what was whole before the damage is kept
    return records


def read_compute_sanitizer(xml: str) -> Fault | None:
    """Return the first error of device code in an XML report of any of the tools, or None.

    A file cut short by the death of the process is read up to the cut. The fault counts all such
    errors; what the host's calls returned is none of them.
    """
    found = [(record, tuple(_device_frames(record))) for record in _whole_records(xml)]
    errors = [(record, frames) for record, frames in found if frames]
    for record, frames in errors:
        text = " ".join(_child(record, "what/text").split())
        address = _child(record, "what/address")
        block, thread = _position(record, "blockIdx"), _position(record, "threadIdx")
        fault = Fault(
            _child(record, "what/error") or _kind(text),
            text,
            _TOOL,
            frames,
            int(address, 16) if address.startswith("0x") else None,
            f"block {block} thread {thread}" if block else "",
            len(errors),
        )
        size = _child(record, "what/size")
        return _with_access(fault, text, int(size) if size.isdigit() else 0)
    return None


def _with_access(fault: Fault, text: str, size: int = 0) -> Fault:
    """Add what a report's text says of the access and of the allocation beside it."""
    access = _ACCESS.search(text)
    direction = access[1].lower() if access else ""
    nearest = _NEAREST.search(text)
    start = int(nearest[1], 16) if nearest else 0
    return replace(
        fault,
        access="write" if direction == "atomic" else direction,
        size=size or int(access[2] or 0 if access else 0),
        region=(start, start + int(nearest[2])) if nearest else None,
    )


def _kind(text: str) -> str:
    words = {
        "race": "race",
        "hazard": "race",
        "uninitialized": "uninitialized read",
        "barrier": "barrier error",
        "misaligned": "misaligned",
    }
    return next((kind for word, kind in words.items() if word in text.lower()), "device error")


_HEAD = re.compile(
    r"^========= (?:(?:ERROR|WARNING|Error|Warning): )?(?P<text>(?:Invalid |Uninitialized "
    r"|Misaligned |Barrier error |Race reported |Potential |Warpgroup MMA ).*)$"
)
_HOST_STACK = re.compile(r"^=========\s+(?:Saved host|Host Frame)")
_LINE = re.compile(r"^=========\s+(?P<text>\S.*)$")
_PLACE = re.compile(
    r"(?:^at |access at |^Device Frame:\s*)(?P<function>.+?)(?:\+0x[0-9a-f]+)?"
    r"(?: in (?P<file>\S.*?):(?P<line>\d+))?(?: \[\d+ hazards?\])?$"
)
_WHO = re.compile(r"by thread (?P<thread>\(\d+,\d+,\d+\)) in block (?P<block>\(\d+,\d+,\d+\))")
_ADDRESS = re.compile(r"(?:Access to|Address) (0x[0-9a-f]+)")


def _blocks(log: str) -> Iterator[list[str]]:
    """Yield the lines of every error."""
    block: list[str] = []
    for line in log.splitlines():
        if head := _HEAD.match(line):
            if block:
                yield block
            block = [head["text"]]
        elif block and (more := _LINE.match(line)) is not None and not _HOST_STACK.search(line):
            block.append(more["text"])
        elif block:
            yield block
            block = []
    if block:
        yield block


def read_compute_sanitizer_text(log: str) -> Fault | None:
    """Return the first error in what a tool printed, or None; the fault counts them all."""
    blocks = list(_blocks(log))
    for block in blocks:
        text = " ".join(block)
        places = [match for line in block if (match := _PLACE.search(line)) is not None]
        frames = tuple(
            Frame(match["function"], match["file"] or "", int(match["line"] or 0))
            for match in places
        )
        head = " ".join(line for line in block if line.startswith(("and Read", "and Write")))
        who, address = _WHO.search(text), _ADDRESS.search(text)
        fault = Fault(
            _kind(block[0]),
            f"{block[0]} {head}".strip(),
            _TOOL,
            frames,
            int(address[1], 16) if address else None,
            f"block {who['block']} thread {who['thread']}" if who else "",
            len(blocks),
        )
        return _with_access(fault, text)
    return None

"""Reads ring files, whole, torn or damaged."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kernlib.errors import RingError
from kernlib.ring._format import (
    ALIGNMENT,
    CAPTURING,
    CHECKSUM,
    FACTS_AT,
    HAS_STREAM,
    HEAD,
    HEAD_AT,
    LARGEST_RECORD,
    LATE,
    PAGE,
    PAGE_BYTES,
    PAGE_MAGIC,
    RECORD,
    RECORD_MAGIC,
    VERSION,
    Kind,
)  # fmt: skip
from kernlib.ring._record import Record
from kernlib.ring._values import Described, decode_values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Ring", "read_ring"]

_STILL = (Kind.RETURN, Kind.RAISE, Kind.SUSPEND)


@dataclass(frozen=True, slots=True)
class Ring:
    """What a ring file holds.

    ``overwritten`` records were written before the oldest that is left, ``damaged`` ones lie
    between those that are; ``torn`` tells of one that was being written. ``problems`` are
    sentences on what else is wrong with the file.
    """

    facts: dict[str, object]
    records: tuple[Record, ...]
    head: int
    overwritten: int = 0
    damaged: int = 0
    torn: bool = False
    problems: tuple[str, ...] = field(default=())

    def unfinished(self) -> tuple[Record, ...]:
        """Return the starts of calls that were running: not ended, and not waiting."""
        return self._starts(lambda last: last not in _STILL)

    def waiting(self) -> tuple[Record, ...]:
        """Return the starts of generators and coroutines that were waiting for their callers."""
        return self._starts(lambda last: last is Kind.SUSPEND)

    def _starts(self, admits: Callable[[Kind], bool]) -> tuple[Record, ...]:
        last = {record.call: record.kind for record in self.records if record.kind not in LATE}
        starts = (record for record in self.records if record.kind is Kind.CALL)
        return tuple(record for record in starts if admits(last[record.call]))


class _Page(NamedTuple):
    facts: dict[str, object]
    capacity: int
    problems: tuple[str, ...]


def read_ring(path: Path, *, since: int = 0) -> Ring:
    """Return the records of a ring file from position ``since`` on; its writer may be alive.

    Raises RingError if the file cannot be read or is no ring.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RingError(path, error.strerror or str(error)) from None
    page = _page(path, data)
    head, _ = HEAD.unpack_from(data, HEAD_AT)
    found = _records(data[PAGE_BYTES:], page.capacity)
    end = max((record.position + record.length for record in found), default=0)
    # What the page says counts if it can be true: a record may have been under way.
    if not end <= head <= end + page.capacity:
        head = end
    oldest = max(end - page.capacity, since)
    kept = tuple(record for record in found if record.position >= oldest)
    first, last = (kept[0].ordinal, kept[-1].ordinal) if kept else (0, -1)
    return Ring(
        facts=page.facts,
        records=kept,
        head=head,
        overwritten=first,
        damaged=last - first + 1 - len(kept),
        torn=head > end,
        problems=page.problems,
    )


def _page(path: Path, data: bytes) -> _Page:
    if len(data) < (least := PAGE_BYTES + RECORD.size):
        raise RingError(path, f"{len(data)} bytes are no ring; it has {least} at least")
    magic, version, facts_bytes, capacity, checksum = PAGE.unpack_from(data)
    text = data[FACTS_AT : FACTS_AT + min(facts_bytes, PAGE_BYTES)]
    there = len(data) - PAGE_BYTES
    if zlib.adler32(data[: PAGE.size - CHECKSUM.size] + text) != checksum:
        if magic != PAGE_MAGIC and RECORD_MAGIC not in data:
            raise RingError(path, f"it begins with {magic!r}, a ring with {PAGE_MAGIC!r}")
        problem = (
            "the page that describes the file is damaged; the ring is taken to be all the rest"
        )
        return _Page({}, there, (problem,))
    if version != VERSION:
        raise RingError(path, f"it is of version {version}, and this kernlib reads {VERSION}")
    if capacity != there:
        problem = f"the file is cut: {there} of {capacity} bytes of the ring are there"
        return _Page(msgspec.json.decode(text), capacity, (problem,))
    return _Page(msgspec.json.decode(text), capacity, ())


def _records(ring: bytes, capacity: int) -> list[Record]:
    found, at = [], ring.find(RECORD_MAGIC)
    while at >= 0:
        record = _record(ring, at, capacity) if at % ALIGNMENT == 0 else None
        if record is not None:
            found.append(record)
        at = ring.find(RECORD_MAGIC, at + (record.length if record is not None else 1))
    found.sort(key=lambda record: record.position)
    return found


def _record(ring: bytes, at: int, capacity: int) -> Record | None:
    """Return the record at a place; None if what lies there is not a whole one."""
    if at + RECORD.size > len(ring):
        return None
    fields = RECORD.unpack_from(ring, at)
    length, position, names_bytes, values_bytes, checksum = *fields[1:3], *fields[12:15]
    body = at + RECORD.size
    whole = RECORD.size + names_bytes + values_bytes <= length <= LARGEST_RECORD + ALIGNMENT
    if not whole or at + length > len(ring) or position % capacity != at:
        return None
    if zlib.adler32(ring[body : at + length], zlib.adler32(ring[at : body - 4])) != checksum:
        return None
    names = ring[body : body + names_bytes].decode(errors="replace").split("\0")
    values = ring[body + names_bytes : body + names_bytes + values_bytes]
    return _decoded(fields, names, values)


def _decoded(fields: tuple[int, ...], names: list[str], encoded: bytes) -> Record | None:
    _, length, position, ordinal, time, call, parent, nanoseconds, stream, thread = fields[:10]
    kind, flags = fields[10:12]
    try:
        kind = Kind(kind)
        values = decode_values(encoded, len(names) - 1)
    except ValueError as error:  # written so by another version; the rest of the record is sound
        kind = Kind(kind) if kind in set(Kind) else Kind.CALL
        names, values = [names[0], "values"], [Described(f"not decoded: {error}")]
    return Record(
        kind=kind, api=names[0], call=call, values=dict(zip(names[1:], values, strict=True)),
        parent=parent, nanoseconds=nanoseconds, stream=stream if flags & HAS_STREAM else None,
        capturing=bool(flags & CAPTURING), thread=thread, time=time, position=position,
        ordinal=ordinal, length=length,
    )  # fmt: skip

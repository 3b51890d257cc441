"""Writes records into a ring file."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
import time
import zlib
from typing import TYPE_CHECKING

import msgspec

from kernlib.ring._format import (
    ALIGNMENT,
    CAPTURING,
    CHECKSUM,
    FACTS_AT,
    HAS_STREAM,
    HEAD,
    HEAD_AT,
    LARGEST_RECORD,
    PAGE,
    PAGE_BYTES,
    PAGE_MAGIC,
    RECORD,
    RECORD_MAGIC,
    VERSION,
)  # fmt: skip
from kernlib.ring._values import Described, encode_values

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kernlib.ring._record import Entry

__all__ = ["RingWriter", "create_ring", "entry_fields"]

_TOO_LARGE = Described(f"... more than a record of {LARGEST_RECORD} bytes holds")


def create_ring(path: Path, capacity: int, facts: Mapping[str, object]) -> Path:
    """Create a ring file and return its path; all of its room is taken from the disk now.

    Writing into the mapping of a file that the disk has no room for would kill the process. What
    is there already may be the evidence of a crash and stays: ``path.1`` is taken then, and so on.

    Raises OSError if there is no permission or no room; nothing is left then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path, file = _new_file(path)
    try:
        os.posix_fallocate(file, 0, PAGE_BYTES + capacity)
        os.pwrite(file, _page(capacity, facts), 0)
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(file)
    return path


def _new_file(path: Path) -> tuple[Path, int]:
    for again in range(10_000):
        candidate = path.with_name(f"{path.name}.{again}") if again else path
        with contextlib.suppress(FileExistsError):
            return candidate, os.open(candidate, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    raise FileExistsError(errno.EEXIST, "ten thousand rings are there already", str(path))


def _page(capacity: int, facts: Mapping[str, object]) -> bytes:
    text = msgspec.json.encode(facts)
    if len(text) > PAGE_BYTES - FACTS_AT:  # a command line of any length
        text = msgspec.json.encode({key: facts[key] for key in facts if key != "argv"})
    if len(text) > PAGE_BYTES - FACTS_AT:
        text = b"{}"
    head = PAGE.pack(PAGE_MAGIC, VERSION, len(text), capacity, 0)[: -CHECKSUM.size]
    head += CHECKSUM.pack(zlib.adler32(head + text))
    return head.ljust(FACTS_AT, b"\0") + text


def entry_fields(entry: Entry) -> tuple[int, bytes, bytes]:
    """Return the flags, the names and the values of an entry, shortened if it is too large."""
    flags = (HAS_STREAM if entry.stream is not None else 0) | (CAPTURING if entry.capturing else 0)
    names = "\0".join((entry.api, *entry.values)).encode(errors="replace")
    values = encode_values(entry.values.values())
    if RECORD.size + len(names) + len(values) > LARGEST_RECORD:
        names = f"{entry.api[:1000]}\0{next(iter(entry.values))[:1000]}".encode(errors="replace")
        values = encode_values((_TOO_LARGE,))
    return flags, names, values


class RingWriter:
    """Appends records to a mapped ring; safe between threads of one process."""

    def __init__(self, path: Path) -> None:
        """Map a ring that `create_ring` made; raises OSError if it cannot be."""
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._capacity = len(self._map) - PAGE_BYTES
        self._lock = threading.Lock()

    def append(self, entry: Entry) -> None:
        """Write a record over the oldest ones."""
        flags, names, values = entry_fields(entry)
        unpadded = RECORD.size + len(names) + len(values)
        length = unpadded + -unpadded % ALIGNMENT
        with self._lock:
            position, ordinal = self._reserve(length)
            head = RECORD.pack(
                RECORD_MAGIC, length, position, ordinal, time.time_ns(), entry.call,
                entry.parent, entry.nanoseconds, entry.stream or 0,
                entry.thread or threading.get_native_id(), entry.kind, flags, len(names),
                len(values), 0,
            )[: -CHECKSUM.size]  # fmt: skip
            body = (names + values).ljust(length - RECORD.size, b"\0")
            checksum = zlib.adler32(body, zlib.adler32(head))
            at = PAGE_BYTES + position % self._capacity
            whole = head + CHECKSUM.pack(checksum) + body
            self._map[at : at + 4] = b"\0\0\0\0"
            self._map[at + 4 : at + length] = whole[4:]
            self._map[at : at + 4] = RECORD_MAGIC

    def _reserve(self, length: int) -> tuple[int, int]:
        position, ordinal = HEAD.unpack_from(self._map, HEAD_AT)
        left = self._capacity - position % self._capacity
        if left < length:
            position += left
        HEAD.pack_into(self._map, HEAD_AT, position + length, ordinal + 1)
        return position, ordinal

"""Takes the bytes of a call before and after it."""

from __future__ import annotations

import ctypes
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from kernlib.dump._decoder import result_views
from kernlib.dump._entries import Blob
from kernlib.dump._naming import SAFETENSORS_DTYPES, entry_name, naming_views
from kernlib.dump._schema import Change
from kernlib.dump._segments import covers, hull, merged
from kernlib.dump._staging import batches, taken_or_made, wait_for
from kernlib.dump._storages import bytes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch

    from kernlib.dump._entries import Placed
    from kernlib.dump._naming import Place
    from kernlib.dump._schema import Call, Segment, Storage, View
    from kernlib.dump._segments import Hull
    from kernlib.dump._staging import DeviceBytes

    Memory = Sequence[torch.UntypedStorage | None]

__all__ = ["Outcome", "Stored", "input_blobs", "input_bytes", "outcome", "output_bytes"]

_PART = 1 << 20


def input_bytes(storages: Sequence[Storage]) -> int:
    """Return how many bytes the segments of storages hold."""
    return sum(segment.nbytes for storage in storages for segment in storage.segments)


def input_blobs(memory: Memory, call: Call) -> list[Blob]:
    """Return the segments of a call's storages, to be written before anything changes them."""
    naming = naming_views(call.views)
    blobs = []
    for number, storage in enumerate(call.storages):
        held = memory[number]
        if held is None:
            continue
        for segment in storage.segments:
            place = (number, segment.start, segment.start + segment.nbytes)
            data = bytes_of(held, segment.start, segment.nbytes)
            blobs.append(_blob(segment.entry, data, naming.get(place)))
    return blobs


def output_bytes(call: Call) -> int:
    """Return at most how many bytes ``outcome`` will keep of a call; reads nothing."""
    return input_bytes(call.storages) + sum(
        end - start for hulls in _unsaved(call).values() for start, end in hulls
    )


class Outcome(NamedTuple):
    """What a call left: the changed bytes, their entries, and what could not be read."""

    changed: tuple[Change, ...]
    blobs: list[Blob]
    incomplete: list[str]


def outcome(memory: Memory, call: Call, before: Stored | None) -> Outcome:
    """Return the bytes that a call left: of its result, and of what it changed in place.

    ``call`` has its result, and the views and storages of it; ``before`` is its file of inputs.
    Segments that are as they were are not kept. Waits for the call's CUDA streams.
    """
    wait_for({held.device for held in memory if held is not None})
    kept = _unsaved(call)
    incomplete: list[str] = []
    read: dict[Place, memoryview | DeviceBytes] = {}
    if before is not None:
        with before.opened() as entries:
            for place, segment in _segments(call):
                held = memory[place[0]]
                if held is None:
                    continue
                if place[2] > held.nbytes():
                    incomplete.append(f"{segment.entry}: the call made its storage smaller")
                    continue
                data = bytes_of(held, segment.start, segment.nbytes)
                if not entries.holds(segment.entry, data):
                    read[place] = data
                    kept.setdefault(place[0], []).append(place[1:])
    naming = naming_views(call.views)
    changed: list[Change] = []
    blobs: list[Blob] = []
    for number, hulls in sorted(kept.items()):
        held = memory[number]
        if held is None:
            continue
        for start, end in merged(hulls):
            place = (number, start, end)
            entry = entry_name(place, naming)
            data = read.get(place) or bytes_of(held, start, end - start)
            changed.append(Change(storage=number, entry=entry, start=start, nbytes=end - start))
            blobs.append(_blob(entry, data, naming.get(place)))
    return Outcome(tuple(changed), blobs, incomplete)


class Stored:
    """The written file of a call's inputs, to compare memory with."""

    def __init__(self, path: str, placed: Mapping[str, Placed]) -> None:
        self._path = path
        self._placed = placed
        self._handle = -1

    @contextmanager
    def opened(self) -> Iterator[Stored]:
        """Keep the file open for comparisons."""
        self._handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield self
        finally:
            os.close(self._handle)
            self._handle = -1

    def holds(self, entry: str, data: memoryview | DeviceBytes) -> bool:
        """Return whether an entry's bytes are these."""
        offset, nbytes = self._placed[entry]
        if nbytes != len(data):
            return False
        for batch in batches((data,)):
            for part in batch:
                if not self._holds_at(offset, memoryview(part)):
                    return False
                offset += len(part)
        return True

    def _holds_at(self, offset: int, data: memoryview) -> bool:
        # Read, and not mapped: a mapped file that somebody shortens would end this process.
        scratch = taken_or_made(_SCRATCH, _Scratch)
        try:
            return all(
                scratch.holds(self._handle, offset + at, data[at : at + _PART])
                for at in range(0, len(data), _PART)
            )
        finally:
            _SCRATCH.append(scratch)


class _Scratch:
    """Memory for a part of a file, compared by memcmp; a memoryview compares item by item."""

    def __init__(self) -> None:
        self._memory = bytearray(_PART)
        self._view = memoryview(self._memory)
        self._address = _address(self._view)
        self._memcmp = ctypes.CDLL(None).memcmp
        self._memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

    def holds(self, handle: int, offset: int, data: memoryview) -> bool:
        size = len(data)
        read = os.preadv(handle, [self._view[:size]], offset)
        return read == size and not self._memcmp(self._address, _address(data), size)


#: As many as threads have ever compared at the same time.
_SCRATCH: list[_Scratch] = []


def _address(data: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(data))


def _segments(call: Call) -> Iterator[tuple[Place, Segment]]:
    for number, storage in enumerate(call.storages):
        for segment in storage.segments:
            yield (number, segment.start, segment.start + segment.nbytes), segment


def _unsaved(call: Call) -> dict[int, list[Hull]]:
    """Return, by storage, the bytes of the result that no segment of the inputs covers."""
    hulls: dict[int, list[Hull]] = {}
    for view in result_views(call).values():
        bounds = hull(view)
        segments = call.storages[view.storage].segments
        saved = ((part.start, part.start + part.nbytes) for part in segments)
        if bounds is not None and not covers(saved, bounds):
            hulls.setdefault(view.storage, []).append(bounds)
    return {number: merged(found) for number, found in hulls.items()}


def _blob(entry: str, data: memoryview | DeviceBytes, view: View | None) -> Blob:
    if view is None or entry != view.path:
        return Blob(entry, "U8", (len(data),), data)
    return Blob(entry, SAFETENSORS_DTYPES[view.dtype], view.shape, data, view.itemsize)

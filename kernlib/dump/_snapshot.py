"""Takes the bytes of a call before it runs, and what differs after it."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, NamedTuple

from kernlib.dump._decoder import result_views
from kernlib.dump._entries import Blob
from kernlib.dump._naming import SAFETENSORS_DTYPES, covering_views, entry_names
from kernlib.dump._schema import Change
from kernlib.dump._segments import covers, hull, merged
from kernlib.dump._storages import host_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from kernlib.dump._entries import Placed
    from kernlib.dump._schema import Call, Storage, View
    from kernlib.dump._segments import Hull

    Memory = Sequence[torch.UntypedStorage | None]

__all__ = ["Outcome", "Stored", "input_blobs", "input_bytes", "outcome", "output_bytes"]


def input_bytes(storages: Sequence[Storage]) -> int:
    """Return how many bytes the segments of storages hold."""
    return sum(segment.nbytes for storage in storages for segment in storage.segments)


def input_blobs(memory: Memory, call: Call) -> list[Blob]:
    """Read the segments of a call's storages; waits for CUDA streams where there are some."""
    blobs = []
    for number, storage in enumerate(call.storages):
        held = memory[number]
        if held is None or not storage.segments:
            continue
        covering = covering_views(call.views, number)
        for segment in storage.segments:
            data = host_bytes(held, segment.start, segment.nbytes)
            view = covering.get((segment.start, segment.start + segment.nbytes))
            blobs.append(_blob(segment.entry, data, view))
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
    Segments that are as they were are not kept.
    """
    hulls = _unsaved(call)
    incomplete: list[str] = []
    for number, storage in enumerate(call.storages):
        held = memory[number]
        if held is None or before is None:
            continue
        for segment in storage.segments:
            end = segment.start + segment.nbytes
            if end > held.nbytes():
                incomplete.append(f"{segment.entry}: the call made its storage smaller")
            elif not before.holds(segment.entry, host_bytes(held, segment.start, segment.nbytes)):
                hulls.setdefault(number, []).append((segment.start, end))
    changed: list[Change] = []
    blobs: list[Blob] = []
    taken: set[str] = set()
    for number, found in sorted(hulls.items()):
        held = memory[number]
        if held is None:
            continue
        joined = merged(found)
        covering = covering_views(call.views, number)
        names = entry_names(number, joined, call.views, taken)
        for entry, (start, end) in zip(names, joined, strict=True):
            data = host_bytes(held, start, end - start)
            changed.append(Change(storage=number, entry=entry, start=start, nbytes=end - start))
            blobs.append(_blob(entry, data, covering.get((start, end))))
    return Outcome(tuple(changed), blobs, incomplete)


class Stored:
    """The written file of a call's inputs, to compare memory with."""

    def __init__(self, path: str, placed: Mapping[str, Placed]) -> None:
        self._path = path
        self._placed = placed
        self._pages: torch.Tensor | None = None

    def holds(self, entry: str, data: memoryview) -> bool:
        """Return whether an entry's bytes are these."""
        import torch

        if self._pages is None:
            with open(self._path, "rb") as file:  # noqa: PTH123 - pathlib costs here
                pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            self._pages = torch.frombuffer(pages, dtype=torch.uint8)
        offset, nbytes = self._placed[entry]
        # A memoryview compares byte by byte in Python's own terms; torch compares like memcmp.
        now = torch.frombuffer(data, dtype=torch.uint8)
        return torch.equal(self._pages[offset : offset + nbytes], now)


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


def _blob(entry: str, data: memoryview, view: View | None) -> Blob:
    if view is None or entry != view.path:
        return Blob(entry, "U8", (len(data),), data)
    return Blob(entry, SAFETENSORS_DTYPES[view.dtype], view.shape, data, view.itemsize)

"""Turns the address of a fault into an argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernlib.replay._protocol import Placed, PlacedView
    from kernlib.replay._sanitizers import Fault

__all__ = ["Target", "explain"]

#: How far from a storage an address may lie to be told beside it where no fence says whose it is.
_REACH = 1 << 20

Relation = Literal["inside", "past the end", "before the start", "elsewhere"]


class Target(msgspec.Struct, frozen=True):
    """Which argument a fault's address belongs to, and how it lies to it.

    ``argument`` is empty for an address that belongs to none. ``distance`` counts bytes: from the
    storage's start inside, from its end or its start outside. ``certain`` is false for a guess.
    ``thread`` is whose address it is, where only the address tells that.
    """

    text: str
    argument: str
    relation: Relation
    distance: int
    certain: bool
    thread: str = ""


def explain(fault: Fault, placed: Sequence[Placed], padding: int = 0) -> Target | None:
    """Return whose address a fault has, or None if the fault has none.

    Memory that was placed later counts first: it may stand where an earlier storage was. Of a
    fault's candidates only one in a fence is told, as a guess: it is what a register held when the
    thread was stopped, some instructions after the fault. ``padding`` is how many bytes a tool
    keeps free beside each storage: near one storage alone, an address is that one's.
    """
    address = fault.address
    there = [place for place in reversed(placed) if place.nbytes and place.address]
    if address is None:
        return _among(there, fault.candidates)
    if not there:
        return None
    if (place := _first(there, address, fence=False)) is not None:
        return _within(place, address, fault.size)
    if (place := _first(there, address, fence=True)) is not None:
        return _beside(place, address, certain=True)
    if padding and fault.region is None:
        near = [place for place in there if _gap(place, address) < padding]
        if len({place.address for place in near}) == 1:
            return _beside(near[0], address, certain=True)
    if fault.region is not None and _distance(fault.region, address) < _REACH:
        return _in_block(there, address, fault.region)
    return _near(there, address)


def _near(there: Sequence[Placed], address: int) -> Target:
    nearest = min(there, key=lambda place: _gap(place, address))
    if _gap(nearest, address) < max(_REACH, nearest.nbytes):
        return _beside(nearest, address, certain=False)
    text = f"0x{address:x} is near no tensor of the call"
    return Target(text, "", "elsewhere", 0, certain=True)


def _among(there: Sequence[Placed], candidates: Iterable[tuple[int, str]]) -> Target | None:
    for address, thread in candidates:
        place = _first(there, address, fence=True)
        if place is not None and _first(there, address, fence=False) is None:
            beside = _beside(place, address, certain=True)
            text = f"{beside.text}; a guess: a register held that address after the fault"
            return msgspec.structs.replace(beside, text=text, thread=thread, certain=False)
    return None


def _first(there: Iterable[Placed], address: int, *, fence: bool) -> Placed | None:
    """Return the storage that holds an address, or whose padding or fence does."""
    for place in there:
        before = place.before + place.guard if fence else 0
        after = place.after + place.guard if fence else 0
        if place.address - before <= address < place.address + place.nbytes + after:
            return place
    return None


def _gap(place: Placed, address: int) -> int:
    return _distance((place.address, place.address + place.nbytes), address)


def _distance(bounds: tuple[int, int], address: int) -> int:
    low, high = bounds
    return low - address if address < low else max(address - high, 0)


def _in_block(there: Sequence[Placed], address: int, region: tuple[int, int]) -> Target:
    """Name the storage in the very block of memory that a sanitizer says was left.

    Where an allocator has put several into the block, that says no more than the address does.
    """
    low, high = region
    found = [
        place for place in there if low <= place.address and place.address + place.nbytes <= high
    ]
    if len(found) == 1:
        return _beside(found[0], address, certain=True)
    if found:
        return _near(found, address)
    text = f"0x{address:x} lies beside a block of {high - low} bytes that is no tensor of the call"
    return Target(text, "", "elsewhere", 0, certain=True)


def _within(place: Placed, address: int, size: int) -> Target:
    byte = address - place.address
    over = byte + size - place.nbytes
    if over > 0:
        view = _outermost(place, last=True)
        text = f"{over} of its {size} bytes lie past the end of {_name(place, view)}"
        return Target(text, _path(view), "past the end", over, certain=True)
    for view in place.views:
        if (found := _element(view, byte)) is not None:
            index, rest = found
            at = f"[{','.join(map(str, index))}]" if index else ""
            text = f"inside {view.path}{at}"
            text += f" (byte {rest})" if rest else ""
            return Target(text, view.path, "inside", byte, certain=True)
    view = _outermost(place, last=True)
    text = f"byte {byte} of the storage of {_path(view)}, in no element of the tensor"
    return Target(text, _path(view), "inside", byte, certain=True)


def _beside(place: Placed, address: int, *, certain: bool) -> Target:
    past = address >= place.address
    view = _outermost(place, last=past)
    distance = _gap(place, address)
    name = _name(place, view)
    if past:
        text = f"{_bytes(distance)} past the end of {name}" if distance else ""
        text = text or f"the first byte past the end of {name}"
    else:
        text = f"{_bytes(distance)} before the start of {name}"
    row = _row(view, address - place.address) if view is not None else ""
    text += f" ({row})" if row else ""
    if not certain:
        fence = "the fence of a storage ends before it" if place.guard else "no fence stood there"
        text += f"; a guess: {fence}"
    relation: Relation = "past the end" if past else "before the start"
    return Target(text, _path(view), relation, distance, certain)


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"


def _path(view: PlacedView | None) -> str:
    return view.path if view is not None else "memory of the call"


def _outermost(place: Placed, *, last: bool) -> PlacedView | None:
    """Return the view that reaches farthest on one side of its storage."""
    views = [view for view in place.views if 0 not in view.shape]
    if not views:
        return next(iter(place.views), None)
    return max(views, key=_end) if last else min(views, key=_start)


def _start(view: PlacedView) -> int:
    return view.offset * view.itemsize


def _end(view: PlacedView) -> int:
    """Return how many bytes of its storage a view needs."""
    pairs = zip(view.shape, view.stride, strict=True)
    return (view.offset + 1 + sum((size - 1) * step for size, step in pairs)) * view.itemsize


def _name(place: Placed, view: PlacedView | None) -> str:
    """Return what to call a storage: as its tensor, if the tensor covers it."""
    if view is None:
        return _path(view)
    covers = not view.offset and _end(view) == place.nbytes
    return view.path if covers else f"the storage of {view.path}"


def _row(view: PlacedView, byte: int) -> str:
    """Return where the index of the first dimension would have to stand, counted from 0."""
    first = next(iter(view.stride), 0)
    if not first or first < max(view.stride):
        return ""
    at = (byte // view.itemsize - view.offset) // first
    if 0 <= at < view.shape[0]:
        return ""  # between two rows, or behind the last one's end: no other row's
    unit = view.unit if len(view.shape) > 1 else "element"
    return f"{unit} {at} of {view.shape[0]}"


def _element(view: PlacedView, byte: int) -> tuple[tuple[int, ...], int] | None:
    """Return the index of the element that holds a byte of the storage, and which byte it is."""
    rest = byte - _start(view)
    if rest < 0 or 0 in view.shape:
        return None
    element, inner = divmod(rest, view.itemsize)
    index = [0] * len(view.shape)
    for dim in sorted(range(len(index)), key=lambda dim: -view.stride[dim]):
        if view.stride[dim] and view.shape[dim] > 1:
            index[dim] = min(element // view.stride[dim], view.shape[dim] - 1)
            element -= index[dim] * view.stride[dim]
    return None if element else (tuple(index), inner)

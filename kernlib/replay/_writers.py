"""Which earlier recorded call wrote an argument."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kernlib import dump
from kernlib.errors import CapsuleError
from kernlib.replay._recorded import bytes_of, only_storage

if TYPE_CHECKING:
    from pathlib import Path

    from kernlib.dump import Call, Change, View
    from kernlib.replay._chain import Step

__all__ = ["Written", "last_writer"]

#: Earlier calls that are read, the newest first.
_MOST_CALLS = 200


class Written(msgspec.Struct, frozen=True):
    """Where the contents of an argument come from.

    ``call`` is None where no recorded call wrote them; ``same`` whether they are still what that
    call left.
    """

    argument: str
    text: str
    call: int | None = None
    api: str = ""
    same: bool = False


def last_writer(target: Step, name: str, view: View, session: Path) -> Written:
    """Return the last call before the target that wrote to a tensor's memory.

    A storage is known again by its device, its address and its size.
    """
    bare = name.removeprefix("self.")
    storage = target.call.storages[view.storage]
    bounds = dump.hull(view)
    if bounds is None or not storage.address:
        return Written(name, f"{bare} has no memory of its own")
    key = (storage.device, storage.address, storage.nbytes)
    earlier = _earlier(session, target.call.sequence)
    for path in earlier[:_MOST_CALLS]:
        try:
            call = dump.read_call(path)
            for number, place in enumerate(call.storages):
                if (place.device, place.address, place.nbytes) == key:
                    changes = [part for part in call.changed if part.storage == number]
                    if any(_touches(part, bounds) for part in changes):
                        same = _same(target, view, path, call, number)
                        return _written(name, call, same=same)
        except CapsuleError:
            continue  # a torn capsule is told of by the list
    if len(earlier) > _MOST_CALLS:
        return Written(name, f"{bare} was written by none of the {_MOST_CALLS} calls before it")
    return Written(name, f"{bare} was written by none of the recorded calls before it")


def _earlier(session: Path, sequence: int) -> list[Path]:
    """Return the capsules before a call, the newest first, by their names alone."""
    found = []
    for path in session.iterdir():
        number = path.name.partition("-")[0]
        if number.isdecimal() and int(number) < sequence:
            found.append((int(number), path))
    return [path for _, path in sorted(found, reverse=True)]


def _touches(change: Change, bounds: tuple[int, int]) -> bool:
    return change.start < bounds[1] and bounds[0] < change.start + change.nbytes


def _same(target: Step, view: View, path: Path, call: Call, number: int) -> bool:
    """Return whether the target found in a tensor what an earlier call left there."""
    import torch

    start, end = dump.hull(view) or (0, 0)
    limited = only_storage(target.call, view.storage)
    given = bytes_of(dump.read_inputs(target.path, limited), start, end)
    if given is None:
        return False
    written = dump.read_outputs(path, only_storage(call, number))
    for piece in written:
        first, last = max(start, piece.start), min(end, piece.start + piece.data.numel())
        if first < last:
            left = piece.data[first - piece.start : last - piece.start]
            if not torch.equal(left, given[first - start : last - start]):
                return False
    return True


def _written(name: str, call: Call, *, same: bool) -> Written:
    who = f"call {call.sequence}, {call.api}"
    text = f"{name.removeprefix('self.')} was written by {who}"
    text += "" if same else ", and by something that is not recorded since"
    return Written(name, text, call.sequence, call.api, same)

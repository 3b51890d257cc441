"""The state of a call that goes on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from kernlib.dump._schema import Status, Yielded  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from kernlib.dump._schema import Call

__all__ = ["State", "with_room", "write_state"]

#: More than the longest state takes, and at the beginning of the file: a write that stays within
#: one page is done or not, whenever the process is killed. To replace the file would be as safe,
#: but takes a millisecond where the file system writes out what is renamed over another file.
_ROOM = 96


class State(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Whether the body of a call runs, and what it has yielded; neighbours in a call as well."""

    status: Status
    yielded: Yielded | None = None


_encode = msgspec.json.Encoder().encode


def _fields(state: State) -> bytes:
    return _encode(state)[1:-1]


def with_room(text: bytes, call: Call) -> tuple[bytes, int]:
    """Return the JSON of a call with room for any state, filled with spaces, and where that is."""
    fields = _fields(State(status=call.status, yielded=call.yielded))
    at = text.index(fields)
    return text[:at] + fields.ljust(_ROOM) + text[at + len(fields) :], at


def write_state(path: str, at: int, state: State) -> None:
    """Write a state into the room that a file has for it, in one step."""
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.pwrite(handle, _fields(state).ljust(_ROOM), at)
    finally:
        os.close(handle)

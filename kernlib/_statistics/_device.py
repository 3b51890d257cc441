"""Memory of the host that a device writes statistics to."""

from __future__ import annotations

import ctypes
from collections import deque
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

from kernlib._statistics._records import as_dict, record_of

if TYPE_CHECKING:
    import torch

    from kernlib._statistics._records import Record, Statistics

__all__ = ["Awaited", "slots_of"]

#: As in include/kernlib/statistics.h.
_SLOTS = 4096
_WORDS = 8
_TICKET = 7


class Awaited:
    """Statistics that the device has been told to write.

    ``address`` is where, ``ticket`` what it writes there last, ``slot`` its place.
    """

    __slots__ = ("_record", "_slots", "address", "slot", "ticket")

    def __init__(self, slots: DeviceSlots, slot: int, ticket: int, record: Record) -> None:
        self._slots = slots
        self._record = record
        self.slot = slot
        self.ticket = ticket
        self.address = ctypes.c_void_p(slots.base + slot * _WORDS * 8)

    def poll(self) -> Statistics | None:
        """Return the statistics once they are there, and give the place back; else None."""
        words = self._slots.words
        if words[self.slot * _WORDS + _TICKET] != self.ticket:
            return None
        found = as_dict(self._record.from_address(self._slots.base + self.slot * _WORDS * 8))
        self.give_back()
        return found

    def give_back(self) -> None:
        """Let the place be used again: nothing is under way to it."""
        self._slots.free.append(self.slot)


class DeviceSlots:
    """Pinned memory with a place for each tensor whose statistics are under way.

    Every device of the process can write there; a place is used again only once what it was
    waiting for has been read. Needs memory of 256 KiB, taken once.
    """

    def __init__(self) -> None:
        import torch

        memory = torch.zeros(_SLOTS * _WORDS, dtype=torch.int64, pin_memory=True)
        self.base = memory.data_ptr()
        self.words = (ctypes.c_int64 * (_SLOTS * _WORDS)).from_address(self.base)
        self.free = deque(range(_SLOTS))  # its ends are safe between threads
        self._memory = memory
        self._tickets = count(1)

    def take(self, dtype: torch.dtype) -> Awaited | None:
        """Return a free place; None if all are waiting for the device."""
        try:
            slot = self.free.popleft()
        except IndexError:
            return None
        return Awaited(self, slot, next(self._tickets), record_of(dtype))


@cache
def slots_of(process: int) -> DeviceSlots:  # noqa: ARG001 - a forked child has its own
    """Return the places of a process: one set for all recorders, kept until its end.

    The device may write there long after a recorder was switched off.
    """
    return DeviceSlots()

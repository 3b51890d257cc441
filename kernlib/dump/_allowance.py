"""Keeps a session within its part of the folder's budget."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernlib.dump._alive import this_process
from kernlib.dump._ended import Room
from kernlib.dump._neighbours import Neighbours, write_usage
from kernlib.dump._share import Others, Usage, limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernlib.dump._budget import Budget, Ledger

__all__ = ["Allowance"]

_PERIOD = 1.0
#: Looking takes at most this part of the time, however slow the folder is.
_DUTY = 1 / 50


@dataclass(slots=True)
class _Part:
    """One of what is limited, calls or bytes: the folder's total, this session's limit and use."""

    field: str
    total: int
    limit: int = 0
    used: int = 0
    need: int = 0

    @property
    def held(self) -> int:
        """What the others are told that this session may come to."""
        return max(self.limit, self.used)

    def missing(self, others: Others) -> tuple[int, int]:
        """Return how much must go elsewhere for what is needed, and for some calls after it."""
        if not self.need:
            return 0, 0
        free = self.total - self.held - others.held
        step = max(self.need, self.total // (others.active + 1) // 4)
        return max(0, self.need - free), max(0, step - free)


class Allowance:
    """Sets the limits of a session's ledger by what the other sessions of the folder leave.

    A look at the others costs file accesses, so there is none while the session has room and the
    last one was less than a second ago; one that brought nothing is not repeated before.
    """

    def __init__(
        self,
        session_dir: str,
        budget: Budget,
        ledger: Ledger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = session_dir
        self._ledger = ledger
        self._clock = clock
        self._here = this_process()
        self._neighbours = Neighbours(session_dir, self._here, clock)
        totals = {"calls": budget.max_calls, "bytes": budget.max_bytes}
        self._parts = [_Part(field, total) for field, total in totals.items() if total is not None]
        self._evidence = budget.max_bytes // 2 if budget.max_bytes is not None else None
        self._beat = 0
        self._next = self._next_in_need = 0.0
        self._apply()
        write_usage(session_dir, self._usage(), create=True)

    @property
    def cleared(self) -> int:
        """How many capsules of ended sessions made room for this one."""
        return self._neighbours.cleared

    def review(self, nbytes: int, *, calls: int) -> None:
        """Bring the limits up to date before so much more is asked of the ledger."""
        begin = self._clock()
        needy = self._ledger.lacks(nbytes, calls=calls)
        if begin < (self._next_in_need if needy else self._next):
            return
        self._measure(nbytes if needy else 0, calls if needy else 0)
        self._neighbours.look()
        missing = {part.field: part.missing(self._others(part)) for part in self._parts}
        least, wanted = map(Room, missing.get("calls", (0, 0)), missing.get("bytes", (0, 0)))
        if any(wanted):
            self._neighbours.clear(least, wanted, self._evidence)
        before = [part.limit for part in self._parts]
        for part in self._parts:
            part.limit = limit(part.total, part.held, self._others(part), part.need)
        self._apply()
        with contextlib.suppress(OSError):  # the call that is to be recorded will tell of it
            write_usage(self._folder, self._usage(hungry=self._ledger.lacks(nbytes, calls=calls)))
        end = self._clock()
        self._next = end + max(_PERIOD, (end - begin) / _DUTY)
        grew = before != [part.limit for part in self._parts]
        self._next_in_need = end if grew else self._next

    def close(self) -> None:
        """Tell the others what the session really holds, and that it takes no more."""
        for part in self._parts:
            part.limit = 0
        self._apply()
        self._measure(0, 0)
        write_usage(self._folder, self._usage(ended=True))
        self._next = self._next_in_need = 0.0

    def _others(self, part: _Part) -> Others:
        return self._neighbours.others(part.field, part.total)

    def _measure(self, nbytes: int, calls: int) -> None:
        """Note what is used, and what is needed beyond the limits for so much more."""
        for part in self._parts:
            is_calls = part.field == "calls"
            part.used = self._ledger.calls if is_calls else self._ledger.nbytes
            part.need = max(0, part.used + (calls if is_calls else nbytes) - part.limit)

    def _apply(self) -> None:
        """Hand the limits to the ledger."""
        for part in self._parts:
            if part.field == "calls":
                self._ledger.max_calls = part.limit
            else:
                self._ledger.max_bytes = part.limit

    def _usage(self, *, hungry: bool = False, ended: bool = False) -> Usage:
        self._beat += 1
        held = {"calls": self._ledger.calls, "bytes": self._ledger.nbytes}
        held |= {part.field: part.held for part in self._parts}
        return Usage(
            calls=held["calls"],
            bytes=held["bytes"],
            hungry=hungry,
            ended=ended,
            beat=self._beat,
            **self._here._asdict(),
        )

"""Decides which capsules a session may keep; does no I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernlib.dump._kinds import Kinds

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["Budget", "Ledger"]

#: Capsules that one call removes at most where it is not itself what needs the room: a session
#: whose limits were lowered shrinks over several calls, so that none of them waits for long.
_MOST_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much a dump folder may hold; None is without limit.

    ``max_calls`` counts finished calls: those running, and pinned ones, come on top, so that a
    long-running outer call or many living receivers never push out the calls that matter.
    ``max_per_kind`` counts them too, of one kind (an api with the same shapes) in one session.
    ``max_bytes`` counts everything.
    """

    max_calls: int | None = None
    max_bytes: int | None = None
    max_per_kind: int | None = None
    keep: str = "last"


@dataclass(slots=True)
class _Entry:
    nbytes: int
    kind: Hashable
    finished: bool = False


class Ledger:
    """The capsules of a session and the room they take; for one thread at a time.

    A call over the quota of its kind takes the place of the oldest of its kind. Where the session
    has no room, the oldest of the most numerous kind goes (of the one with most bytes, where bytes
    are what lacks), so that a hot api never pushes out a rare one.

    ``refused``, ``evicted`` and ``over_quota`` count the calls that were lost, ``refused_bytes``
    what was not written for lack of room.
    """

    def __init__(self, budget: Budget) -> None:
        self._quota = budget.max_per_kind
        self._first = budget.keep == "first"
        self.max_calls = budget.max_calls
        self.max_bytes = budget.max_bytes
        self._entries: dict[int, _Entry] = {}
        self._finished = Kinds()
        self._pinned: set[int] = set()
        # Receivers die wherever the garbage collector runs, so unpinning only leaves a note.
        self._unpinned: deque[int] = deque()
        self._begun = 0
        self._begun_of: dict[Hashable, int] = {}
        self.nbytes = 0
        self.refused = self.refused_bytes = self.evicted = self.over_quota = 0

    @property
    def calls(self) -> int:
        """How many calls count against ``max_calls``."""
        return self._begun if self._first else len(self._finished)

    def lacks(self, nbytes: int, *, calls: int) -> bool:
        """Return whether so much more is over the limits as they are now."""
        return (calls > 0 and self._over_calls(calls) > 0) or self._over_bytes(nbytes) > 0

    def admit(self, sequence: int, nbytes: int, kind: Hashable = None) -> list[int] | None:
        """Make room for a call; return the calls to evict for it, or None if it must be dropped.

        A call of no kind has no quota.
        """
        self._settle_pins()
        limited = kind is not None and bool(self._quota)
        if limited and self._first and self._begun_of.get(kind, 0) >= (self._quota or 0):
            self.over_quota += 1
            return None
        if not self._may_grow(nbytes, calls=1):
            self.refused += 1
            self.refused_bytes += nbytes
            return None
        self._begun += 1
        if limited and self._first:
            self._begun_of[kind] = self._begun_of.get(kind, 0) + 1
        victims = self._over_quota(kind) if limited else []
        victims += self._victims(kind, nbytes, calls=1)
        self._entries[sequence] = _Entry(nbytes, kind)
        self.nbytes += nbytes
        return victims

    def extend(self, sequence: int, nbytes: int) -> list[int] | None:
        """Make more room for an admitted call, as ``admit`` does."""
        self._settle_pins()
        if not self._may_grow(nbytes, calls=0):
            self.refused_bytes += nbytes
            return None
        entry = self._entries[sequence]
        victims = self._victims(entry.kind, nbytes, calls=0)
        entry.nbytes += nbytes
        self.nbytes += nbytes
        return victims

    def finish(self, sequence: int, nbytes: int) -> None:
        """Note that a call ended, and what its capsule really takes; the last word counts."""
        entry = self._entries[sequence]
        if sequence in self._finished:
            self._finished.remove(sequence)
        self.nbytes += nbytes - entry.nbytes
        entry.nbytes = nbytes
        entry.finished = True
        if sequence not in self._pinned:
            self._finished.add(entry.kind, sequence, nbytes)

    def forget(self, sequence: int) -> None:
        """Give back the room of a call whose capsule could not be written."""
        if sequence in self._finished:
            self._finished.remove(sequence)
        entry = self._entries.pop(sequence, None)
        if entry is not None:
            self.nbytes -= entry.nbytes
        self._pinned.discard(sequence)

    def pin(self, sequence: int) -> None:
        """Keep a call until it is unpinned."""
        if sequence in self._entries:
            self._pinned.add(sequence)
            if sequence in self._finished:
                self._finished.remove(sequence)

    def unpin(self, sequence: int) -> None:
        """Let a call go with the others; safe to be called from a finalizer."""
        self._unpinned.append(sequence)

    def _settle_pins(self) -> None:
        while self._unpinned:
            sequence = self._unpinned.popleft()
            if sequence in self._pinned:
                self._pinned.discard(sequence)
                entry = self._entries[sequence]
                if entry.finished:
                    self._finished.add(entry.kind, sequence, entry.nbytes)

    def _over_bytes(self, nbytes: int) -> int:
        return self.nbytes + nbytes - self.max_bytes if self.max_bytes is not None else 0

    def _over_calls(self, calls: int) -> int:
        return self.calls + calls - self.max_calls if self.max_calls is not None else 0

    def _may_grow(self, nbytes: int, *, calls: int) -> bool:
        """Return whether there is room, or would be; where there is none nothing is to be lost."""
        if self._first:
            return not self.lacks(nbytes, calls=calls)
        return self._over_bytes(nbytes) <= self._finished.nbytes

    def _over_quota(self, kind: Hashable) -> list[int]:
        victims = []
        while self._quota and self._finished.count(kind) >= self._quota:
            victims.append(self._evict(self._finished.oldest(kind)))
        self.over_quota += len(victims)
        return victims

    def _victims(self, kind: Hashable, nbytes: int, *, calls: int) -> list[int]:
        """Evict until as much more fits; a session that has long been over takes several calls."""
        victims: list[int] = []
        held = self.nbytes
        while self._finished and not self._first:
            if len(victims) >= _MOST_AT_ONCE and held - self.nbytes >= nbytes:
                break
            if self._over_calls(calls) > 0:
                victim = self._finished.most_numerous(kind)
            elif self._over_bytes(nbytes) > 0:
                victim = self._finished.heaviest(kind, nbytes)
            else:
                break
            victims.append(self._evict(victim))
        self.evicted += len(victims)
        return victims

    def _evict(self, sequence: int) -> int:
        self._finished.remove(sequence)
        self.nbytes -= self._entries.pop(sequence).nbytes
        return sequence

"""Decides which capsules a session may keep; does no I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

__all__ = ["Budget", "Ledger"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much a session may hold; None is without limit.

    ``max_calls`` counts finished calls: those running, and pinned ones, come on top, so that a
    long-running outer call or many living receivers never push out the calls that matter.
    ``max_bytes`` counts everything.
    """

    max_calls: int | None = None
    max_bytes: int | None = None
    keep: str = "last"


@dataclass(slots=True)
class _Entry:
    nbytes: int
    finished: bool = False


class Ledger:
    """The capsules of a session and the room they take; for one thread at a time."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._entries: dict[int, _Entry] = {}
        self._evictable: dict[int, None] = {}
        self._pinned: set[int] = set()
        # Receivers die wherever the garbage collector runs, so unpinning only leaves a note.
        self._unpinned: deque[int] = deque()
        self._begun = 0
        self.nbytes = 0

    def admit(self, sequence: int, nbytes: int) -> list[int] | None:
        """Make room for a call; return the calls to evict for it, or None if it must be dropped."""
        self._settle_pins()
        budget = self._budget
        if budget.keep == "first":
            if budget.max_calls is not None and self._begun >= budget.max_calls:
                return None
            if budget.max_bytes is not None and self.nbytes + nbytes > budget.max_bytes:
                return None
            victims: list[int] = []
        else:
            found = self._victims(nbytes, new_calls=1)
            if found is None:
                return None
            victims = found
        self._evict(victims)
        self._begun += 1
        self._entries[sequence] = _Entry(nbytes)
        self.nbytes += nbytes
        return victims

    def extend(self, sequence: int, nbytes: int) -> list[int] | None:
        """Make more room for an admitted call, as ``admit`` does."""
        self._settle_pins()
        if self._budget.keep == "first":
            limit = self._budget.max_bytes
            if limit is not None and self.nbytes + nbytes > limit:
                return None
            victims: list[int] = []
        else:
            found = self._victims(nbytes, new_calls=0)
            if found is None:
                return None
            victims = found
        self._evict(victims)
        self._entries[sequence].nbytes += nbytes
        self.nbytes += nbytes
        return victims

    def finish(self, sequence: int, nbytes: int) -> None:
        """Note that a call ended, and what its capsule really takes."""
        entry = self._entries[sequence]
        self.nbytes += nbytes - entry.nbytes
        entry.nbytes = nbytes
        entry.finished = True
        if sequence not in self._pinned:
            self._evictable[sequence] = None

    def forget(self, sequence: int) -> None:
        """Give back the room of a call whose capsule could not be written."""
        entry = self._entries.pop(sequence, None)
        if entry is not None:
            self.nbytes -= entry.nbytes
        self._evictable.pop(sequence, None)
        self._pinned.discard(sequence)

    def pin(self, sequence: int) -> None:
        """Keep a call until it is unpinned."""
        if sequence in self._entries:
            self._pinned.add(sequence)
            self._evictable.pop(sequence, None)

    def unpin(self, sequence: int) -> None:
        """Let a call go with the others; safe to be called from a finalizer."""
        self._unpinned.append(sequence)

    def _settle_pins(self) -> None:
        settled = False
        while self._unpinned:
            sequence = self._unpinned.popleft()
            if sequence in self._pinned:
                self._pinned.discard(sequence)
                if self._entries[sequence].finished:
                    self._evictable[sequence] = None
                    settled = True
        if settled:
            self._evictable = dict.fromkeys(sorted(self._evictable))

    def _victims(self, nbytes: int, *, new_calls: int) -> list[int] | None:
        budget = self._budget
        over_calls = 0
        if budget.max_calls is not None:
            over_calls = len(self._evictable) + new_calls - budget.max_calls
        over_bytes = 0
        if budget.max_bytes is not None:
            over_bytes = self.nbytes + nbytes - budget.max_bytes
        victims = []
        for sequence in self._evictable:
            if over_calls <= 0 and over_bytes <= 0:
                break
            victims.append(sequence)
            over_calls -= 1
            over_bytes -= self._entries[sequence].nbytes
        # Too little to gain: better to keep what is there than to lose it for nothing.
        return None if over_bytes > 0 else victims

    def _evict(self, victims: list[int]) -> None:
        for sequence in victims:
            del self._evictable[sequence]
            self.nbytes -= self._entries.pop(sequence).nbytes

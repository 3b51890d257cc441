"""Finished capsules by kind, and which goes first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["Kinds"]


class _Kind:
    """Capsules of one api with the same shapes, oldest first, with their sizes."""

    __slots__ = ("members", "nbytes")

    def __init__(self) -> None:
        self.members: dict[int, int] = {}
        self.nbytes = 0


class Kinds:
    """Capsules that may be evicted, so ordered that none of a hot kind pushes out a rare one.

    Every step but ``heaviest`` takes the same time whatever is held: kinds are kept by their
    number of members, and that number changes by one only.
    """

    def __init__(self) -> None:
        self._kinds: dict[Hashable, _Kind] = {}
        self._by_count: dict[int, dict[Hashable, None]] = {}
        self._most = 0
        self._of: dict[int, Hashable] = {}
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._of

    def count(self, kind: Hashable) -> int:
        """Return how many capsules of a kind there are."""
        found = self._kinds.get(kind)
        return len(found.members) if found is not None else 0

    def add(self, kind: Hashable, sequence: int, nbytes: int) -> None:
        """Add a capsule; one that is older than the last of its kind takes its place in the row."""
        group = self._kinds.setdefault(kind, _Kind())
        late = bool(group.members) and sequence < next(reversed(group.members))
        group.members[sequence] = nbytes
        if late:
            group.members = dict(sorted(group.members.items()))
        group.nbytes += nbytes
        self.nbytes += nbytes
        self._of[sequence] = kind
        self._shift(kind, len(group.members) - 1, len(group.members))

    def remove(self, sequence: int) -> None:
        """Take a capsule out."""
        kind = self._of.pop(sequence)
        group = self._kinds[kind]
        nbytes = group.members.pop(sequence)
        group.nbytes -= nbytes
        self.nbytes -= nbytes
        self._shift(kind, len(group.members) + 1, len(group.members))
        if not group.members:
            del self._kinds[kind]

    def oldest(self, kind: Hashable) -> int:
        """Return the oldest capsule of a kind."""
        return next(iter(self._kinds[kind].members))

    def most_numerous(self, joining: Hashable) -> int:
        """Return the oldest capsule of the kind with the most, once one more has joined its own.

        Among equals they take turns. Where there is but one of every kind, and the one that joins
        is of another, it is the one that has been alone for longest.
        """
        if self.count(joining) == self._most:
            return self.oldest(joining)
        return self.oldest(next(iter(self._by_count[self._most])))

    def heaviest(self, joining: Hashable, nbytes: int) -> int:
        """Return the oldest capsule of the kind with most bytes, once so many have joined.

        The last one of its kind goes only where ``most_numerous`` would have it go.
        """
        own = self._kinds.get(joining)
        several = [group for group in self._kinds.values() if len(group.members) > 1]
        if not several:
            return self.most_numerous(joining)
        heaviest = max(several, key=lambda group: group.nbytes)
        if own is not None and own.nbytes + nbytes > heaviest.nbytes:
            heaviest = own
        return next(iter(heaviest.members))

    def _shift(self, kind: Hashable, before: int, after: int) -> None:
        if before:
            shelf = self._by_count[before]
            del shelf[kind]
            if not shelf:
                del self._by_count[before]
        if after:
            self._by_count.setdefault(after, {})[kind] = None
        if after > self._most or self._most not in self._by_count:
            self._most = after

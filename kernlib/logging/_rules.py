"""Which calls of an api are recorded, by count."""

from __future__ import annotations

from collections import OrderedDict
from itertools import count
from typing import TYPE_CHECKING, Any

from kernlib.logging._shapes import shapes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernlib.config import Config
    from kernlib.logging._call import RecordedApi

__all__ = ["CallRules"]

#: Pairs of an api and shapes that are remembered; all of them take about a megabyte.
_MOST_SHAPES = 4096


class _Counters(dict[str, "Iterator[int]"]):
    """A counter for each api, made at its first call; counting is one step for all threads."""

    def __missing__(self, api: str) -> Iterator[int]:
        return self.setdefault(api, count())


class CallRules:
    """Decides call by call what is recorded; asked once, before anything else is done.

    The rules stand in a row, and each counts only what those before it let through: none before
    call ``from_call``, then every ``every``-th of an api, then the first ``first_per_shape`` of
    an api with the same shapes. Set-up calls always pass: without them no later call on their
    receiver could be replayed.

    ``skipped`` counts the calls left out; ``forgotten`` the shapes that made room for others in
    the bounded table of ``first_per_shape``: should one come again, it is a new one.
    """

    def __init__(self, config: Config) -> None:
        self._from_call = config.from_call
        self._every = config.every
        self._first = config.first_per_shape
        self._calls = _Counters()
        self._seen: OrderedDict[tuple[str, int], int] = OrderedDict()
        self.skipped = 0
        self.forgotten = 0

    @classmethod
    def of(cls, config: Config) -> CallRules | None:
        """Return the rules of a configuration; None, which costs nothing, if there are none."""
        rules = (config.from_call, config.every, config.first_per_shape)
        return cls(config) if rules != (1, 1, 0) else None

    def admit(
        self, sequence: int, api: RecordedApi, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        """Return whether to record a call; count it if not."""
        if api.setup or (
            sequence >= self._from_call
            and (self._every == 1 or next(self._calls[api.name]) % self._every == 0)
            and (not self._first or self._is_new((api.name, shapes_of(args, kwargs))))
        ):
            return True
        self.skipped += 1
        return False

    def _is_new(self, key: tuple[str, int]) -> bool:
        """Return whether fewer calls than allowed had these shapes.

        Without a lock, which a forked child could inherit closed: every step on the table is one
        for all threads, and the worst that two at once can do is to record one call more.
        """
        seen = self._seen
        times = seen.get(key, 0)
        if times < self._first:
            seen[key] = times + 1
        if times:
            try:
                seen.move_to_end(key)
            except KeyError:
                seen[key] = times  # another thread has just forgotten it
        elif len(seen) > _MOST_SHAPES:
            seen.popitem(last=False)
            self.forgotten += 1
        return times < self._first

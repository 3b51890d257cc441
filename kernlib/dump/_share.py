"""How much of a folder's budget one session may take."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from kernlib.dump._alive import Identity

__all__ = ["Others", "Usage", "limit"]

_Amount = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a session tells the others, in its ``usage.json``.

    ``calls`` (finished, not pinned) and ``bytes`` are what it may come to before it looks again;
    it never holds more. ``hungry`` says that it would take more, ``ended`` that it will take
    nothing more and the numbers are what it really holds, of which ``evidence`` bytes are to
    stay. ``beat`` changes whenever it looks.
    """

    calls: _Amount
    bytes: _Amount
    hungry: bool = False
    ended: bool = False
    evidence: _Amount = 0
    beat: _Amount = 0
    table: str = ""
    pid: _Amount = 0
    born: _Amount = 0

    @property
    def process(self) -> Identity:
        """The process that records the session."""
        return Identity(self.table, self.pid, self.born)


class Others(NamedTuple):
    """The other sessions of a folder, in calls or in bytes.

    ``held`` is what they may come to, ``active`` how many of them record, ``waiting`` whether
    one of these has less than a fair share and would take more.
    """

    held: int
    active: int
    waiting: bool


def limit(total: int, mine: int, others: Others, need: int) -> int:
    """Return what a session may come to, which it tells the others before it uses it.

    A session that needs more takes of what is free: what it needs, at least a quarter of a fair
    share (so that it need not look again soon), but no more than a fair share while others wait for
    theirs. Where nothing is free, one that has more than that gives way. Each always has an eighth
    of a fair share: nobody else's calls can keep its own crash from being recorded.

    Sessions look without a lock, so the sum of all limits may exceed the total: by an eighth of
    it for the shares that everybody has, and, until the next look, by one call or a quarter of a
    fair share for every session that looked in the same moment.
    """
    fair = total // (others.active + 1)
    free = total - mine - others.held
    wanted = mine
    if mine > fair and free <= 0:
        wanted = fair if others.waiting else max(fair, mine + free)
    elif need > 0 and free > 0:
        wanted = mine + min(free, max(need, fair // 4))
        if others.waiting:
            wanted = max(mine, min(wanted, fair))
    return max(wanted, min(total, max(1, fair // 8)))

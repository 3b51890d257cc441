"""The other sessions of a dump folder."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

import msgspec

from kernlib.dump._alive import is_gone
from kernlib.dump._ended import Ended, Freed
from kernlib.dump._share import Others, Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernlib.dump._alive import Identity
    from kernlib.dump._ended import Room

__all__ = ["Neighbours", "write_usage"]

_FILE = "usage.json"
#: The file never grows, so writing it anew needs no room on a full disk.
_SIZE = 320
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: A session of another machine that has said nothing for so long has no fair share.
_QUIET_SECONDS = 60.0
#: A session that would take more says so every second; one that stopped need not be fed.
_PATIENCE_SECONDS = 5.0
#: How long a call may be held up by listing what ended sessions hold; a later one goes on.
_SCAN_SECONDS = 0.02
#: Capsules that one call removes at most where it does not itself need the room.
_MOST_AT_ONCE = 16

_decoder = msgspec.json.Decoder(Usage)
_encode = msgspec.json.Encoder().encode


def write_usage(session_dir: str, usage: Usage, *, create: bool = False) -> None:
    """Write a session's ``usage.json`` in one step, in place."""
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    handle = os.open(f"{session_dir}/{_FILE}", flags, 0o600)
    try:
        os.pwrite(handle, _encode(usage).ljust(_SIZE - 1) + b"\n", 0)
    finally:
        os.close(handle)


class _Neighbour:
    """Another session: what it said last, and when that was news."""

    def __init__(self, path: str, usage: Usage, news: float) -> None:
        self.path = path
        self.usage = usage
        self.news = news
        self._content: Ended | None = None

    def content(self) -> Ended:
        """Return what the session, which has ended, holds."""
        if self._content is None:
            self._content = Ended(self.path)
        return self._content

    def heard(self, usage: Usage, now: float) -> None:
        """Take what the session, or whoever removes something of it, says now."""
        if usage != self.usage:
            self.usage, self.news = usage, now
            self._content = self._content if usage.ended else None


class Neighbours:
    """Reads what the others say of themselves, and removes what ended ones left.

    A session has ended if it says so, or if its process is gone, which can only be known of
    processes of the same host and container: the sessions of others are counted and left alone.
    ``cleared`` counts the capsules of ended sessions that this one removed.
    """

    def __init__(
        self, session_dir: str, here: Identity, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._root, _, self._own = session_dir.rpartition("/")
        self._here = here
        self._clock = clock
        self._all: dict[str, _Neighbour] = {}
        self.cleared = 0

    def look(self) -> None:
        """Read all others; a folder that cannot be read leaves what was known."""
        now = self._clock()
        with contextlib.suppress(OSError):
            with os.scandir(self._root) as found:
                names = {item.name for item in found if item.is_dir(follow_symlinks=False)}
            for gone in self._all.keys() - names:
                del self._all[gone]
            for name in names - {self._own}:
                self._read(name, now)
        for neighbour in self._oldest_first():
            usage = neighbour.usage
            if not usage.ended and is_gone(usage.process, self._here):
                self._publish(neighbour)
                if self._clock() - now > _SCAN_SECONDS:
                    break

    def others(self, field: str, total: int) -> Others:
        """Return the others in ``calls`` or in ``bytes`` of a total."""
        now = self._clock()
        recording = [neighbour for neighbour in self._all.values() if self._records(neighbour, now)]
        fair = total // (len(recording) + 1)
        held = sum(getattr(neighbour.usage, field) for neighbour in self._all.values())
        waiting = any(
            neighbour.usage.hungry
            and getattr(neighbour.usage, field) < fair
            and now - neighbour.news < _PATIENCE_SECONDS
            for neighbour in recording
        )
        return Others(held, len(recording), waiting)

    def clear(self, least: Room, wanted: Room, evidence_limit: int | None) -> None:
        """Remove what ended sessions left, that of the oldest first, until so much is free.

        What is ``wanted`` beyond the ``least`` is left to a later call where it takes long.
        Evidence goes last, and only where all of it together is over its own limit; that of the
        newest session stays in any case.
        """
        begin, freed = self._clock(), Freed()

        def enough(so_far: Freed) -> bool:
            long = so_far.capsules >= _MOST_AT_ONCE or self._clock() - begin > _SCAN_SECONDS
            return so_far.room.holds(wanted) or (long and so_far.room.holds(least))

        ended = [neighbour for neighbour in self._oldest_first() if neighbour.usage.ended]
        for neighbour in ended:
            if enough(freed):
                return
            usage = neighbour.usage
            if usage.calls or usage.bytes != usage.evidence or not usage.bytes:
                freed = self._noted(neighbour, freed, neighbour.content().remove(enough, freed))
        crashed = [neighbour for neighbour in ended if neighbour.usage.evidence]
        surplus = sum(neighbour.usage.evidence for neighbour in crashed) - (evidence_limit or 0)
        for neighbour in crashed[:-1] if evidence_limit is not None else ():
            if surplus <= 0 or enough(freed):
                return
            surplus -= neighbour.usage.evidence
            freed = self._noted(neighbour, freed, neighbour.content().remove_evidence(freed))

    def _read(self, name: str, now: float) -> None:
        path = f"{self._root}/{name}"
        try:
            usage, age = _read_usage(path)
        except (OSError, msgspec.MsgspecError):
            return  # no session, of an older kernlib, or caught while it is written
        known = self._all.get(name)
        if known is None:
            self._all[name] = _Neighbour(path, usage, now - age)
        elif usage.ended or not known.usage.ended or not is_gone(usage.process, self._here):
            known.heard(usage, now)  # else its file, which is not ours to write, is behind

    def _records(self, neighbour: _Neighbour, now: float) -> bool:
        usage = neighbour.usage
        known = usage.table == self._here.table or now - neighbour.news < _QUIET_SECONDS
        return known and not usage.ended

    def _publish(self, neighbour: _Neighbour) -> None:
        """Say in the place of an ended session what it really holds."""
        with contextlib.suppress(OSError):
            content = neighbour.content()
            neighbour.usage = msgspec.structs.replace(
                neighbour.usage, calls=content.calls, bytes=content.nbytes,
                evidence=content.evidence, hungry=False, ended=True,
            )  # fmt: skip
            write_usage(neighbour.path, neighbour.usage)

    def _noted(self, neighbour: _Neighbour, before: Freed, freed: Freed) -> Freed:
        """Count and tell what was removed of a session."""
        self.cleared += freed.capsules - before.capsules
        self._publish(neighbour)
        neighbour.content().remove_empty()
        return freed

    def _oldest_first(self) -> list[_Neighbour]:
        """Return the others by their names, which begin with the time they began at."""
        return [self._all[name] for name in sorted(self._all)]


def _read_usage(session_dir: str) -> tuple[Usage, float]:
    """Return what a session says, and how old that is by the clocks of both machines."""
    handle = os.open(f"{session_dir}/{_FILE}", _READ)
    try:
        usage = _decoder.decode(os.read(handle, _SIZE))
        return usage, max(0.0, time.time() - os.fstat(handle).st_mtime)
    finally:
        os.close(handle)

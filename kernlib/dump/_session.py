"""Writes the folder of one recording process, within its budget."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import threading
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import msgspec

from kernlib.dump._allowance import Allowance
from kernlib.dump._budget import Budget, Ledger
from kernlib.dump._builds import write_build
from kernlib.dump._capsule import CapsuleWriter, Provision
from kernlib.dump._files import FOLDER_MODE, replace_file
from kernlib.dump._removal import remove_capsule
from kernlib.dump._reuse import Spares
from kernlib.dump._schema import Dropped, Session

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping
    from pathlib import Path

    from kernlib.dump._schema import Process

__all__ = ["SessionWriter", "utc_now"]

_UNSAFE = re.compile(r"[^A-Za-z0-9_]+", re.ASCII)
_MAX_HOST = 60
_REWRITE_SECONDS = 1.0

_encode = msgspec.json.Encoder().encode


def utc_now() -> str:
    """Return the present time, UTC, as it stands in a capsule."""
    return datetime.now(timezone.utc).isoformat()


class SessionWriter:
    """One session's folder, its builds, and the room for its capsules; safe between threads.

    ``budget`` is the dump folder's, for all sessions in it. ``skipped`` is how many calls were
    kept from the session before it was asked, as far as whoever counts them has told it.
    """

    def __init__(self, dump_dir: Path, process: Process, budget: Budget | None = None) -> None:
        self.path = _new_folder(dump_dir, process)
        self._folder = str(self.path)
        self._session = Session(id=self.path.name, started_at=utc_now(), process=process)
        self._lock = threading.RLock()
        budget = budget or Budget()
        self._ledger = Ledger(budget)
        self._spares = Spares(self._folder)
        self._provision = Provision(self._release, self._extend, self._spares)
        self._capsules: dict[int, str] = {}
        self._builds: set[str] = set()
        self._errors = 0
        self._left = False
        self.skipped = 0
        self._written = time.monotonic()
        try:
            self._allowance = Allowance(self._folder, budget, self._ledger)
            replace_file(self._folder, "session.json", (_encode(self._session),))
        except OSError:
            # On a full disk every call tries anew; each attempt would leave a folder.
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    @property
    def id(self) -> str:
        """The folder's name."""
        return self._session.id

    @property
    def lost(self) -> bool:
        """Whether somebody has removed the session's folder."""
        return self._left or not os.path.isdir(self._folder)  # noqa: PTH112 - a text, not a Path

    def begin(
        self, sequence: int, api: str, nbytes: int, kind: Hashable = None
    ) -> CapsuleWriter | None:
        """Return the writer of a call's capsule, or None, counted, if the budget has no room.

        Calls of one kind share a quota; a call of no kind has none.
        """
        with self._lock:
            self._allowance.review(nbytes, calls=1)
            victims = self._ledger.admit(sequence, nbytes, kind)
            self._tell()
            if victims is None:
                return None
            old = self._taken(victims)
            last = old.pop() if old else None
            writer = CapsuleWriter(self._folder, sequence, api, self._provision, last)
            self._capsules[sequence] = writer.path
        for folder in old:
            remove_capsule(folder)
        return writer

    def pin(self, sequence: int) -> None:
        """Keep a call that set up a living receiver."""
        with self._lock:
            self._ledger.pin(sequence)

    def unpin(self, sequence: int) -> None:
        """Let a set-up call go with the others; may be called from a finalizer."""
        self._ledger.unpin(sequence)

    def add_build(
        self, key: str, record: bytes, manifest: str, sources: Mapping[str, bytes]
    ) -> None:
        """Write a build's record, manifest and sources, once a key."""
        if key in self._builds:
            return
        with self._lock:  # two threads may meet a kernel at once, and both need it written
            if key not in self._builds:
                write_build(self._folder, key, record, manifest, sources)
                self._builds.add(key)

    def count_error(self) -> None:
        """Count a call that could not be recorded."""
        with self._lock:
            self._errors += 1
            self._tell()

    def leave(self) -> None:
        """Write nothing more: by now another session may have the path that was this one's."""
        self._left = True

    def close(self) -> None:
        """Write the last counts, and leave what the session does not hold to others."""
        with self._lock:
            if not self._left:
                self._rewrite()
                self._allowance.close()
                self._spares.close()

    def _tell(self) -> None:
        # Once a second is enough: after a crash the counts are a little old, not wrong in kind.
        if not self._left and time.monotonic() - self._written >= _REWRITE_SECONDS:
            with contextlib.suppress(OSError):
                self._rewrite()

    def _rewrite(self) -> None:
        self._written = time.monotonic()
        ledger = self._ledger
        dropped = Dropped(
            calls=ledger.refused,
            bytes=ledger.refused_bytes,
            errors=self._errors,
            evicted=ledger.evicted,
            over_quota=ledger.over_quota,
            skipped=self.skipped,
            cleared=self._allowance.cleared,
        )
        if dropped != self._session.dropped:
            self._session = msgspec.structs.replace(self._session, dropped=dropped)
            replace_file(self._folder, "session.json", (_encode(self._session),))

    def _extend(self, sequence: int, nbytes: int) -> bool:
        with self._lock:
            if self._left:
                return False
            self._allowance.review(nbytes, calls=0)
            victims = self._ledger.extend(sequence, nbytes)
            self._tell()
            folders = self._taken(victims or [])
        for folder in folders:
            remove_capsule(folder)
        return victims is not None

    def _release(self, sequence: int, nbytes: int | None) -> None:
        with self._lock:
            if nbytes is None:
                self._ledger.forget(sequence)
                self._capsules.pop(sequence, None)
            else:
                self._ledger.finish(sequence, nbytes)

    def _taken(self, victims: list[int]) -> list[str]:
        return [self._capsules.pop(sequence) for sequence in victims]


def _new_folder(dump_dir: Path, process: Process) -> Path:
    dump_dir.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    now = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    host = _UNSAFE.sub("_", process.host)[:_MAX_HOST]
    name = f"{now}-{host}-{process.pid}"
    if process.rank is not None:
        name += f"-r{process.rank}"
    for again in range(1, 1000):
        path = dump_dir / (name if again == 1 else f"{name}.{again}")
        try:
            path.mkdir(mode=FOLDER_MODE)
        except FileExistsError:
            continue
        return path.absolute()
    raise FileExistsError(f"{dump_dir / name}: a thousand sessions in one second")

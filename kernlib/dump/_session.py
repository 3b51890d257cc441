"""Writes the folder of one recording process, within its budget."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import msgspec

from kernlib.dump._budget import Budget, Ledger
from kernlib.dump._builds import write_build
from kernlib.dump._capsule import CapsuleWriter
from kernlib.dump._files import FOLDER_MODE, replace_file
from kernlib.dump._schema import Dropped, Session

if TYPE_CHECKING:
    from collections.abc import Mapping
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
    """One session's folder, its builds, and the room for its capsules; safe between threads."""

    def __init__(self, dump_dir: Path, process: Process, budget: Budget | None = None) -> None:
        self.path = _new_folder(dump_dir, process)
        self._folder = str(self.path)
        self._session = Session(id=self.path.name, started_at=utc_now(), process=process)
        self._lock = threading.RLock()
        self._ledger = Ledger(budget or Budget())
        self._capsules: dict[int, str] = {}
        self._builds: set[str] = set()
        self._dropped = [0, 0, 0]
        self._written = time.monotonic()
        replace_file(self._folder, "session.json", (_encode(self._session),))

    @property
    def id(self) -> str:
        """The folder's name."""
        return self._session.id

    def begin(self, sequence: int, api: str, nbytes: int) -> CapsuleWriter | None:
        """Return the writer of a call's capsule, or None, counted, if the budget has no room."""
        with self._lock:
            victims = self._ledger.admit(sequence, nbytes)
            if victims is None:
                self._drop(calls=1, nbytes=nbytes)
                return None
            writer = CapsuleWriter(self._folder, sequence, api, self._release, self._extend)
            self._capsules[sequence] = writer.path
            folders = self._taken(victims)
        _remove(folders)
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
        write_build(self._folder, key, record, manifest, sources)
        self._builds.add(key)

    def count_error(self) -> None:
        """Count a call that could not be recorded."""
        with self._lock:
            self._drop(errors=1)

    def close(self) -> None:
        """Write the last counts."""
        with self._lock:
            self._rewrite()

    def _drop(self, *, calls: int = 0, nbytes: int = 0, errors: int = 0) -> None:
        for at, count in enumerate((calls, nbytes, errors)):
            self._dropped[at] += count
        # Once a second is enough: after a crash the counts are a little old, not wrong in kind.
        if time.monotonic() - self._written >= _REWRITE_SECONDS:
            with contextlib.suppress(OSError):
                self._rewrite()

    def _rewrite(self) -> None:
        self._written = time.monotonic()
        calls, nbytes, errors = self._dropped
        dropped = Dropped(calls=calls, bytes=nbytes, errors=errors)
        if dropped != self._session.dropped:
            self._session = msgspec.structs.replace(self._session, dropped=dropped)
            replace_file(self._folder, "session.json", (_encode(self._session),))

    def _extend(self, sequence: int, nbytes: int) -> bool:
        with self._lock:
            victims = self._ledger.extend(sequence, nbytes)
            if victims is None:
                self._drop(nbytes=nbytes)
                return False
            folders = self._taken(victims)
        _remove(folders)
        return True

    def _release(self, sequence: int, nbytes: int | None) -> None:
        with self._lock:
            if nbytes is None:
                self._ledger.forget(sequence)
                self._capsules.pop(sequence, None)
            else:
                self._ledger.finish(sequence, nbytes)

    def _taken(self, victims: list[int]) -> list[str]:
        folders = [self._capsules.pop(sequence) for sequence in victims]
        if folders:
            self._drop(calls=len(folders))
        return folders


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


def _remove(folders: list[str]) -> None:
    """Remove capsules; ``call.json`` first, so that half a capsule never looks like a whole one."""
    for folder in folders:
        for name in ("call.json", "inputs.safetensors", "outputs.safetensors"):
            # What cannot be removed stays; that is no reason to lose the call that needs room.
            with contextlib.suppress(OSError):
                os.unlink(f"{folder}/{name}")  # noqa: PTH108 - faster than rmtree, which looks first
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # noqa: PTH106

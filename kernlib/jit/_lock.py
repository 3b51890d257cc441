"""The lock of a key, which only saves double work."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

from kernlib.jit._log import loader_logger
from kernlib.jit._workspace import locks_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import filelock

    from kernlib.config import Config
    from kernlib.jit._cache import Artifact
    from kernlib.jit._plan import BuildPlan

__all__ = ["locked"]

_POLL_SECONDS = 0.03
_QUIET_SECONDS = 1.0
_PATIENCE_SECONDS = 900


@contextlib.contextmanager
def locked(
    plan: BuildPlan, config: Config, look: Callable[[], Artifact | None]
) -> Iterator[Artifact | None]:
    """Hold the lock of a key, or give what ``look`` finds while another process holds it.

    Publishing is safe without a lock: where none is to be had, or whoever holds it does not let go
    (a lock file of a dead process on a file system that keeps it), the build goes on without one.
    """
    import filelock

    path = locks_dir(config) / f"{plan.key}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path)
    try:
        found = _acquire(lock, plan, config, look)
    except (OSError, NotImplementedError) as error:
        if isinstance(error, filelock.Timeout):
            told = f"still held after {_PATIENCE_SECONDS} s"
        else:
            told = str(error)
        loader_logger(config).info("%s: no lock (%s); building without one", path, told)
        found = None
    try:
        yield found
    finally:
        lock.release()


def _acquire(
    lock: filelock.BaseFileLock,
    plan: BuildPlan,
    config: Config,
    look: Callable[[], Artifact | None],
) -> Artifact | None:
    import filelock

    begin, told = time.monotonic(), False
    while True:
        waited = time.monotonic() - begin
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            if (found := look()) is not None:
                return found
            if waited > _PATIENCE_SECONDS:
                raise
        else:
            return None
        if waited > _QUIET_SECONDS and not told:
            told = True
            _tell(plan, config)
        time.sleep(_POLL_SECONDS)


def _tell(plan: BuildPlan, config: Config) -> None:
    """Say that another process builds: on a terminal, and to those who asked for the details."""
    record = plan.record
    text = f"waiting for another process that builds {record.uri} for {record.target}"
    loader_logger(config).info("%s (%s)", text, record.mode)
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"kernlib: {text} ({record.mode})\n")

"""Records a planted fault in a child process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernlib.config import Level, get_config

if TYPE_CHECKING:
    from pathlib import Path

    from kernlib.selftest._plan import Run

__all__ = ["Recorded", "record"]

_POLL = 0.1
#: Between the publishing of a capsule and the kernel's launch lies far less.
_GRACE = 1.0
_LOG_TAIL = 2000


@dataclass(frozen=True)
class Recorded:
    """How the recording child ended; ``status`` None if it had to be stopped."""

    dumps: Path
    status: int | None
    seconds: float
    log: str

    @property
    def end(self) -> str:
        """How the child ended, in words."""
        if self.status is None:
            return "it was stopped"
        if self.status < 0:
            return f"it was ended by {signal.Signals(-self.status).name}"
        return f"it ended with status {self.status}"


def _environment(dumps: Path) -> dict[str, str]:
    """Return this process's environment with recording on, into ``dumps`` and nowhere else."""
    recording = get_config().replace(
        log_level=Level.DUMP, log_dest=os.devnull, log_format="console",
        include=(), exclude=(), dump_include=(), dump_exclude=(), dump_dir=dumps, control=None,
        from_call=1, every=1, first_per_shape=0,
    )  # fmt: skip
    others = {name: text for name, text in os.environ.items() if not name.startswith("KERNLIB_")}
    return others | recording.to_env()


def record(run: Run, folder: Path, timeout: float) -> Recorded:
    """Make the calls of ``run`` in a child that records; ``timeout`` in seconds.

    A child that hangs as planted is stopped soon after it has begun the planted call.
    """
    dumps = folder / "dumps"
    dumps.mkdir(parents=True)
    command = [sys.executable, "-m", "kernlib.selftest._child", run.fault.name, run.variant]
    begin = time.monotonic()
    with (folder / "recording.log").open("wb") as log:
        child = subprocess.Popen(
            [*command, run.device], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env=_environment(dumps), start_new_session=True,
        )  # fmt: skip
        try:
            stopped = _wait(child, run, dumps, begin + timeout)
        finally:
            _stop(child)
    text = (folder / "recording.log").read_text(encoding="utf-8", errors="replace")
    status = None if stopped else child.returncode
    return Recorded(dumps, status, time.monotonic() - begin, text[-_LOG_TAIL:])


def _wait(child: subprocess.Popen[bytes], run: Run, dumps: Path, until: float) -> bool:
    """Return whether the child has to be stopped: it hangs as planted, or its time is over."""
    while child.poll() is None:
        if run.fault.hangs and any(dumps.glob(f"*/{run.call:06d}-*/call.json")):
            until = min(until, time.monotonic() + _GRACE)
        if time.monotonic() > until:
            return True
        time.sleep(_POLL)
    return False


def _stop(child: subprocess.Popen[bytes]) -> None:
    """End a child that still runs, and its workers with it."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()

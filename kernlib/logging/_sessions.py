"""The dump session of the running process."""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from typing import TYPE_CHECKING, NamedTuple

from kernlib import dump
from kernlib._fork import ForkLock
from kernlib.logging._receivers import Receivers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernlib.config import Config
    from kernlib.logging._rules import CallRules

__all__ = ["Recording", "Sessions"]

_logger = logging.getLogger("kernlib.recorder")


class Recording(NamedTuple):
    """The session of one process, and the receivers it has seen.

    ``skipped`` is how many calls the rules had kept from sessions before this one.
    """

    pid: int
    session: dump.SessionWriter
    receivers: Receivers
    rules: CallRules | None
    skipped: int

    @property
    def is_of_this_process(self) -> bool:
        """Whether the session is to be written here, and not by the parent of a forked child."""
        return self.pid == os.getpid()

    def note_skipped(self) -> None:
        """Tell the session how many calls the rules have kept from it."""
        if self.rules is not None:
            self.session.skipped = self.rules.skipped - self.skipped


class Sessions:
    """Makes a session at first use, in a forked child, and when somebody has removed the last."""

    def __init__(
        self, config: Config, facts: Callable[[], dump.Process], rules: CallRules | None = None
    ) -> None:
        self._config = config
        self._facts = facts
        self._rules = rules
        self._lock = ForkLock()
        self._recording: Recording | None = None
        self._lost: Path | None = None
        self._told = False

    @property
    def made(self) -> Recording | None:
        """The session of this process, if there is one."""
        recording = self._recording
        return recording if recording is not None and recording.is_of_this_process else None

    def current(self) -> Recording:
        """Return the session of this process."""
        if (recording := self.made) is not None:
            return recording
        with self._lock:
            return self.made or self._make()

    def leave(self, recording: Recording) -> None:
        """Let the next call make a new session: the folder of this one is gone."""
        recording.session.leave()
        with self._lock:
            if self._recording is recording:
                self._recording = recording._replace(pid=0)
                self._lost = self._lost or recording.session.path

    def _make(self) -> Recording:
        config, rules = self._config, self._rules
        budget = dump.Budget(
            max_calls=config.dump_max_calls,
            max_bytes=config.dump_max_bytes,
            max_per_kind=config.dump_max_per_shape,
            keep=config.dump_keep,
        )
        session = dump.SessionWriter(config.dump_dir, self._facts(), budget)
        skipped = rules.skipped if rules is not None and self._recording is not None else 0
        receivers = Receivers(session.pin, session.unpin)
        self._recording = Recording(os.getpid(), session, receivers, rules, skipped)
        weakref.finalize(self, _close, self._recording)  # runs at the process's exit too
        if self._lost is not None and not self._told:
            self._told = True
            _logger.warning(
                "the session %s was removed while it was recorded; recording goes on in %s "
                "(told once)", self._lost, session.path,
            )  # fmt: skip
        return self._recording


def _close(recording: Recording) -> None:
    """Write the last counts of a session, in the process that it belongs to."""
    if recording.is_of_this_process:
        recording.note_skipped()
        with contextlib.suppress(OSError):
            recording.session.close()

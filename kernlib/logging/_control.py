"""Follows a file in which an operator switches the recording."""

from __future__ import annotations

import errno
import logging
import os
import stat
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from kernlib.config import Config, recording_variables
from kernlib.errors import ConfigError, KernlibError
from kernlib.logging._settings import changed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["ControlFile", "parse_control"]

_logger = logging.getLogger("kernlib.recorder")
_INTERVAL_SECONDS = 0.5
_LARGEST_BYTES = 1 << 16


class _Look(NamedTuple):
    """What a look at the file found: which state of it, and its text or the reason for none."""

    state: tuple[int, ...] = ()
    text: str = ""
    problem: ConfigError | None = None

    def same(self, other: _Look) -> bool:
        """Return whether nothing has happened to the file in between."""
        return (self.state, self.text, str(self.problem)) == (
            other.state, other.text, str(other.problem)
        )  # fmt: skip


class ControlFile:
    """Hands on what a file says whenever it was changed.

    A file that cannot be followed gives one warning, and everything stays as it is.
    """

    def __init__(self, path: Path, apply: Callable[[dict[str, str], Path], None]) -> None:
        self.path = path.absolute()
        self._apply = apply
        self._last = self._followed = _Look()
        self._warned = ""

    def start(self) -> None:
        """Follow the file now, and from a thread of this process and of each forked child."""
        self.check(settled=True)
        self._watch()
        os.register_at_fork(after_in_child=self._watch)

    def check(self, *, settled: bool = False) -> None:
        """Look at the file once; a change is followed when the next look finds no further one.

        Until then it may be half written. ``settled`` does not wait.
        """
        look = _look(self.path)
        settled, self._last = settled or look.same(self._last), look
        if not settled or look.same(self._followed):
            return
        self._followed = look
        try:
            if look.problem is not None:
                raise look.problem
            self._apply(parse_control(self.path, look.text), self.path)
        except KernlibError as error:
            self._warn(str(error))
        else:
            self._warned = ""

    def _watch(self) -> None:
        try:
            threading.Thread(target=self._run, name="kernlib-control", daemon=True).start()
        except RuntimeError as error:  # no thread can be had; the application needs it more
            self._warn(f"KERNLIB_CONTROL={str(self.path)!r} is not followed: {error}")

    def _run(self) -> None:
        while True:
            time.sleep(_INTERVAL_SECONDS)
            self.check()

    def _warn(self, problem: str) -> None:
        if problem != self._warned:
            self._warned = problem
            _logger.warning("%s; the recording stays as it is", problem)


def parse_control(path: Path, text: str) -> dict[str, str]:
    """Return the fields that lines such as ``KERNLIB_LOG_LEVEL=args`` set.

    Raises ConfigError with the line's number for anything else, comments apart.
    """
    rows = {row.name: row for row in recording_variables()}
    lines: dict[str, int] = {}
    fields: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        content = line.partition(" #")[0].strip()
        if not content or content.startswith("#"):
            continue
        name, equals, value = (part.strip() for part in content.partition("="))
        place = f"{path}:{number}: {name if equals else 'line'}"
        if not equals:
            raise ConfigError(place, content, "a line such as KERNLIB_LOG_LEVEL=args")
        if name not in rows:
            expected = f"what can be switched in a running process: {', '.join(rows)}"
            raise ConfigError(place, value, expected)
        if name in lines:
            raise ConfigError(place, value, f"it once; line {lines[name]} sets it too")
        if value[:1] in {"'", '"'} or "\0" in value:
            raise ConfigError(place, value, "the value as it is, without quotes")
        lines[name] = number
        fields[rows[name].field] = value
        try:
            changed(Config(), {rows[name].field: value})
        except ConfigError as error:
            raise ConfigError(place, value, error.expected) from None
    return fields


def _look(path: Path) -> _Look:
    """Read the file, if it is one that only this user or root can have written."""
    try:
        # Without O_NONBLOCK a named pipe would hold the thread for good.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            return _Look()
        return _Look(problem=_refused(path, f"one that can be read: {error.strerror}"))
    try:
        facts = os.fstat(handle)
        state = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        expected = _why_not(facts)
        content = b"" if expected else _read(handle)
        return _Look(state, content.decode("utf-8-sig"), _refused(path, expected))
    except OSError as error:
        return _Look(problem=_refused(path, f"one that can be read: {error.strerror}"))
    except UnicodeDecodeError:
        return _Look(state, problem=_refused(path, "text in UTF-8"))
    finally:
        os.close(handle)


def _read(handle: int) -> bytes:
    content = b""
    while len(content) < _LARGEST_BYTES and (more := os.read(handle, _LARGEST_BYTES)):
        content += more
    return content


def _why_not(facts: os.stat_result) -> str:
    """Return what a file would have to be to be followed; nothing if it is that."""
    if not stat.S_ISREG(facts.st_mode):
        return "a regular file"
    if facts.st_uid not in {0, os.geteuid()}:
        return f"a file of this user ({os.geteuid()}) or of root; user {facts.st_uid} owns it"
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "a file that only its owner may write; run: chmod go-w on it"
    if facts.st_size >= _LARGEST_BYTES:
        return f"fewer than {_LARGEST_BYTES} bytes; it has {facts.st_size}"
    return ""


def _refused(path: Path, expected: str) -> ConfigError | None:
    return ConfigError("KERNLIB_CONTROL", str(path), expected) if expected else None

"""Where log lines and rings go."""

from __future__ import annotations

import os
import socket
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "FileLogger",
    "StreamLogger",
    "call_in_forked_children",
    "expand_destination",
    "open_destination",
]

_STDERR = 2


def expand_destination(template: str) -> Path:
    """Return the path with ``%p`` (pid), ``%r`` (rank) and ``%h`` (host) filled in."""
    values = {
        "%p": str(os.getpid()),
        "%r": os.environ.get("RANK", "0"),
        "%h": socket.gethostname(),
    }
    for mark, value in values.items():
        template = template.replace(mark, value)
    return Path(template)


class FileLogger:
    """Hands every line to the kernel in one write, before the call can be launched."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        weakref.finalize(self, os.close, self.file).atexit = False  # others may write until then

    def msg(self, line: bytes) -> None:
        """Append a line."""
        os.write(self.file, line)


class StreamLogger:
    """Writes lines to a standard stream and flushes each."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        #: For those who write past the stream: only where nothing waits in front of it.
        self.file = _STDERR if stream is sys.__stderr__ and _is_stderr(stream) else None

    def msg(self, line: bytes) -> None:
        """Write a line."""
        self._stream.write(line.decode())
        self._stream.flush()


def open_destination(destination: str) -> FileLogger | StreamLogger:
    """Return what takes the lines: a standard stream, or a file with its marks filled in."""
    if destination in {"stderr", "stdout"}:
        return StreamLogger(sys.stderr if destination == "stderr" else sys.stdout)
    return FileLogger(expand_destination(destination))


def _is_stderr(stream: TextIO) -> bool:
    try:
        return stream.fileno() == _STDERR
    except (OSError, ValueError):  # closed, or no file at all
        return False


def call_in_forked_children(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    """Call a method of an object in forked children, for as long as the object lives."""
    os.register_at_fork(after_in_child=lambda: (alive := method()) and alive())

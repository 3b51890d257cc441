"""Tells whether the process of a session is gone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

__all__ = ["Identity", "is_gone", "this_process"]

_DEAD_STATES = ("Z", "X")


class Identity(NamedTuple):
    """A process that no other one is taken for: its number alone is given away again.

    ``table`` names the running kernel and the process table that ``pid`` is a number of: the same
    number means another process on another host, after a restart, or in another container.
    ``born`` is when it started, in ticks of that kernel.
    """

    table: str
    pid: int
    born: int


def this_process() -> Identity:
    """Return the identity of this process; without a table where there is no /proc."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        table = f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116 - a kernel's link
        return Identity(table, os.getpid(), _stat(os.getpid())[1])
    except (OSError, ValueError):
        return Identity("", os.getpid(), 0)


def is_gone(other: Identity, here: Identity) -> bool:
    """Return whether a process has certainly ended; of other process tables nothing is known."""
    if not here.table or other.table != here.table or other.pid <= 0:
        return False
    try:
        state, born = _stat(other.pid)
    except ValueError:
        return False
    except OSError:
        return not _answers(other.pid)  # other users' processes may be hidden
    return state in _DEAD_STATES or born != other.born


def _stat(pid: int) -> tuple[str, int]:
    """Return the state of a process and when it started; ValueError for any other text."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    fields = text.rpartition(")")[2].split()  # the name before may hold anything
    if len(fields) < 20:  # noqa: PLR2004 - starttime is field 22 of the whole line
        raise ValueError(text)
    return fields[0], int(fields[19])


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True

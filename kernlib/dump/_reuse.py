"""Lets files of evicted capsules be written over.

To remove them and to make new ones takes about seven times as long on ext4, which gives no inode
away again that was freed a moment ago, and looks at all of those for each new file.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import itertools
import os
import signal
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SPARE_FOLDER", "Spares", "exchange", "open_again"]

#: The folder, in a session's, of files that no capsule needs at the moment.
SPARE_FOLDER = ".spare"
_MOST = 16
#: Spare files count against no budget, so longer ones go.
_MOST_BYTES = 64 << 10
_OWNER_ONLY = 0o600
_AGAIN = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of <linux/fs.h>


def open_again(path: str) -> tuple[int, int] | None:
    """Return a handle of a file to write over, and its size.

    None, and nothing is there any longer, if it is no plain file of its owner alone, or if
    somebody has it open, mapped or linked: they keep the bytes they see.
    """
    try:
        handle = os.open(path, _AGAIN)
    except FileNotFoundError:
        return None
    except OSError:
        os.unlink(path)  # noqa: PTH108 - here and below: pathlib costs
        return None
    status = os.fstat(handle)
    own = stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) == _OWNER_ONLY
    if own and status.st_nlink == 1 and _is_only_user(handle):
        return handle, status.st_size
    os.close(handle)
    os.unlink(path)  # noqa: PTH108
    return None


def exchange(one: str, other: str) -> bool:
    """Let two files change places in one step; return False where that cannot be done."""
    rename = _renameat2()
    return rename is not None and not rename(
        _HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE
    )


class Spares:
    """The files of a session that no capsule needs at the moment; for any thread."""

    def __init__(self, session_dir: str) -> None:
        self._folder = f"{session_dir}/{SPARE_FOLDER}"
        self._free: list[str] = []
        self._numbers = itertools.count()
        self._made = False

    def take(self) -> str | None:
        """Return the path of a spare file, which is the caller's from then on."""
        try:
            return self._free.pop()
        except IndexError:
            return None

    def keep(self, path: str) -> None:
        """Take a file away from where it is, if it is there; what cannot be kept is removed."""
        if path.startswith(self._folder):
            self._free.append(path)
            return
        spare = f"{self._folder}/{next(self._numbers)}"
        try:
            if len(self._free) >= _MOST or os.stat(path).st_size > _MOST_BYTES:  # noqa: PTH116
                os.unlink(path)  # noqa: PTH108 - not shortened: somebody may have it mapped
                return
            if not self._made:
                os.mkdir(self._folder, 0o700)  # noqa: PTH102
                self._made = True
            os.rename(path, spare)  # noqa: PTH104
        except OSError:
            for left in (path, spare):
                with contextlib.suppress(OSError):
                    os.unlink(left)  # noqa: PTH108
            return
        self._free.append(spare)

    def close(self) -> None:
        """Remove the spare files, but for one that a thread is writing at this moment."""
        while (path := self.take()) is not None:
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108
        with contextlib.suppress(OSError):
            os.rmdir(self._folder)  # noqa: PTH106


def _is_only_user(handle: int) -> bool:
    """Return whether nobody else has a file open or mapped, by asking for a lease on it.

    A lease is only given then, and given back at once. Somebody who opens the file in between
    waits that long, and this process gets a signal, one that does nothing by itself.
    """
    try:
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False  # in use, or a file system that knows no leases
    return True


@functools.cache
def _renameat2() -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), "renameat2", None)  # glibc has it from 2.28 on

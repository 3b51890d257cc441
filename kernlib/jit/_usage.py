"""Who uses an artifact, and when it was last used."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import time
import uuid
from pathlib import Path

from kernlib._fork import ForkLock

__all__ = ["discard", "doubt", "hold", "holders", "in_use", "remove"]

_STAMP_SECONDS = 60
_CONTENTION = {errno.EACCES, errno.EAGAIN}
#: File systems whose every user runs on this kernel, which therefore sees all of their locks.
_LOCAL = {
    "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "tmpfs", "xfs",
    "zfs",
}  # fmt: skip


class _Held:
    """The folders this process holds: device and inode, and the descriptor with the lock."""

    def __init__(self) -> None:
        self.lock = ForkLock()
        self.descriptors: dict[tuple[int, int], int] = {}


_held = _Held()


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)


def _identity(facts: os.stat_result) -> tuple[int, int]:
    return facts.st_dev, facts.st_ino


def _lock(descriptor: int, kind: int) -> bool:
    """Return False if another process's lock is in the way; no lock to be had is no obstacle."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _CONTENTION
    return True


def hold(folder: Path) -> bool:
    """Keep a folder from being pruned while this process lives, and stamp it as used now.

    The holder is a shared lock on the folder itself: the kernel ends it with the process and its
    forks, it needs no permission to write, and it follows the folder through a rename. The stamp
    is the folder's time. Return False if the folder is not there, or is being removed.
    """
    try:
        descriptor = _open(folder)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # no permission or no descriptor left: used without a holder
        return True
    facts = os.fstat(descriptor)
    with _held.lock:
        if _identity(facts) in _held.descriptors:
            os.close(descriptor)
            return True
        if not _lock(descriptor, fcntl.LOCK_SH) or not _is_at(folder, facts):
            os.close(descriptor)
            return False
        _held.descriptors[_identity(facts)] = descriptor
    if time.time() - facts.st_mtime > _STAMP_SECONDS:
        with contextlib.suppress(OSError):  # a workspace that is only read has no stamps
            os.utime(descriptor)
    return True


def _is_at(path: Path, facts: os.stat_result) -> bool:
    try:
        return _identity(path.lstat()) == _identity(facts)
    except OSError:
        return False


def discard(folder: Path) -> None:
    """Remove a folder that only this process knows."""
    with contextlib.suppress(OSError):
        identity = _identity(folder.lstat())
        with _held.lock:
            descriptor = _held.descriptors.pop(identity, None)
        if descriptor is not None:
            os.close(descriptor)
    shutil.rmtree(folder, ignore_errors=True)


def in_use(path: Path) -> bool:
    """Return whether a living process holds a folder, as far as locks tell."""
    try:
        descriptor = _open(path)
    except OSError:
        return False
    try:
        return not _lock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


def remove(path: Path) -> bool:
    """Remove a file or folder unless a living process holds it; return whether it is gone.

    It loses its name first, so that nobody finds half of it.
    """
    try:
        descriptor = _open(path)
    except FileNotFoundError:
        return True
    except OSError:  # a link, which holds nothing
        return _unlink(path)
    try:
        if not _lock(descriptor, fcntl.LOCK_EX):
            return False
        grave = path.with_name(f".removed.{uuid.uuid4().hex}")
        try:
            path.rename(grave)
        except OSError:
            return False
        if grave.is_dir():
            shutil.rmtree(grave, ignore_errors=True)
            return not grave.exists()
        return _unlink(grave)
    finally:
        os.close(descriptor)


def _unlink(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


def holders(path: Path) -> tuple[int, ...]:
    """Return the ids of the processes that hold a folder, where the kernel tells them."""
    try:
        facts = path.lstat()
        rows = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return ()
    device = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"
    fields = [row.split() for row in rows]
    found = {int(row[4]) for row in fields if row[1] == "FLOCK" and row[5] == device}
    return tuple(sorted(number for number in found if number > 0))


def doubt(workspace: Path) -> str:
    """Return why locks may not show every user of a workspace; an empty text if they do."""
    kind = _file_system(workspace)
    if kind not in _LOCAL:
        return f"{workspace} is on {kind}, where other machines may use it"
    if not _locks_work(workspace):
        return f"file locks do nothing in {workspace}"
    return ""


def _locks_work(folder: Path) -> bool:
    """Return whether a second lock is refused where a first one is held."""
    try:
        first, second = _open(folder), _open(folder)
    except OSError:
        return False
    try:
        fcntl.flock(first, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _CONTENTION
    else:
        return False
    finally:
        os.close(first)
        os.close(second)


def _file_system(path: Path) -> str:
    """Return the kind of file system a path lies on."""
    real = Path(os.path.realpath(path))
    places = {str(real), *map(str, real.parents)}
    best, kind = "", "an unknown file system"
    try:
        rows = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return kind
    for row in rows:
        left, _, right = row.partition(" - ")
        point = left.split()[4].replace("\\040", " ")
        if point in places and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind

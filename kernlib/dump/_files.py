"""Single files of a dump folder, written whole, never trusted."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from kernlib.dump._reuse import exchange, open_again
from kernlib.dump._staging import batches
from kernlib.errors import CapsuleError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernlib.dump._reuse import Spares
    from kernlib.dump._staging import DeviceBytes

    Buffers = Sequence[bytes | memoryview | DeviceBytes]

__all__ = [
    "FOLDER_MODE",
    "check_folder",
    "check_label",
    "is_key",
    "read_file",
    "replace_file",
    "write_file",
]

FOLDER_MODE = 0o700
_FILE_MODE = 0o600
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_KEY = re.compile(r"[0-9a-f]{16,64}", re.ASCII)
_MAX_LABEL = 240
_MOST_BUFFERS = 512


def write_file(path: str, buffers: Buffers, *, again: bool = False) -> int:
    """Write a new file, readable by its owner only, and return its size.

    With ``again`` one that is there is written over, unless somebody else uses it. Nothing here
    waits for the disk: what must be survived is the death of this process, and the kernel keeps
    its pages then. Only a power failure could lose them.
    """
    size = sum(map(len, buffers))
    found = open_again(path) if again else None
    handle, before = found or (os.open(path, _CREATE, _FILE_MODE), 0)
    try:
        if before > size:
            os.ftruncate(handle, size)
        for batch in batches(buffers):
            waiting = batch
            while waiting:
                # All in one call, which on ext4 takes two thirds of the time of one call a buffer.
                # It moves at most 2 GiB, and less on a disk that is nearly full.
                waiting = _after(waiting, os.writev(handle, waiting[:_MOST_BUFFERS]))
    finally:
        os.close(handle)
    return size


def _after(buffers: list[bytes | memoryview], done: int) -> list[bytes | memoryview]:
    """Return what is left of buffers whose first bytes are written."""
    for at, buffer in enumerate(buffers):
        if done < len(buffer):
            return [memoryview(buffer)[done:], *buffers[at + 1 :]]
        done -= len(buffer)
    return []


def replace_file(folder: str, name: str, buffers: Buffers, spares: Spares | None = None) -> int:
    """Put a file into a folder, in place of an older one, whole or not at all.

    It is written over one of the ``spares`` if there is any; the older one joins them.
    """
    path = f"{folder}/{name}"
    spare = spares.take() if spares is not None else None
    temporary = spare or f"{folder}/.{name}.tmp"
    done = False
    try:
        size = write_file(temporary, buffers, again=spare is not None)
        if spares is not None and exchange(temporary, path):
            spares.keep(temporary)
        else:
            os.replace(temporary, path)  # noqa: PTH105 - pathlib costs here
        done = True
    finally:
        if not done and os.path.lexists(temporary):
            os.unlink(temporary)  # noqa: PTH108
    return size


def read_file(path: Path, limit: int) -> bytes:
    """Return a regular file's bytes; links, devices and files over the limit are refused."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise CapsuleError(path, "is a symbolic link, which a dump never contains") from None
        raise CapsuleError(path, f"cannot be read: {error.strerror}") from None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise CapsuleError(path, "is not a regular file")
        if status.st_size > limit:
            raise CapsuleError(path, f"has {status.st_size} bytes; at most {limit} are read")
        return file.read(limit + 1)


def check_folder(path: Path) -> None:
    """Raise CapsuleError unless the path is a folder, and no link to one."""
    if path.is_symlink():
        raise CapsuleError(path, "is a symbolic link, which a dump never contains")
    if not path.is_dir():
        raise CapsuleError(path, "is not a folder")


def is_key(text: str) -> bool:
    """Return whether a text has the form of a build key: 16 to 64 hexadecimal digits."""
    return _KEY.fullmatch(text) is not None


def check_label(label: str) -> PurePosixPath:
    """Return a source label as a relative path; ValueError if it could lead elsewhere."""
    parts = label.split("/")
    bad = (
        not 0 < len(label) <= _MAX_LABEL
        or "\\" in label
        or not label.isprintable()
        or any(part in {"", ".", ".."} for part in parts)
    )
    if bad:
        raise ValueError(f"{label!r} is not a relative path without '..'")
    return PurePosixPath(label)

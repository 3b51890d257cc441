"""A session's builds: record, manifest, sources."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kernlib.dump._files import (
    FOLDER_MODE,
    check_folder,
    check_label,
    is_key,
    read_file,
    write_file,
)
from kernlib.errors import CapsuleError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BuildFiles", "list_builds", "read_build", "write_build"]

_MAX_RECORD = 16 << 20
_MAX_SOURCE = 16 << 20
_MAX_SOURCES = 10_000
_MAX_TOTAL = 256 << 20


class BuildFiles(NamedTuple):
    """What a session holds of one build: its record (JSON), manifest, and sources by label."""

    record: bytes
    manifest: str
    sources: dict[str, bytes]


def write_build(
    session_dir: str, key: str, record: bytes, manifest: str, sources: Mapping[str, bytes]
) -> None:
    """Write ``builds/<key>`` whole or not at all; nothing is done if it exists."""
    if not is_key(key):
        raise ValueError(f"build key {key!r} is not 16 to 64 hexadecimal digits")
    final = Path(session_dir, "builds", key)
    if final.exists():
        return
    final.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
    hidden = final.with_name(f".{key}.{os.getpid()}.tmp")
    try:
        hidden.mkdir(mode=FOLDER_MODE)
        write_file(str(hidden / "build.json"), (record,))
        write_file(str(hidden / "build.ninja"), (manifest.encode(),))
        (hidden / "sources").mkdir(mode=FOLDER_MODE)
        for label, text in sources.items():
            path = hidden / "sources" / check_label(label)
            for folder in reversed(path.relative_to(hidden).parents):
                (hidden / folder).mkdir(mode=FOLDER_MODE, exist_ok=True)
            write_file(str(path), (text,))
        hidden.rename(final)
    except (OSError, ValueError):
        shutil.rmtree(hidden, ignore_errors=True)
        if not final.is_dir():
            raise


def list_builds(session_dir: Path) -> tuple[str, ...]:
    """Return the keys of a session's builds."""
    folder = session_dir / "builds"
    if not folder.is_dir():
        return ()
    return tuple(sorted(path.name for path in folder.iterdir() if is_key(path.name)))


def read_build(session_dir: Path, key: str) -> BuildFiles:
    """Return a build's files; CapsuleError for a bad key, a link, or a file that is too large."""
    if not is_key(key):
        raise CapsuleError(session_dir, f"build key {key[:80]!r} is not 16 to 64 hex digits")
    folder = session_dir / "builds" / key
    check_folder(session_dir / "builds")
    check_folder(folder)
    record = read_file(folder / "build.json", _MAX_RECORD)
    manifest = read_file(folder / "build.ninja", _MAX_RECORD)
    root = folder / "sources"
    check_folder(root)
    sources: dict[str, bytes] = {}
    _read_sources(root, root, sources, 0)
    return BuildFiles(record, manifest.decode(errors="replace"), sources)


def _read_sources(root: Path, folder: Path, sources: dict[str, bytes], total: int) -> int:
    for path in sorted(folder.iterdir()):
        label = path.relative_to(root).as_posix()
        try:
            check_label(label)
        except ValueError as error:
            raise CapsuleError(root, str(error)) from None
        if path.is_dir() and not path.is_symlink():
            total = _read_sources(root, path, sources, total)
            continue
        sources[label] = read_file(path, _MAX_SOURCE)
        total += len(sources[label])
        if len(sources) > _MAX_SOURCES or total > _MAX_TOTAL:
            raise CapsuleError(root, f"holds more than {_MAX_SOURCES} files or {_MAX_TOTAL} bytes")
    return total

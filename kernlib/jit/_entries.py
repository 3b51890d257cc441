"""Lists the artifacts of a workspace and checks them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernlib.errors import SelectionError
from kernlib.jit._backend import backend_named
from kernlib.jit._cache import damage, read_metadata
from kernlib.jit._record import record_key
from kernlib.jit._spec import BACKENDS
from kernlib.jit._usage import in_use
from kernlib.jit._workspace import artifacts_dir, generated_dir, logs_dir, quarantine_dir

if TYPE_CHECKING:
    from pathlib import Path

    from kernlib.config import Config
    from kernlib.jit._record import ArtifactMetadata

__all__ = ["CacheEntry", "cache_entries", "entry_named", "other_sizes", "size_of", "verify_entry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """One artifact folder: its size in bytes, its last use as a time stamp, who it is.

    ``metadata`` is None where ``problem`` says what is wrong with it.
    """

    path: Path
    size: int
    used_at: float
    in_use: bool
    metadata: ArtifactMetadata | None
    problem: str

    @property
    def key(self) -> str:
        """The key it is found by."""
        return self.path.name


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder."""
    total, pending = 0, [path]
    while pending:
        try:
            at = pending.pop()
            if at.is_dir() and not at.is_symlink():
                pending += at.iterdir()
            else:
                total += at.lstat().st_size
        except OSError:  # removed by another process
            continue
    return total


def other_sizes(config: Config) -> dict[str, int]:
    """Return the bytes of what a workspace holds beside artifacts, by what it is."""
    private = [path for path in _children(artifacts_dir(config)) if path.name.startswith(".")]
    return {
        "generated sources": size_of(generated_dir(config)),
        "builds": sum(map(size_of, private)),
        "quarantine": size_of(quarantine_dir(config)),
        "logs": size_of(logs_dir(config)),
    }


def cache_entries(config: Config) -> tuple[CacheEntry, ...]:
    """Return every artifact of the workspace, the latest used first; reads no library."""
    found = []
    for path in _children(artifacts_dir(config)):
        if path.name.startswith("."):
            continue
        try:
            used_at = path.lstat().st_mtime
        except OSError:
            continue
        said = _metadata_of(path)
        found.append(
            CacheEntry(
                path=path,
                size=size_of(path),
                used_at=used_at,
                in_use=in_use(path),
                metadata=None if isinstance(said, str) else said,
                problem=said if isinstance(said, str) else "",
            )
        )
    return tuple(sorted(found, key=lambda entry: (-entry.used_at, entry.key)))


def _children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _metadata_of(path: Path) -> ArtifactMetadata | str:
    said = read_metadata(path)
    if isinstance(said, str):
        return said
    key = record_key(said.record)
    if not path.name == said.key == key:
        return f"its record has the key {key}"
    return said


def entry_named(key: str, config: Config) -> CacheEntry:
    """Return the artifact whose key begins with a text.

    Raises SelectionError if there is none, or more than one.
    """
    entries = [entry for entry in cache_entries(config) if key and entry.key.startswith(key)]
    if len(entries) == 1:
        return entries[0]
    where = artifacts_dir(config)
    if not entries:
        raise SelectionError(f"no key in {where} begins with {key!r}", "See kernlib cache list")
    keys = ", ".join(entry.key for entry in entries[:4])
    raise SelectionError(f"{len(entries)} keys begin with {key!r}: {keys}", "Give more digits")


def verify_entry(entry: CacheEntry) -> str:
    """Return what is wrong with an artifact, reading its library; an empty text if nothing is."""
    if entry.metadata is None:
        return entry.problem
    facts, record = entry.metadata.library, entry.metadata.record
    if os.path.basename(facts.name) != facts.name:  # noqa: PTH119 - a name from a file is no path
        return f"its library is called {facts.name!r}"
    if record.backend not in BACKENDS:
        return f"its backend {record.backend!r} is not one of {', '.join(BACKENDS)}"
    library = entry.path / facts.name
    return damage(library, facts) or backend_named(record.backend).problem(library)

"""Removes what nobody needs from a workspace."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernlib.jit._cache import is_abandoned, read_metadata
from kernlib.jit._entries import cache_entries, size_of
from kernlib.jit._usage import doubt, in_use, remove
from kernlib.jit._workspace import (
    artifacts_dir,
    generated_dir,
    logs_dir,
    quarantine_dir,
    source_dir_of,
    workspace_dir,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kernlib.config import Config
    from kernlib.jit._entries import CacheEntry

__all__ = ["PruneLimits", "Pruned", "Remnant", "prune"]

DAY = 86400.0
#: What was put away or failed is kept this long for whoever wants to know why.
_EVIDENCE_SECONDS = 7 * DAY
#: A build may be using sources that no artifact names yet.
_BUILD_SECONDS = DAY
_FOREIGN = "cannot be removed by this user"


@dataclass(frozen=True, slots=True)
class Remnant:
    """Something in a workspace that may go: what it is, its size in bytes, and why."""

    path: Path
    kind: str
    size: int
    reason: str


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a pruning removed, what it had to keep, and the bytes of the artifacts left.

    ``unsure`` says why locks do not tell what is in use; empty if they do.
    """

    removed: tuple[Remnant, ...]
    kept: tuple[Remnant, ...]
    artifact_bytes: int
    unsure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneLimits:
    """How long unused artifacts stay, in seconds, and how many bytes of them; None is no limit."""

    older_than: float | None = None
    max_bytes: int | None = None
    #: Nobody uses the workspace, whatever locks fail to tell.
    assume_idle: bool = False


def prune(config: Config, limits: PruneLimits, *, dry_run: bool = False) -> Pruned:
    """Remove artifacts beyond the limits, and what builds left behind.

    What a living process holds stays. Where locks do not tell who holds what, every artifact may
    be in use and stays, unless the caller knows better.
    """
    unsure = "" if limits.assume_idle else doubt(workspace_dir(config))
    entries = cache_entries(config)
    removed, kept = [], []
    gone: set[Path] = set()
    for remnant in (*_surplus(entries, limits), *_builds(config), *_evidence(config, limits)):
        # A log is nobody's; everything else may be the library of a living process.
        if unsure and remnant.kind != "log":
            kept.append(replace(remnant, reason="may be in use"))
        elif in_use(remnant.path):
            kept.append(replace(remnant, reason="in use"))
        elif not (dry_run or remove(remnant.path)):
            kept.append(replace(remnant, reason=_FOREIGN))
        else:
            removed.append(remnant)
            gone.add(remnant.path)
    left = [entry for entry in entries if entry.path not in gone]
    for remnant in _sources(gone, config):
        if dry_run or remove(remnant.path):
            removed.append(remnant)
        else:
            kept.append(replace(remnant, reason=_FOREIGN))
    size = sum(entry.size for entry in left)
    return Pruned(tuple(removed), tuple(kept), size, unsure)


def _surplus(entries: tuple[CacheEntry, ...], limits: PruneLimits) -> Iterator[Remnant]:
    """Give the artifacts unused for too long, then the least recently used of too many."""
    now, total = time.time(), sum(entry.size for entry in entries)
    for entry in reversed(entries):
        days = (now - entry.used_at) / DAY
        if limits.older_than is not None and now - entry.used_at > limits.older_than:
            reason = f"not used for {days:.1f} days"
        elif limits.max_bytes is not None and total > limits.max_bytes:
            reason = "over the limit of bytes, and used least recently"
        else:
            continue
        if not entry.in_use:
            total -= entry.size
        yield Remnant(entry.path, "artifact", entry.size, reason)


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _age(path: Path) -> float:
    try:
        return time.time() - path.lstat().st_mtime
    except OSError:
        return 0.0


def _builds(config: Config) -> Iterator[Remnant]:
    """Give the private folders of builds whose process is gone, and what a pruning left half."""
    for path in _children(artifacts_dir(config)):
        if path.name.startswith(".") and is_abandoned(path):
            yield Remnant(path, "build", size_of(path), "the process that built in it is gone")


def _evidence(config: Config, limits: PruneLimits) -> Iterator[Remnant]:
    """Give old logs of failed builds and old entries of the quarantine."""
    most = _EVIDENCE_SECONDS
    if limits.older_than is not None:
        most = min(most, limits.older_than)
    for path in _children(quarantine_dir(config)):
        moved_at = path.name.rpartition("-")[2]
        age = time.time() - int(moved_at) / 1e9 if moved_at.isdecimal() else _age(path)
        if age > most:
            yield Remnant(path, "quarantine", size_of(path), f"put away {age / DAY:.1f} days ago")
    for path in _children(logs_dir(config)):
        if (age := _age(path)) > most:
            yield Remnant(path, "log", size_of(path), f"a build failed {age / DAY:.1f} days ago")


def _sources(gone: set[Path], config: Config) -> Iterator[Remnant]:
    """Give the generated sources that no artifact was built from, and no build is using."""
    needed = set()
    for folder in _children(artifacts_dir(config)):
        metadata = read_metadata(folder) if folder not in gone else ""
        if not isinstance(metadata, str):
            needed.add(source_dir_of(metadata.record, config))
    for uri in _children(generated_dir(config)):
        for path in _children(uri):
            if path not in needed and _age(path) > _BUILD_SECONDS:
                yield Remnant(path, "sources", size_of(path), "no artifact was built from them")

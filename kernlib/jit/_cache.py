"""Artifacts on disk: finding, judging, publishing."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import socket
import time
import uuid
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import msgspec

from kernlib.jit._backend import backend_named
from kernlib.jit._log import loader_logger
from kernlib.jit._record import ArtifactMetadata, LibraryFacts, compare_records
from kernlib.jit._workspace import artifacts_dir, quarantine_dir

if TYPE_CHECKING:
    from pathlib import Path

    from kernlib.config import Config
    from kernlib.jit._plan import BuildPlan
    from kernlib.jit._record import BuildRecord

__all__ = ["Artifact", "examine", "find_artifact", "private_folder", "publish"]

METADATA = "build.json"
_CHUNK = 1 << 20
_ABANDONED_SECONDS = 24 * 3600
_RENAMES = 3

_decoder = msgspec.json.Decoder(ArtifactMetadata)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A built library with its record: a folder that never changes."""

    path: Path
    library: Path
    size: int
    sha256: str
    key: str
    record: BuildRecord


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def examine(plan: BuildPlan, config: Config) -> Artifact | str:
    """Return the valid artifact of a plan, or what is there in its place."""
    folder = artifacts_dir(config) / plan.key
    if not os.path.lexists(folder):
        return f"nothing at {folder}"
    found = _judge(folder, plan)
    return f"{folder}, but {found}" if isinstance(found, str) else found


def _judge(folder: Path, plan: BuildPlan) -> Artifact | str:
    """Return the artifact in a folder, or why it is not the one that is wanted."""
    try:
        metadata = _decoder.decode((folder / METADATA).read_bytes())
    except OSError as error:
        return f"{METADATA} cannot be read ({error.strerror})"
    except msgspec.MsgspecError as error:
        return f"{METADATA} is damaged ({error})"
    if metadata.key != plan.key or metadata.record != plan.record:
        different = compare_records(metadata.record, plan.record)
        return f"its record is another one ({'; '.join(map(str, different[:3])) or metadata.key})"
    facts = metadata.library
    if facts.name != plan.library:
        return f"its library is called {facts.name!r}"
    library = folder / facts.name
    backend = backend_named(plan.record.backend)
    if problem := _damage(library, facts) or backend.problem(library):
        return problem
    return Artifact(folder, library, facts.size, facts.sha256, plan.key, plan.record)


def _damage(library: Path, facts: LibraryFacts) -> str:
    """Return where a library differs from its record."""
    try:
        size = library.stat().st_size
        if size != facts.size:
            return f"{facts.name} has {size} bytes, its record says {facts.size}"
        if _sha256(library) != facts.sha256:
            return f"{facts.name} does not have the digest of its record"
    except OSError as error:
        return f"{facts.name} cannot be read ({error.strerror})"
    return ""


def find_artifact(plan: BuildPlan, config: Config) -> Artifact | None:
    """Return the valid artifact of a plan, or None.

    An entry that does not match its record is moved to the quarantine and reported.
    """
    folder = artifacts_dir(config) / plan.key
    if not os.path.lexists(folder):
        return None
    found = _judge(folder, plan)
    if isinstance(found, Artifact):
        return found
    _quarantine(folder, found, config)
    return None


def _quarantine(folder: Path, reason: str, config: Config) -> None:
    logger = loader_logger(config)
    place = quarantine_dir(config) / f"{folder.name}-{time.time_ns()}"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(place)
    except FileNotFoundError:
        return  # another process was faster
    except OSError as error:
        logger.warning("%s: %s; it is ignored, and cannot be moved: %s", folder, reason, error)
        return
    logger.warning("%s: %s; it was moved to %s", folder, reason, place)


def private_folder(plan: BuildPlan, config: Config) -> Path:
    """Make a folder that only this build writes to, on the file system of the artifacts.

    Those that builds of the same key left behind when they were killed long ago are removed.
    """
    artifacts = artifacts_dir(config)
    for left in artifacts.glob(f".{plan.key}.*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
    folder = artifacts / f".{plan.key}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
    folder.mkdir(parents=True)
    return folder


def _metadata(folder: Path, plan: BuildPlan, seconds: float) -> ArtifactMetadata:
    library = folder / plan.library
    facts = LibraryFacts(plan.library, library.stat().st_size, _sha256(library))
    built = {
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "seconds": f"{seconds:.2f}",
    }
    return ArtifactMetadata(key=plan.key, record=plan.record, library=facts, built=built)


def publish(folder: Path, plan: BuildPlan, config: Config, seconds: float) -> Artifact:
    """Give a finished private folder its name; where another process won, use what it made.

    With the cache off nothing of the cache is touched: the private folder is the artifact.
    """
    metadata = _metadata(folder, plan, seconds)
    (folder / METADATA).write_bytes(msgspec.json.format(msgspec.json.encode(metadata)))
    facts = metadata.library
    final = artifacts_dir(config) / plan.key
    if not config.jit_cache:
        return Artifact(
            folder, folder / facts.name, facts.size, facts.sha256, plan.key, plan.record
        )
    for left in reversed(range(_RENAMES)):
        try:
            folder.rename(final)
            break
        except OSError as error:
            if error.errno not in {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}:
                raise
            if (theirs := find_artifact(plan, config)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                return theirs
            if not left:  # theirs is bad and cannot be moved away
                raise
    return Artifact(final, final / facts.name, facts.size, facts.sha256, plan.key, plan.record)

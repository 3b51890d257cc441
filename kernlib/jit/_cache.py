"""Artifacts on disk: finding, judging, publishing."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import socket
import stat
import time
import uuid
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kernlib.errors import LoadError
from kernlib.jit._backend import backend_named
from kernlib.jit._log import loader_logger
from kernlib.jit._record import ArtifactMetadata, LibraryFacts, compare_records
from kernlib.jit._usage import discard, doubt, hold, in_use, remove
from kernlib.jit._workspace import artifacts_dir, quarantine_dir

if TYPE_CHECKING:
    from kernlib.config import Config
    from kernlib.jit._plan import BuildPlan
    from kernlib.jit._record import BuildRecord, Difference

__all__ = [
    "METADATA",
    "Artifact",
    "damage",
    "examine",
    "find_artifact",
    "is_abandoned",
    "private_folder",
    "publish",
    "read_metadata",
    "take",
]

METADATA = "build.json"
_CHUNK = 1 << 20
#: A build holds its folder from the start; this long it may take from making it to holding it.
_SETTLED_SECONDS = 60
_RENAMES = 3
_LIBC = "CS_GNU_LIBC_VERSION"

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
    #: What an experiment overlooked: the library was loaded although its record differs so.
    mismatch: tuple[Difference, ...] = ()


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


def read_metadata(folder: Path) -> ArtifactMetadata | str:
    """Return what a folder says of its library, or why it is not to be believed."""
    try:
        if problem := _distrust(folder) or _distrust(folder / METADATA):
            return problem
        return _decoder.decode((folder / METADATA).read_bytes())
    except OSError as error:
        return f"{METADATA} cannot be read ({error.strerror})"
    except msgspec.MsgspecError as error:
        return f"{METADATA} is damaged ({error})"


def _distrust(path: Path) -> str:
    """Return why somebody else may have put code into what is to be loaded.

    A file is trusted if it belongs to this user or root, and nobody else can write to it. A group
    that is the owner's own, as many systems give every user one, is nobody else. Nor is anybody
    who can write to kernlib itself.
    """
    facts, own = path.stat(), _own()
    if facts.st_uid not in {0, os.geteuid(), own.st_uid}:
        return f"{path.name} belongs to user {facts.st_uid}, not to {os.geteuid()} or root"
    shared = facts.st_mode & stat.S_IWGRP and facts.st_gid not in {0, facts.st_uid}
    shared = shared and not (own.st_mode & stat.S_IWGRP and own.st_gid == facts.st_gid)
    if facts.st_mode & stat.S_IWOTH or shared:
        return f"{path.name} can be written by others ({stat.filemode(facts.st_mode)})"
    return ""


@cache
def _own() -> os.stat_result:
    return Path(__file__).stat()


def _judge(folder: Path, plan: BuildPlan) -> Artifact | str:
    """Return the artifact in a folder, or why it is not the one that is wanted."""
    metadata = read_metadata(folder)
    if isinstance(metadata, str):
        return metadata
    if metadata.key != plan.key or metadata.record != plan.record:
        different = compare_records(metadata.record, plan.record)
        return f"its record is another one ({'; '.join(map(str, different[:3])) or metadata.key})"
    facts = metadata.library
    if facts.name != plan.library:
        return f"its library is called {facts.name!r}"
    library = folder / facts.name
    backend = backend_named(plan.record.backend)
    if problem := damage(library, facts) or backend.problem(library):
        return problem
    return Artifact(folder, library, facts.size, facts.sha256, plan.key, plan.record)


def damage(library: Path, facts: LibraryFacts) -> str:
    """Return where a library differs from its record."""
    try:
        if problem := _distrust(library):
            return problem
        size = library.stat().st_size
        if size != facts.size:
            return f"{facts.name} has {size} bytes, its record says {facts.size}"
        if _sha256(library) != facts.sha256:
            return f"{facts.name} does not have the digest of its record"
    except OSError as error:
        return f"{facts.name} cannot be read ({error.strerror})"
    return ""


def take(plan: BuildPlan, config: Config) -> Artifact | None:
    """Return the valid artifact of a plan, held by this process, or None; moves nothing."""
    folder = artifacts_dir(config) / plan.key
    found = _judge(folder, plan) if os.path.lexists(folder) else None
    return found if isinstance(found, Artifact) and hold(folder) else None


def find_artifact(plan: BuildPlan, config: Config) -> Artifact | None:
    """Return the valid artifact of a plan, held by this process, or None.

    An entry that does not match its record is moved to the quarantine and reported.

    Raises LoadError if it cannot be moved, since no build could take its place.
    """
    folder = artifacts_dir(config) / plan.key
    for _ in range(_RENAMES):
        try:
            judged = folder.lstat()
        except OSError:
            return None
        found = _judge(folder, plan)
        if not isinstance(found, Artifact):
            _quarantine(folder, judged, found, config)
        elif hold(folder):
            return found
    return None


def _quarantine(folder: Path, judged: os.stat_result, reason: str, config: Config) -> None:
    """Move an entry out of the way; say so where this process is the one that moved it."""
    place = quarantine_dir(config) / f"{folder.name}-{time.time_ns()}"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(place)
    except FileNotFoundError:
        return  # another process was faster
    except OSError as error:
        told = f"{reason}; it cannot be moved away ({error.strerror})"
        remedy = "remove it, or set KERNLIB_WORKSPACE to another folder"
        raise LoadError(folder, f"{told}: {remedy}") from error
    if place.lstat().st_ino != judged.st_ino:
        # Between the look and the move another process had put a whole one there: give it back.
        with contextlib.suppress(OSError):
            place.rename(folder)
        return
    message = "%s: %s; it was moved to %s"
    loader_logger(config).warning(message, folder, reason, place)


def private_folder(plan: BuildPlan, config: Config) -> Path:
    """Make a folder that only this build writes to, on the file system of the artifacts.

    Those that builds of the same key left behind when they were killed are removed.
    """
    artifacts = artifacts_dir(config)
    artifacts.mkdir(parents=True, exist_ok=True)
    left = [path for path in artifacts.glob(f".{plan.key}.*") if is_abandoned(path)]
    if left and not doubt(artifacts):
        for path in left:
            remove(path)
    folder = artifacts / f".{plan.key}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    hold(folder)
    return folder


def is_abandoned(folder: Path) -> bool:
    """Return whether the process that made a private folder is gone, as far as locks tell."""
    try:
        age = time.time() - folder.lstat().st_mtime
    except OSError:
        return False
    return age > _SETTLED_SECONDS and not in_use(folder)


def _metadata(folder: Path, plan: BuildPlan, seconds: float) -> ArtifactMetadata:
    library = folder / plan.library
    facts = LibraryFacts(plan.library, library.stat().st_size, _sha256(library))
    built = {
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "libc": os.confstr(_LIBC) or "" if _LIBC in os.confstr_names else "",
        "seconds": f"{seconds:.2f}",
    }
    return ArtifactMetadata(key=plan.key, record=plan.record, library=facts, built=built)


def _close_to_others(folder: Path) -> None:
    """Let nobody else write to an artifact, whatever the umask: what others can change is refused.

    Others may read it.
    """
    for path in (folder, *folder.rglob("*")):
        mode = path.lstat().st_mode
        if mode & (stat.S_IWGRP | stat.S_IWOTH) and not stat.S_ISLNK(mode):
            with contextlib.suppress(OSError):  # a file system without modes
                path.chmod(stat.S_IMODE(mode) & ~(stat.S_IWGRP | stat.S_IWOTH))


def publish(folder: Path, plan: BuildPlan, config: Config, seconds: float) -> Artifact:
    """Give a finished private folder its name; where another process won, use what it made.

    With the cache off nothing of the cache is touched: the private folder is the artifact.
    """
    metadata = _metadata(folder, plan, seconds)
    (folder / METADATA).write_bytes(msgspec.json.format(msgspec.json.encode(metadata)))
    _close_to_others(folder)
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
                discard(folder)
                return theirs
            if not left:  # theirs is bad and cannot be moved away
                raise
    return Artifact(final, final / facts.name, facts.size, facts.sha256, plan.key, plan.record)

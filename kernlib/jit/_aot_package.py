"""Builds ahead of time and gathers the artifacts."""

from __future__ import annotations

import shutil
import uuid
from typing import TYPE_CHECKING

from kernlib.config import Mode
from kernlib.errors import ConfigError, LoadError, SelectionError, UnsupportedTargetError
from kernlib.jit._build import build_plan
from kernlib.jit._cache import METADATA, Artifact, damage, read_metadata, take
from kernlib.jit._plan import plan as make_plan
from kernlib.jit._spec import KernelChoice
from kernlib.jit._target import CPU, is_family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from kernlib.config import Config
    from kernlib.jit._record import ArtifactMetadata
    from kernlib.jit._spec import KernelSpec

__all__ = ["ahead_choices", "build_ahead", "packed"]

#: What a build leaves beside the library and nobody needs to load it.
_LEFTOVERS = ("*.o", ".*", "build.log", "build.ninja", "compile_commands.json")
_FILE, _FOLDER = 0o644, 0o755


def ahead_choices(specs: Iterable[KernelSpec], targets: Sequence[str]) -> tuple[KernelChoice, ...]:
    """Return every spec with each of the targets that it supports.

    Raises UnsupportedTargetError for what is no target, or one that no spec supports.
    """
    specs = tuple(specs)
    found = []
    for target in dict.fromkeys(targets):
        able = [spec for spec in specs if spec.supports(target)]
        known = target == CPU or (is_family(target) and not target.endswith("+"))
        if not able or not known:
            families = {family for spec in specs for family in spec.targets}
            raise UnsupportedTargetError("what is to be built ahead", target, sorted(families))
        found += [KernelChoice(spec=spec, target=target, reason="ahead of time") for spec in able]
    return tuple(found)


def build_ahead(
    choices: Iterable[KernelChoice], out: Path, config: Config
) -> Iterator[tuple[Artifact, bool]]:
    """Build release artifacts into a folder; tell of each whether it was built just now.

    An earlier artifact there for the same kernel and target is replaced. What the workspace
    already holds is copied; a package that is installed is not looked at. No compiler starts
    before all of them are known to be possible.

    Raises ConfigError where building is disabled, and what building raises.
    """
    if config.jit_disable:
        raise ConfigError("KERNLIB_JIT_DISABLE", "1", "0 or unset to build ahead of time")
    config = config.replace(jit_sources=None)
    plans = [make_plan(choice, config, Mode.RELEASE) for choice in choices]
    for plan in plans:
        if plan.missing is not None:
            raise plan.missing
    for plan in plans:
        found = take(plan, config) if config.jit_cache else None
        artifact = found or build_plan(plan, config)
        yield _pack(artifact, out), found is None


def _pack(artifact: Artifact, out: Path) -> Artifact:
    """Copy an artifact into the folder, whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    hidden = out / f".{artifact.key}.{uuid.uuid4().hex[:8]}"
    final = out / artifact.key
    try:
        shutil.copytree(artifact.path, hidden, ignore=shutil.ignore_patterns(*_LEFTOVERS))
        for path in (hidden, *hidden.rglob("*")):
            path.chmod(_FOLDER if path.is_dir() else _FILE)
        for earlier in _same_purpose(artifact, out):
            shutil.rmtree(earlier)
        hidden.rename(final)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)  # nothing is there once it has its name
    library = final / artifact.library.relative_to(artifact.path)
    return Artifact(final, library, artifact.size, artifact.sha256, artifact.key, artifact.record)


def _same_purpose(artifact: Artifact, out: Path) -> list[Path]:
    record, found = artifact.record, []
    for folder in out.glob("[!.]*"):
        metadata = read_metadata(folder) if (folder / METADATA).is_file() else ""
        if not isinstance(metadata, str):
            other = metadata.record
            if (other.uri, other.target) == (record.uri, record.target):
                found.append(folder)
    return found


def packed(folder: Path) -> tuple[tuple[Path, ArtifactMetadata], ...]:
    """Return the artifacts of a folder, each checked against its record.

    Raises SelectionError if there is none, LoadError for one that is damaged.
    """
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not path.is_dir() or path.name.startswith("."):
            continue
        metadata = read_metadata(path)
        if isinstance(metadata, str):
            raise LoadError(path, metadata)
        library = path / metadata.library.name
        if library.parent != path or metadata.key != path.name:
            raise LoadError(path, f"{METADATA} speaks of another folder or file")
        if problem := damage(library, metadata.library):
            raise LoadError(library, problem)
        found.append((path, metadata))
    if not found:
        raise SelectionError(f"{folder} holds no artifact", "Make some with kernlib aot build")
    return tuple(found)

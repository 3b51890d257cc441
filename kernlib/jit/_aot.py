"""Finds and judges artifacts that were built ahead of time."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kernlib.config import Mode
from kernlib.errors import ConfigError, StaleArtifactError
from kernlib.jit._backend import backend_named
from kernlib.jit._cache import Artifact, damage, read_metadata
from kernlib.jit._log import loader_logger
from kernlib.jit._record import compare_records
from kernlib.jit._toolchain import toolchain_class
from kernlib.jit._usage import hold
from kernlib.jit._workspace import artifacts_dir

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernlib.config import Config
    from kernlib.jit._plan import BuildPlan
    from kernlib.jit._record import BuildRecord, Difference

__all__ = [
    "PACKAGE",
    "Refusal",
    "absence",
    "disagreements",
    "find_ahead",
    "mismatch_text",
    "package_dir",
    "stale",
    "tell_refusal",
]

#: The distribution kernlib-aot installs its artifacts as data of this package.
PACKAGE = "kernlib_aot"

_SHOWN = 3
_LONGEST = 160
_FLAGS = "NVCC_"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The nearest artifact for a kernel and its target, and why it is not loaded."""

    folder: Path
    problems: tuple[str, ...]
    differences: tuple[Difference, ...] = ()

    def __str__(self) -> str:
        shown = [text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
                 for text in self.problems[:_SHOWN]]  # fmt: skip
        if more := len(self.problems) - len(shown):
            shown.append(f"and {more} more")
        return "; ".join(shown)


def package_dir(config: Config) -> Path | None:
    """Return the folder of artifacts built ahead of time, or None if there is none.

    It is ``KERNLIB_AOT_DIR``, else what the distribution kernlib-aot installed.

    Raises ConfigError if the variable names no folder.
    """
    if config.aot_dir is None:
        return _installed()
    folder = config.aot_dir.absolute()
    if not folder.is_dir():
        expected = "a folder that `kernlib aot build` wrote"
        raise ConfigError("KERNLIB_AOT_DIR", str(config.aot_dir), expected)
    return folder


@lru_cache(maxsize=1)
def _installed() -> Path | None:
    found = find_spec(PACKAGE)
    for place in found.submodule_search_locations or () if found else ():
        if (folder := Path(place, "artifacts")).is_dir():
            return folder
    return None


@lru_cache(maxsize=8)
def _catalogue(folder: Path, _changed: int) -> dict[tuple[str, str, str], tuple[Path, ...]]:
    """Return the artifacts of a folder by what they are for: URI, target and mode."""
    found: dict[tuple[str, str, str], tuple[Path, ...]] = {}
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if not entry.name.startswith("."))
    for name in names:
        metadata = read_metadata(folder / name)
        if not isinstance(metadata, str):
            record = metadata.record
            purpose = record.uri, record.target, record.mode
            found[purpose] = (*found.get(purpose, ()), folder / name)
    return found


def _known(folder: Path) -> dict[tuple[str, str, str], tuple[Path, ...]]:
    try:
        return _catalogue(folder, folder.stat().st_mtime_ns)
    except OSError:
        return {}


def _candidates(folder: Path, plan: BuildPlan) -> tuple[Path, ...]:
    return _known(folder).get((plan.record.uri, plan.record.target, plan.record.mode), ())


def absence(plan: BuildPlan, config: Config) -> str:
    """Return what is said of a kernel for which no package has an artifact."""
    if plan.mode is not Mode.RELEASE:
        return "packages hold release builds only"
    package = package_dir(config)
    if package is None:
        return "no ahead-of-time package"
    purposes = [purpose[1:] for purpose in _known(package) if purpose[0] == plan.record.uri]
    targets = sorted(target for target, mode in purposes if mode == Mode.RELEASE)
    return f"the package {package}, which has it for {', '.join(targets) or 'no target'}"


def find_ahead(plan: BuildPlan, config: Config) -> Artifact | Refusal | None:
    """Return the artifact built ahead of time for a plan, why there is none, or None.

    Only release builds are ever taken from a package. On a machine without the toolchain an
    artifact of the workspace counts as well, since its key cannot be known there. With
    ``KERNLIB_ALLOW_VERSION_MISMATCH`` the nearest artifact of the package is taken whatever its
    record says, and every use is reported.

    Raises ConfigError if ``KERNLIB_AOT_DIR`` names no folder.
    """
    if plan.missing is not None:
        for folder in _candidates(artifacts_dir(config), plan):
            if isinstance(found := _judged(folder, plan), Artifact) and hold(folder):
                return found
    package = package_dir(config) if plan.mode is Mode.RELEASE else None
    if package is None:
        return None
    refused: list[Refusal] = []
    for folder in _candidates(package, plan):
        found = _judged(folder, plan)
        if isinstance(found, Artifact):
            loader_logger(config).debug("found %s ahead of time: %s", plan.record.uri, folder)
            return found
        refused.append(found)
    if not refused:
        return None
    nearest = min(refused, key=lambda refusal: len(refusal.problems))
    return _experiment(nearest, plan, config) if config.allow_version_mismatch else nearest


def _judged(folder: Path, plan: BuildPlan) -> Artifact | Refusal:
    """Return the artifact in a folder if its record agrees and its library is whole."""
    metadata = read_metadata(folder)
    if isinstance(metadata, str):
        return Refusal(folder, (metadata,))
    facts = metadata.library
    library = folder / facts.name
    if library.parent != folder:
        return Refusal(folder, (f"its library is called {facts.name!r}",))
    differences = disagreements(metadata.record, plan)
    if differences:
        return Refusal(folder, tuple(map(str, differences)), differences)
    if problem := damage(library, facts) or backend_named(plan.record.backend).problem(library):
        return Refusal(folder, (problem,))
    record = metadata.record
    return Artifact(folder, library, facts.size, facts.sha256, metadata.key, record)


def _experiment(nearest: Refusal, plan: BuildPlan, config: Config) -> Artifact | Refusal:
    """Return an artifact in spite of its record; a damaged one stays refused."""
    metadata = read_metadata(nearest.folder)
    if isinstance(metadata, str) or not nearest.differences:
        return nearest
    facts, library = metadata.library, nearest.folder / metadata.library.name
    problem = damage(library, facts) or backend_named(plan.record.backend).problem(library)
    if problem:
        return Refusal(nearest.folder, (problem,))
    loader_logger(config).error(
        "EXPERIMENT: KERNLIB_ALLOW_VERSION_MISMATCH=1 loads %s for %s although it is another "
        "build: %s. Results made with it are not those of this kernlib",
        library, plan.record.uri, nearest,
    )  # fmt: skip
    return Artifact(
        nearest.folder, library, facts.size, facts.sha256, metadata.key, metadata.record,
        mismatch=nearest.differences,
    )  # fmt: skip


def mismatch_text(differences: tuple[Difference, ...]) -> str:
    """Return what a report says of a library that was loaded in spite of its record."""
    told = "; ".join(map(str, differences))
    return f"KERNLIB_ALLOW_VERSION_MISMATCH=1 loaded a library of another build: {told}"


def disagreements(recorded: BuildRecord, plan: BuildPlan) -> tuple[Difference, ...]:
    """Return where a record differs from a plan, of the toolchain only in its class.

    A machine without the toolchain compares its processor with the one that was built for.
    """
    before, now = toolchain_class(recorded.toolchain), toolchain_class(plan.record.toolchain)
    if plan.missing is not None:
        now = {**_on_this_processor(before), **now}
    replace = msgspec.structs.replace
    return compare_records(replace(recorded, toolchain=before), replace(plan.record, toolchain=now))


def _on_this_processor(before: Mapping[str, str]) -> dict[str, str]:
    """Return the classes of compilers as they would be here, if they were."""
    now = {tool: text for tool, text in before.items() if not tool.startswith(_FLAGS)}
    built_for, here = before.get("cxx", "").rpartition(", ")[2], platform.machine()
    if built_for and built_for != here:
        now["cxx"] = f"no compiler, {here}"
    return now


def stale(refusal: Refusal, plan: BuildPlan, obstacle: str) -> StaleArtifactError:
    """Return the error for a kernel that a package holds in another version only."""
    spec = f"{plan.record.uri} for {plan.record.target}"
    return StaleArtifactError(spec, plan.key, refusal.folder, str(refusal), obstacle)


_told: set[Path] = set()


def tell_refusal(refusal: Refusal, plan: BuildPlan, config: Config) -> None:
    """Say once what keeps an artifact of a package from being loaded."""
    if refusal.folder in _told:
        return
    _told.add(refusal.folder)
    loader_logger(config).warning(
        "%s for %s: the ahead-of-time artifact %s is not loaded: %s",
        plan.record.uri, plan.record.target, refusal.folder, refusal,
    )  # fmt: skip

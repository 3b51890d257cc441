"""From a choice to everything its build needs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernlib._version import __version__
from kernlib.config import Mode, get_config
from kernlib.errors import ToolchainError, UnsupportedTargetError
from kernlib.jit._backend import backend_named
from kernlib.jit._ninja import Manifest, ninja_text
from kernlib.jit._record import BuildRecord, record_key
from kernlib.jit._sources import GENERATED
from kernlib.jit._toolchain import flag_variables
from kernlib.jit._workspace import source_dir_of

if TYPE_CHECKING:
    from pathlib import Path

    from kernlib.config import Config
    from kernlib.jit._backend import Backend
    from kernlib.jit._spec import KernelChoice

__all__ = ["BuildPlan", "plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """A build before it is made; ``files`` is the exact include closure by label.

    ``missing`` says why it cannot be made on this machine. Then the record names no toolchain: its
    key is that of no artifact, but what was built elsewhere can be compared with all the rest.
    """

    choice: KernelChoice
    mode: Mode
    record: BuildRecord
    key: str
    files: dict[str, bytes]
    source_dir: Path
    steps: Manifest
    missing: ToolchainError | None = None

    @property
    def manifest(self) -> str:
        """The text of ``build.ninja``."""
        return ninja_text(self.steps)

    @property
    def library(self) -> str:
        """The file name of the library."""
        return self.steps.library


def plan(
    choice: KernelChoice, config: Config | None = None, mode: Mode | str | None = None
) -> BuildPlan:
    """Return what building a choice takes; reads sources, starts no compiler that is known.

    A missing toolchain is told in the plan: an artifact from elsewhere may take its place.

    Raises UnsupportedTargetError, SpecError, IncludeError, or ToolchainError without tvm-ffi;
    ValueError for a mode there is none of.
    """
    config = get_config() if config is None else config
    mode = Mode(config.jit_mode if mode is None else mode)
    spec, target = choice.spec, choice.target
    if not spec.supports(target):
        raise UnsupportedTargetError(spec.uri, target, spec.targets)
    backend = backend_named(spec.backend)
    flags = backend.flags(spec, mode, target, config)
    override = config.jit_sources / spec.uri if config.jit_sources is not None else None
    files = backend.files(spec, override if override is not None and override.is_dir() else None)
    toolchain, missing = _toolchain(backend, config)
    record = BuildRecord(
        uri=spec.uri,
        name=spec.name,
        backend=spec.backend,
        params=dict(sorted(spec.params)),
        units=spec.sources,
        include_dirs=spec.include_dirs,
        headers=tuple(label for label in files if label.startswith(f"{GENERATED}/")),
        sources={label: hashlib.sha256(text).hexdigest() for label, text in files.items()},
        flags=flags,
        target=target,
        mode=str(mode),
        toolchain=toolchain,
        tvm_ffi=backend.binding(),
        kernlib=__version__,
    )
    source_dir = source_dir_of(record, config)
    return BuildPlan(
        choice=choice,
        mode=mode,
        record=record,
        key=record_key(record),
        files=files,
        source_dir=source_dir,
        steps=_no_steps(record) if missing else backend.manifest(record, source_dir, config),
        missing=missing,
    )


def _toolchain(backend: Backend, config: Config) -> tuple[dict[str, str], ToolchainError | None]:
    try:
        return backend.identity(config), None
    except ToolchainError as error:
        return flag_variables(), error.with_traceback(None)


def _no_steps(record: BuildRecord) -> Manifest:
    title = f"{record.uri} for {record.target}, {record.mode}: no toolchain on this machine"
    library = backend_named(record.backend).library(record.name)
    return Manifest(title=title, tools=(), steps=(), link=(), library=library)

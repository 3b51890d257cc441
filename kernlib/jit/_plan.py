"""From a choice to everything its build needs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

from kernlib._version import __version__
from kernlib.config import Mode, get_config
from kernlib.errors import ToolchainError, UnsupportedTargetError
from kernlib.jit import _gxx, _nvcc
from kernlib.jit._ninja import Manifest, Step, ninja_text, object_name
from kernlib.jit._record import BuildRecord, record_key
from kernlib.jit._sources import GENERATED, OWN_INCLUDE_DIRS, closure
from kernlib.jit._toolchain import find_toolchain
from kernlib.jit._workspace import generated_dir

if TYPE_CHECKING:
    from pathlib import Path

    from kernlib.config import Config
    from kernlib.jit._spec import KernelChoice, KernelSpec
    from kernlib.jit._toolchain import Toolchain

__all__ = ["BuildPlan", "plan"]

_DIGEST_DIGITS = 16
_TVM_FFI = "apache-tvm-ffi"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """A build before it is made; ``files`` is the exact include closure by label."""

    choice: KernelChoice
    mode: Mode
    record: BuildRecord
    key: str
    files: dict[str, bytes]
    source_dir: Path
    steps: Manifest

    @property
    def manifest(self) -> str:
        """The text of ``build.ninja``."""
        return ninja_text(self.steps)

    @property
    def library(self) -> str:
        """The file name of the library."""
        return self.steps.library


@cache
def _tvm_ffi() -> tuple[str, str]:
    """Return the folder and the version of tvm-ffi, without importing it (it imports torch)."""
    from importlib.util import find_spec

    found = find_spec("tvm_ffi")
    folders = list(found.submodule_search_locations or ()) if found else []
    try:
        return folders[0], metadata.version(_TVM_FFI)
    except (IndexError, metadata.PackageNotFoundError):
        raise ToolchainError("tvm_ffi", "not installed", f"pip install {_TVM_FFI}") from None


def _flags(spec: KernelSpec, mode: Mode, target: str, config: Config) -> dict[str, tuple[str, ...]]:
    """Return the flags of each tool, with folders as tokens, after all overrides."""
    folders = dict.fromkeys((*spec.include_dirs, *OWN_INCLUDE_DIRS, GENERATED))
    includes = tuple(f"-I{{root}}/{folder}" for folder in folders)
    tvm_includes = ("-isystem", "{tvm_ffi}/include")
    cxx = (*_gxx.compile_flags(mode), *includes, *tvm_includes)
    link = _gxx.link_flags(mode)
    flags: dict[str, tuple[str, ...]] = {}
    if spec.backend == "cuda":
        device = _nvcc.compile_flags(spec.name, mode, target)
        flags["cuda"] = (*device, *includes, *spec.cuda_flags, *config.extra_cudaflags)
        cxx += ("-isystem", "{cuda}/include")
        link += _nvcc.link_flags()
    flags["cxx"] = (*cxx, *spec.cflags, *config.extra_cflags)
    flags["ld"] = (*link, *spec.ldflags, *config.extra_ldflags)
    return flags


def plan(choice: KernelChoice, config: Config | None = None, mode: Mode | None = None) -> BuildPlan:
    """Return what building a choice takes; reads sources, starts no compiler that is known.

    Raises UnsupportedTargetError, SpecError, IncludeError or ToolchainError.
    """
    config = get_config() if config is None else config
    mode = config.jit_mode if mode is None else mode
    spec, target = choice.spec, choice.target
    if not spec.supports(target):
        raise UnsupportedTargetError(spec.uri, target, spec.targets)
    flags = _flags(spec, mode, target, config)
    override = config.jit_sources / spec.uri if config.jit_sources is not None else None
    files = closure(spec, override if override is not None and override.is_dir() else None)
    toolchain = find_toolchain(spec.backend, config)
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
        toolchain=toolchain.identity,
        tvm_ffi=_tvm_ffi()[1],
        kernlib=__version__,
    )
    digest = hashlib.sha256(repr(record.sources).encode()).hexdigest()
    source_dir = generated_dir(config) / spec.uri / digest[:_DIGEST_DIGITS]
    steps = _manifest(record, toolchain, source_dir, config)
    return BuildPlan(
        choice=choice,
        mode=mode,
        record=record,
        key=record_key(record),
        files=files,
        source_dir=source_dir,
        steps=steps,
    )


def _manifest(
    record: BuildRecord, toolchain: Toolchain, source_dir: Path, config: Config
) -> Manifest:
    """Return the build with every token replaced by the folder on this machine."""
    places = {
        "{root}": str(source_dir),
        "{tvm_ffi}": _tvm_ffi()[0],
        "{cuda}": toolchain.cuda_home,
        "{cxx}": toolchain.cxx,
    }

    def placed(words: tuple[str, ...]) -> tuple[str, ...]:
        for token, folder in places.items():
            words = tuple(word.replace(token, folder) for word in words)
        return words

    launcher = config.compiler_launcher
    tools = [("cxx", (*launcher, toolchain.cxx, *placed(record.flags["cxx"])))]
    if toolchain.nvcc:
        # How many threads nvcc uses changes nothing in what it makes: not part of the record.
        threads = ("--threads", str(config.nvcc_threads)) if config.nvcc_threads > 1 else ()
        nvcc = (*launcher, toolchain.nvcc, *threads, *placed(record.flags["cuda"]))
        tools.append(("nvcc", nvcc))
    steps = tuple(
        Step(f"{source_dir}/{unit}", object_name(unit), "nvcc" if unit.endswith(".cu") else "cxx")
        for unit in record.units
    )
    return Manifest(
        title=f"{record.uri} for {record.target}, {record.mode}",
        tools=tuple(tools),
        steps=steps,
        link=(toolchain.cxx, *placed(record.flags["ld"])),
        library=f"{record.name}.so",
    )

"""The toolchains g++ and nvcc, bound by tvm-ffi."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernlib.config import Mode
from kernlib.errors import LoadError, ToolchainError
from kernlib.jit import _gxx, _nvcc
from kernlib.jit._ninja import Manifest, Step, object_name
from kernlib.jit._sources import GENERATED, OWN_INCLUDE_DIRS, closure
from kernlib.jit._toolchain import find_toolchain

if TYPE_CHECKING:
    from kernlib.config import Config
    from kernlib.jit._record import BuildRecord
    from kernlib.jit._spec import KernelSpec

__all__ = ["Native", "tvm_ffi"]

_TVM_FFI = "apache-tvm-ffi"


@cache
def tvm_ffi() -> tuple[str, str]:
    """Return the folder and the version of tvm-ffi, without importing it (it imports torch)."""
    from importlib.util import find_spec

    found = find_spec("tvm_ffi")
    folders = list(found.submodule_search_locations or ()) if found else []
    try:
        return folders[0], metadata.version(_TVM_FFI)
    except (IndexError, metadata.PackageNotFoundError):
        raise ToolchainError("tvm_ffi", "not installed", f"pip install {_TVM_FFI}") from None


class Native:
    """Shared libraries: units by g++, those with device code by nvcc."""

    def __init__(self, name: str) -> None:
        self._name = name

    def files(self, spec: KernelSpec, override: Path | None) -> dict[str, bytes]:
        """Return the compile units and all they include, by label."""
        return closure(spec, override)

    def flags(
        self, spec: KernelSpec, mode: Mode, target: str, config: Config
    ) -> dict[str, tuple[str, ...]]:
        """Return the flags of each tool, with folders as tokens, after all overrides."""
        folders = dict.fromkeys((*spec.include_dirs, *OWN_INCLUDE_DIRS, GENERATED))
        includes = tuple(f"-I{{root}}/{folder}" for folder in folders)
        tvm_includes = ("-isystem", "{tvm_ffi}/include")
        cxx = (*_gxx.compile_flags(mode), *includes, *tvm_includes)
        link = _gxx.link_flags(mode, clang=_gxx.is_clang(config.cxx))
        flags: dict[str, tuple[str, ...]] = {}
        if self._name == "cuda":
            device = _nvcc.compile_flags(spec.name, mode, target)
            flags["cuda"] = (*device, *includes, *spec.cuda_flags, *config.extra_cudaflags)
            cxx += ("-isystem", "{cuda}/include")
            link += _nvcc.link_flags()
        flags["cxx"] = (*cxx, *spec.cflags, *config.extra_cflags)
        flags["ld"] = (*link, *spec.ldflags, *config.extra_ldflags)
        return flags

    def identity(self, config: Config) -> dict[str, str]:
        """Return which compilers build; starts one only if it is not known yet."""
        return dict(find_toolchain(self._name, config).identity)

    def binding(self) -> str:
        """Return the version of tvm-ffi, which the library is bound by."""
        return tvm_ffi()[1]

    def library(self, name: str) -> str:
        """Return the file name of a spec's library."""
        return f"{name}.so"

    def manifest(self, record: BuildRecord, source_dir: Path, config: Config) -> Manifest:
        """Return the build with every token replaced by the folder on this machine."""
        toolchain = find_toolchain(self._name, config)
        places = {
            "{root}": str(source_dir),
            "{tvm_ffi}": tvm_ffi()[0],
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
        return Manifest(
            title=f"{record.uri} for {record.target}, {record.mode}",
            tools=tuple(tools),
            steps=tuple(_step(source_dir, unit) for unit in record.units),
            link=(toolchain.cxx, *placed(record.flags["ld"])),
            library=self.library(record.name),
        )

    def problem(self, library: Path) -> str:  # noqa: ARG002 - part of the interface
        """Return what is wrong beside the library; nothing else belongs to it."""
        return ""

    def open(self, library: Path, mode: Mode) -> Any:  # noqa: ANN401 - tvm_ffi.Module
        """Return the loaded library; its exports are attributes.

        Raises LoadError if it cannot be loaded.
        """
        import tvm_ffi

        if mode in _RUNTIMES:
            _require_sanitizer(library, mode)
        try:
            return tvm_ffi.load_module(str(library))
        except (RuntimeError, OSError) as error:
            raise LoadError(library, str(error)) from error


def _step(source_dir: Path, unit: str) -> Step:
    tool = "nvcc" if unit.endswith(".cu") else "cxx"
    return Step(f"{source_dir}/{unit}", object_name(unit), tool)


#: The sanitizers that must be in a process from its start, with what they are called in g++.
_RUNTIMES = {Mode.SANITIZE: ("AddressSanitizer", "asan"), Mode.THREAD: ("ThreadSanitizer", "tsan")}


def _require_sanitizer(library: Path, mode: Mode) -> None:
    """Refuse a sanitized library where its sanitizer is not in the process from the start.

    It would end the process while the library is loaded.
    """
    name, short = _RUNTIMES[mode]
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    if f"lib{short}" not in maps and f"libclang_rt.{short}" not in maps:
        remedy = (
            f"run with LD_PRELOAD=$(g++ -print-file-name=lib{short}.so), as kernlib-replay does"
        )
        raise LoadError(library, f"{name} is not in this process; {remedy}")

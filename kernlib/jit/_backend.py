"""One interface for g++, nvcc and Triton."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from kernlib.jit._native import Native

if TYPE_CHECKING:
    from pathlib import Path

    from kernlib.config import Config, Mode
    from kernlib.jit._ninja import Manifest
    from kernlib.jit._record import BuildRecord
    from kernlib.jit._spec import KernelSpec

__all__ = ["Backend", "backend_named"]


class Backend(Protocol):
    """What a toolchain does its own way; look-up, lock, build and publishing are shared."""

    def files(self, spec: KernelSpec, override: Path | None) -> dict[str, bytes]:
        """Return every file that decides what is built, by label."""

    def flags(
        self, spec: KernelSpec, mode: Mode, target: str, config: Config
    ) -> dict[str, tuple[str, ...]]:
        """Return the flags of each tool, after all overrides; they name no path of the host.

        Raises SpecError for a mode, UnsupportedTargetError for a target it cannot build.
        """

    def identity(self, config: Config) -> dict[str, str]:
        """Return which toolchain builds; raises ToolchainError if it is missing."""

    def binding(self) -> str:
        """Return the version of what binds the artifact to Python."""

    def library(self, name: str) -> str:
        """Return the file name of what a spec of that name builds."""

    def manifest(self, record: BuildRecord, source_dir: Path, config: Config) -> Manifest:
        """Return the commands that build a record on this machine."""

    def problem(self, library: Path) -> str:
        """Return what is wrong with the files that a valid library names; empty if nothing is."""

    def open(self, library: Path, mode: Mode) -> Any:  # noqa: ANN401 - each has its own
        """Return a module of which the exported functions are attributes.

        Raises LoadError if it cannot be loaded.
        """


_NATIVE = {name: Native(name) for name in ("cpu", "cuda")}


def backend_named(name: str) -> Backend:
    """Return the backend that a spec names."""
    return _triton() if name == "triton" else _NATIVE[name]


@cache
def _triton() -> Backend:
    from kernlib.jit._triton import Triton  # most processes load no kernel of Triton

    return Triton()

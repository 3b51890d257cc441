"""The toolchain Triton: objects compiled ahead for one target."""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kernlib.config import Mode
from kernlib.errors import LoadError, SpecError, ToolchainError, UnsupportedTargetError
from kernlib.jit._ninja import Manifest, Step
from kernlib.jit._triton_launch import Listing, TritonModule

if TYPE_CHECKING:
    from kernlib.config import Config
    from kernlib.jit._record import BuildRecord
    from kernlib.jit._spec import KernelSpec

__all__ = ["Triton"]

_COMPILER = Path(__file__).with_name("_triton_compile.py")
_ARCH = re.compile(r"sm_(\d{2,3})([af]?)", re.ASCII)
_SUFFIX_FROM = 90  # where Triton builds for the architecture-specific instructions
_IMPORTED = {"__future__", "triton"}

_decoder = msgspec.json.Decoder(Listing)


class Triton:
    """A folder of objects, one a specialisation; its library is the JSON that lists them."""

    def files(self, spec: KernelSpec, override: Path | None) -> dict[str, bytes]:
        """Return the sources by label; they import Triton and nothing else.

        Raises SpecError for a source that is missing or imports what the record does not hold.
        """
        if len(spec.sources) > 1:
            raise SpecError(spec.name, f"{len(spec.sources)} sources; Triton compiles one a spec")
        root = spec.root if override is None else override
        found = {}
        for label in spec.sources:
            try:
                found[label] = (root / label).read_bytes()
            except OSError:
                raise SpecError(spec.name, f"source {label!r} is not below {root}") from None
            if foreign := _foreign_import(found[label]):
                raise SpecError(
                    spec.name,
                    f"{label} imports {foreign}; a Triton source imports triton alone, so that "
                    "the build record holds all that decides what is built",
                )
        return found

    def flags(
        self, spec: KernelSpec, mode: Mode, target: str, config: Config
    ) -> dict[str, tuple[str, ...]]:
        """Return what the compiling program is called with.

        Raises SpecError for a mode, UnsupportedTargetError for a target that Triton has not.
        """
        del config  # flags of other compilers mean nothing to Triton
        if mode not in {Mode.RELEASE, Mode.LINEINFO}:
            hint = "build lineinfo, or choose backend cuda or cpu"
            raise SpecError(spec.name, f"Triton builds release and lineinfo, not {mode}; {hint}")
        line_info = ("--line-info",) if mode is Mode.LINEINFO else ()
        return {"triton": ("--capability", _capability(spec, target), *line_info)}

    def identity(self, config: Config) -> dict[str, str]:
        """Return the version of Triton, which brings its own assembler."""
        del config  # there is one Triton: that of this Python
        try:
            return {"triton": metadata.version("triton")}
        except metadata.PackageNotFoundError:
            remedy = "pip install 'kernlib[triton]', or choose another backend"
            raise ToolchainError("triton", "not installed", remedy) from None

    def binding(self) -> str:
        """Return that tvm-ffi has no part in it: objects are launched through the driver."""
        return "not used"

    def library(self, name: str) -> str:
        """Return the file name of the listing of a spec's objects."""
        return f"{name}.json"

    def manifest(self, record: BuildRecord, source_dir: Path, config: Config) -> Manifest:
        """Return the one command that compiles all specialisations."""
        del config  # a compiler launcher caches what C compilers make
        library = self.library(record.name)
        return Manifest(
            title=f"{record.uri} for {record.target}, {record.mode}",
            tools=(("triton", (sys.executable, str(_COMPILER), *record.flags["triton"])),),
            steps=(Step(f"{source_dir}/{record.units[0]}", library, "triton"),),
            link=(),
            library=library,
        )

    def problem(self, library: Path) -> str:
        """Return which object is not the one that was built; empty if all are."""
        try:
            listing = _decoder.decode(library.read_bytes())
            for row in listing.kernels.values():
                if Path(row.object).name != row.object:
                    return f"{library.name} names {row.object!r}, which is no file beside it"
                data = (library.parent / row.object).read_bytes()
                if len(data) != row.size or hashlib.sha256(data).hexdigest() != row.sha256:
                    return f"{row.object} does not have the size and digest of its build"
        except OSError as error:
            return f"{error.filename} cannot be read ({error.strerror})"
        except msgspec.MsgspecError as error:
            return f"{library.name} is damaged ({error})"
        return ""

    def open(self, library: Path, mode: Mode) -> TritonModule:
        """Return the module; the driver is asked for at its first launch."""
        del mode  # both are launched alike
        try:
            return TritonModule(library.parent, _decoder.decode(library.read_bytes()))
        except (OSError, msgspec.MsgspecError) as error:
            raise LoadError(library, str(error)) from error


def _capability(spec: KernelSpec, target: str) -> str:
    """Return the number of a target that Triton builds under that very name."""
    match = _ARCH.fullmatch(target)
    number = int(match[1]) if match else 0
    made = f"sm_{number}{'a' if number >= _SUFFIX_FROM else ''}"
    if target != made:
        supported = (made,) if match else ("sm_80", "sm_90a", "sm_100a", "...")
        raise UnsupportedTargetError(f"{spec.uri} (Triton)", target, supported)
    return str(number)


def _foreign_import(source: bytes) -> str:
    """Return the first module a source imports that is not Triton; empty if there is none.

    What is no Python is left to the build, which shows the line.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = ["." * node.level + (node.module or "")]
        for name in names:
            if name.partition(".")[0] not in _IMPORTED:
                return name
    return ""

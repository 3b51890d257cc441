"""Tells whether two artifacts hold the same machine code."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import struct
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kernlib.errors import SelectionError, ToolchainError
from kernlib.jit._toolchain import clean_environment
from kernlib.jit._triton import Triton
from kernlib.jit._triton_launch import Listing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kernlib.config import Config

__all__ = [
    "HOST_CODE",
    "CodeComparison",
    "compare_code",
    "disassembler",
    "host_code",
    "kernel_digests",
    "machine_code",
]

#: What a library of the CPU has in the place of kernels: its code as a whole.
HOST_CODE = ".text"

_PACKAGES = {"cuobjdump": "nvidia-cuda-cuobjdump", "nvdisasm": "nvidia-cuda-nvdisasm"}
_TOOLS = "pip install 'kernlib[cuda-tools]', or install the CUDA toolkit"
_TOOLKIT = Path("/usr/local/cuda/bin")
_SECONDS = 60
_ELF64_LITTLE = b"\x7fELF\x02\x01"
_ELF_HEADER = 64
_SECTION_SIZE = 64
_CUDA_MACHINE = 190
_FATBIN = ".nv_fatbin"

_IMAGE = re.compile(r"^\s*code for (sm_\w+)\s*$")
_FUNCTION = re.compile(r"^\s*Function : (\S+)\s*$")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/ \S.* /\* 0x[0-9a-f]{16,} \*/")
_END = re.compile(r"^\s*\.{3,}\s*$")
_ENTRY = re.compile(r"^(?:STT_)?FUNC\s.*\b(?:STO_)?ENTRY\s+(\S+)\s*$")
#: nvcc puts a digest of path and flags into the names of what only one file sees.
_FILE_DIGEST = re.compile(r"(_GLOBAL__N__|_INTERNAL_)[0-9a-f]{8}(_\d+_\w+?_cu_)[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class CodeComparison:
    """The kernels of two artifacts by whether they hold the same machine code."""

    same: tuple[str, ...]
    different: tuple[str, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]

    @property
    def total(self) -> int:
        """How many kernels the two have together."""
        return len(self.same) + self.unlike

    @property
    def unlike(self) -> int:
        """How many kernels are not the same in both."""
        return len(self.different) + len(self.only_first) + len(self.only_second)


def compare_code(first: Mapping[str, str], second: Mapping[str, str]) -> CodeComparison:
    """Compare two artifacts by the digests of their kernels."""
    shared = sorted(first.keys() & second.keys())
    return CodeComparison(
        tuple(name for name in shared if first[name] == second[name]),
        tuple(name for name in shared if first[name] != second[name]),
        tuple(sorted(first.keys() - second.keys())),
        tuple(sorted(second.keys() - first.keys())),
    )


def machine_code(library: Path, config: Config) -> dict[str, str]:
    """Return a digest of the machine code of every kernel of a library, by its name.

    Of a library for the CPU that is one, of all its code; of a CUDA library it is one a kernel,
    without the code of the host; of a Triton listing one for each specialisation.

    Raises SelectionError for a file that is no library, ToolchainError if cuobjdump is missing or
    cannot read it.
    """
    if library.suffix == ".json":
        return _listed(library, config)
    try:
        data = library.read_bytes()
    except OSError as error:
        raise _unreadable(library, error.strerror or str(error)) from None
    try:
        sections = _sections(data)
        (machine,) = struct.unpack_from("<H", data, 18)
    except (struct.error, ValueError) as error:
        raise _unreadable(library, f"it is no 64-bit library ({error})") from None
    if machine != _CUDA_MACHINE and _FATBIN not in sections:
        return host_code(data)
    text = _disassembly(library, config)
    try:
        found = kernel_digests(text.splitlines())
    except ValueError as error:
        raise ToolchainError("cuobjdump", f"prints of {library}: {error}", _TOOLS) from None
    if not found:
        raise _unreadable(library, "it holds no kernels")
    return found


def _unreadable(library: Path, problem: str) -> SelectionError:
    return SelectionError(f"{library}: {problem}", "Give a key, or the path of a built library")


def _listed(library: Path, config: Config) -> dict[str, str]:
    """Return the digests of the objects that a Triton listing names."""
    if problem := Triton().problem(library):
        raise _unreadable(library, problem)
    listing = msgspec.json.decode(library.read_bytes(), type=Listing)
    found = {}
    for name, row in listing.kernels.items():
        code = machine_code(library.parent / row.object, config)
        found[name] = _digest(f"{kernel} {digest}" for kernel, digest in sorted(code.items()))
    return found


def _sections(data: bytes) -> dict[str, bytes]:
    """Return the sections of an ELF file by name; raises ValueError or struct.error."""
    if data[:6] != _ELF64_LITTLE:
        raise ValueError("not a little-endian ELF file")
    (table,) = struct.unpack_from("<Q", data, 40)
    _, count, names = struct.unpack_from("<HHH", data, 58)
    rows = [struct.unpack_from("<IIQQQQ", data, table + _SECTION_SIZE * n) for n in range(count)]
    if names >= count:
        raise ValueError("its sections have no names")
    texts = data[rows[names][4] : rows[names][4] + rows[names][5]]
    return {
        texts[row[0] : texts.index(b"\0", row[0])].decode(errors="replace"): data[
            row[4] : row[4] + row[5]
        ]
        for row in rows
    }


def host_code(data: bytes) -> dict[str, str]:
    """Return the digest of the code section of a library for the CPU.

    Raises ValueError or struct.error if it has none.
    """
    code = _sections(data).get(HOST_CODE)
    if code is None:
        raise ValueError("it has no code")
    return {HOST_CODE: hashlib.sha256(code).hexdigest()}


def kernel_digests(lines: Iterable[str]) -> dict[str, str]:
    """Return a digest a kernel from what ``cuobjdump -symbols -sass`` prints.

    Instructions count with their addresses and encodings, which hold the scheduling too; names
    of files and what line tables add do not. Which function a call leads to is not printed, so
    that a kernel counts with every device function beside it.

    Raises ValueError for a function without instructions: nothing could be said of it.
    """
    found: dict[str, list[str]] = {}
    for image in _images(lines):
        for name, code_lines in image.functions.items():
            if not any(map(_INSTRUCTION.match, code_lines)):
                raise ValueError(f"no instruction of {name}")
        entries = {name for name in image.entries if name in image.functions}
        kernels = entries or image.functions.keys()
        beside = [
            _digest([name, *image.functions[name]])
            for name in sorted(image.functions.keys() - kernels)
        ]
        for name in kernels:
            code = _digest([image.target, *image.functions[name], *beside])
            found.setdefault(name, []).append(code)
    return {name: _digest(sorted(codes)) for name, codes in found.items()}


class _Image:
    """What is printed of one object for one target."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.functions: dict[str, list[str]] = {}
        self.entries: set[str] = set()


def _images(lines: Iterable[str]) -> list[_Image]:
    images: list[_Image] = []
    code: list[str] | None = None
    for line in lines:
        if match := _IMAGE.match(line):
            images.append(_Image(match[1]))
            code = None
        elif not images or _END.match(line):
            code = None
        elif match := _FUNCTION.match(line):
            code = images[-1].functions.setdefault(_plain(match[1]), [])
        elif match := _ENTRY.match(line):
            images[-1].entries.add(_plain(match[1]))
        elif code is not None and line.strip():
            code.append(_plain(" ".join(line.split())))
    return images


def _plain(text: str) -> str:
    return _FILE_DIGEST.sub(r"\1\2", text)


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def disassembler(config: Config) -> tuple[str, str] | None:
    """Return cuobjdump and the nvdisasm that it calls, or None if one is missing.

    They are looked for on PATH, in /usr/local/cuda, beside nvcc and in their packages.
    """
    cuobjdump, nvdisasm = _located("cuobjdump", config), _located("nvdisasm", config)
    return (cuobjdump, nvdisasm) if cuobjdump and nvdisasm else None


def _located(program: str, config: Config) -> str | None:
    if found := shutil.which(program):
        return found
    candidates = [_TOOLKIT / program]
    if nvcc := shutil.which(config.nvcc):
        candidates.append(Path(nvcc).resolve().with_name(program))
    try:
        shipped = metadata.files(_PACKAGES[program]) or ()
        candidates += [Path(str(file.locate())) for file in shipped if file.name == program]
    except metadata.PackageNotFoundError:
        pass
    return next((str(path) for path in candidates if os.access(path, os.X_OK)), None)


def _disassembly(library: Path, config: Config) -> str:
    tools = disassembler(config)
    if tools is None:
        raise ToolchainError("cuobjdump", "not found, or its nvdisasm is not", _TOOLS)
    cuobjdump, nvdisasm = tools
    environment = clean_environment()
    folders = (str(Path(nvdisasm).parent), environment.get("PATH", ""))
    environment["PATH"] = os.pathsep.join(filter(None, folders))
    try:
        done = subprocess.run(
            [cuobjdump, "-symbols", "-sass", str(library.absolute())],
            capture_output=True, text=True, errors="replace", check=True, timeout=_SECONDS,
            env=environment, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        told = (error.stderr or error.stdout).strip().partition("\n")[0]
        raise ToolchainError(cuobjdump, f"cannot read {library}: {told}", "Check both") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(cuobjdump, f"does not answer: {error}", "Check it") from None
    return done.stdout

"""Finds compilers and says which they are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kernlib.errors import ToolchainError
from kernlib.jit._workspace import workspace_dir

if TYPE_CHECKING:
    from kernlib.config import Config

__all__ = ["Toolchain", "clean_environment", "find_toolchain", "toolchain_identity"]

_SECONDS = 60
# What sanitizers and debuggers inject into a process is meant for it, not for its compilers.
_INJECTED = frozenset(
    {"LD_PRELOAD", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "PYTHONMALLOC",
     "CUDA_INJECTION64_PATH", "CUDA_INJECTION32_PATH", "NVTX_INJECTION64_PATH"}
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """The compilers of one backend; ``identity`` is what the build record holds of them."""

    cxx: str
    identity: dict[str, str]
    nvcc: str = ""
    cuda_home: str = ""


class _Answer(msgspec.Struct, frozen=True):
    """What a compiler said, and the file it was when it said so."""

    size: int
    mtime_ns: int
    identity: str
    home: str = ""


def clean_environment() -> dict[str, str]:
    """Return this process's environment without what was injected into it."""
    return {name: value for name, value in os.environ.items() if name not in _INJECTED}


def _locate(program: str, variable: str, remedy: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise ToolchainError(program, "not found on PATH", f"{remedy}, or set {variable}")
    return found


def _run(command: list[str], variable: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_SECONDS,
            env=clean_environment(), stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(
            command[0], f"does not answer {' '.join(command[1:])}: {error}", f"Check {variable}"
        ) from None
    return done.stdout + done.stderr


def _ask_cxx(path: str) -> tuple[str, str]:
    first = _run([path, "--version"], "KERNLIB_CXX").splitlines()[0]
    machine = _run([path, "-dumpmachine"], "KERNLIB_CXX").strip()
    return f"{first}, {machine}", ""


def _ask_nvcc(path: str) -> tuple[str, str]:
    text = _run([path, "--version"], "KERNLIB_NVCC")
    version = re.search(r"release [^,]+, (V\S+)", text)
    # The program on PATH may be a wrapper; nvcc itself knows where its toolkit lies.
    dry = _run([path, "--dryrun", "-x", "cu", "-c", os.devnull], "KERNLIB_NVCC")
    top = re.search(r"^#\$ TOP=(.+)$", dry, re.MULTILINE)
    home = Path(top[1].strip()) if top else Path(path).resolve().parent.parent
    if not (home / "include" / "cuda_runtime.h").exists():
        raise ToolchainError(
            path, f"its toolkit {home} has no include/cuda_runtime.h",
            "Install the CUDA toolkit's headers, or set KERNLIB_NVCC to another nvcc",
        )  # fmt: skip
    return f"nvcc {version[1] if version else text.strip()[-40:]}", str(home.resolve())


class _Answers:
    """Answers kept in the workspace: asking costs more than a warm load may take."""

    def __init__(self, config: Config) -> None:
        self._path = workspace_dir(config) / "toolchains.json"
        try:
            self._known = msgspec.json.decode(self._path.read_bytes(), type=dict[str, _Answer])
        except (OSError, msgspec.MsgspecError):
            self._known = {}

    def of(self, path: str, *, cuda: bool) -> _Answer:
        real = os.path.realpath(path)
        facts = os.stat(real)  # noqa: PTH116 - realpath is already a str
        known = self._known.get(real)
        if known and (known.size, known.mtime_ns) == (facts.st_size, facts.st_mtime_ns):
            return known
        identity, home = _ask_nvcc(path) if cuda else _ask_cxx(path)
        answer = _Answer(facts.st_size, facts.st_mtime_ns, identity, home)
        self._known[real] = answer
        self._save()
        return answer

    def _save(self) -> None:
        temporary = self._path.with_name(f".toolchains.{os.getpid()}.tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(msgspec.json.encode(self._known))
            temporary.replace(self._path)
        except OSError:
            return  # a read-only workspace only costs the question again


_found: dict[tuple[str, str, str, str], Toolchain] = {}


def find_toolchain(backend: str, config: Config) -> Toolchain:
    """Return the compilers for a backend; starts one only if it is not known yet.

    Raises ToolchainError naming what is missing and the variable that points to another one.
    """
    key = (backend, config.cxx, config.nvcc, str(workspace_dir(config)))
    if (known := _found.get(key)) is not None:
        return known
    answers = _Answers(config)
    cxx = _locate(config.cxx, "KERNLIB_CXX", "Install g++")
    host = answers.of(cxx, cuda=False)
    if backend == "cuda":
        nvcc = _locate(config.nvcc, "KERNLIB_NVCC", "Install the CUDA toolkit")
        device = answers.of(nvcc, cuda=True)
        identity = {"cxx": host.identity, "nvcc": device.identity}
        found = Toolchain(cxx=cxx, identity=identity, nvcc=nvcc, cuda_home=device.home)
    else:
        found = Toolchain(cxx=cxx, identity={"cxx": host.identity})
    _found[key] = found
    return found


def toolchain_identity(backend: str, config: Config) -> dict[str, str]:
    """Return the identity of a backend's compilers; raises ToolchainError if one is missing."""
    return dict(find_toolchain(backend, config).identity)

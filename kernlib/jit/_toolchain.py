"""Finds compilers and says which they are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kernlib.errors import ToolchainError
from kernlib.jit._workspace import workspace_dir

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernlib.config import Config

__all__ = [
    "Toolchain",
    "clean_environment",
    "find_toolchain",
    "flag_variables",
    "toolchain_class",
    "toolchain_identity",
]

_SECONDS = 60
#: What sanitizers and profilers inject into a process is meant for it, not for its compilers.
_INJECTED = re.compile(r"LD_PRELOAD|LD_AUDIT|[A-Z]*SAN_OPTIONS|PYTHONMALLOC|\w*INJECTION\w*")
_INJECTED_FOLDER = re.compile("sanitizer|nsight", re.IGNORECASE)
#: Variables of the compilers themselves that change what they make, so that the record needs them.
_STEERING = (
    "COMPILER_PATH", "CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH", "GCC_EXEC_PREFIX",
    "LIBRARY_PATH", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS",
)  # fmt: skip

#: Of these, the ones that hold flags; the others name folders of the machine that builds.
_FLAGS = ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS")
_REMARKS = re.compile(r"\([^)]*\)")
_VERSION = re.compile(r"(?<![\w.])V?(\d+)\.\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """The compilers of one backend; ``identity`` is what the build record holds of them."""

    cxx: str
    identity: dict[str, str]
    nvcc: str = ""
    cuda_home: str = ""


class _Answer(msgspec.Struct, frozen=True):
    """What a compiler said, and size and time of the files that said it."""

    identity: str
    files: dict[str, tuple[int, int]]
    home: str = ""


def clean_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment, this process's by default, without what was injected into it.

    Messages are asked for in English: the first error of a log is found by its words.
    """
    environ = os.environ if environ is None else environ
    kept = {name: value for name, value in environ.items() if not _INJECTED.fullmatch(name)}
    if libraries := kept.pop("LD_LIBRARY_PATH", ""):
        own = [part for part in libraries.split(":") if not _INJECTED_FOLDER.search(part)]
        kept.update({"LD_LIBRARY_PATH": ":".join(own)} if own else {})
    return {**kept, "LC_ALL": "C"}


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


def _ask_cxx(path: str) -> _Answer:
    first = _run([path, "--version"], "KERNLIB_CXX").partition("\n")[0]
    machine = _run([path, "-dumpmachine"], "KERNLIB_CXX").strip()
    return _Answer(f"{first}, {machine}", _files(path))


def _ask_nvcc(path: str) -> _Answer:
    text = _run([path, "--version"], "KERNLIB_NVCC")
    version = re.search(r"release [^,]+, (V\S+)", text)
    # The program on PATH may be a wrapper; nvcc itself knows where its toolkit lies.
    dry = _run([path, "--dryrun", "-x", "cu", "-c", os.devnull], "KERNLIB_NVCC")
    top = re.search(r"^#\$ TOP=(.+)$", dry, re.MULTILINE)
    home = (Path(top[1].strip()) if top else Path(path).resolve().parent.parent).resolve()
    if not (home / "include" / "cuda_runtime.h").exists():
        raise ToolchainError(
            path, f"its toolkit {home} has no include/cuda_runtime.h",
            "Install the CUDA toolkit's headers, or set KERNLIB_NVCC to another nvcc",
        )  # fmt: skip
    identity = f"nvcc {version[1] if version else text.strip()[-40:]}"
    return _Answer(identity, _files(path, str(home / "bin" / "nvcc")), str(home))


def _files(*paths: str) -> dict[str, tuple[int, int]]:
    """Return size and time of what the paths lead to; an absent file has neither."""
    facts = {}
    for path in map(os.path.realpath, paths):
        try:
            found = os.stat(path)  # noqa: PTH116 - realpath is already a str
            facts[path] = (found.st_size, found.st_mtime_ns)
        except OSError:
            facts[path] = (0, 0)
    return facts


class _Answers:
    """Answers kept in the workspace: asking costs more than a warm load may take."""

    def __init__(self, config: Config) -> None:
        self._path = workspace_dir(config) / "toolchains.json"
        try:
            self._known = msgspec.json.decode(self._path.read_bytes(), type=dict[str, _Answer])
        except (OSError, msgspec.MsgspecError):
            self._known = {}

    def of(self, path: str, *, cuda: bool) -> _Answer:
        # By the name it is called by: one launcher program may serve under many.
        known = self._known.get(path)
        if (
            known is not None
            and os.path.realpath(path) in known.files
            and _files(*known.files) == known.files
        ):
            return known
        answer = self._known[path] = _ask_nvcc(path) if cuda else _ask_cxx(path)
        self._save()
        return answer

    def _save(self) -> None:
        temporary = self._path.with_name(f".toolchains.{uuid.uuid4().hex}.tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(msgspec.json.encode(self._known))
            temporary.replace(self._path)
        except OSError:
            return  # a read-only workspace only costs the question again


_found: dict[tuple[str, ...], Toolchain] = {}


def find_toolchain(backend: str, config: Config) -> Toolchain:
    """Return the compilers for a backend; starts one only if it is not known yet.

    Raises ToolchainError naming what is missing and the variable that points to another one.
    """
    steering = {name: value for name in _STEERING if (value := os.environ.get(name))}
    key = (
        backend,
        config.cxx,
        config.nvcc,
        str(workspace_dir(config)),
        *map(str, steering.items()),
    )
    if (known := _found.get(key)) is not None:
        return known
    answers = _Answers(config)
    cxx = _locate(config.cxx, "KERNLIB_CXX", "Install g++")
    identity = {"cxx": answers.of(cxx, cuda=False).identity, **steering}
    if backend == "cuda":
        nvcc = _locate(config.nvcc, "KERNLIB_NVCC", "Install the CUDA toolkit")
        device = answers.of(nvcc, cuda=True)
        identity["nvcc"] = device.identity
        found = Toolchain(cxx=cxx, identity=identity, nvcc=nvcc, cuda_home=device.home)
    else:
        found = Toolchain(cxx=cxx, identity=identity)
    _found[key] = found
    return found


def flag_variables() -> dict[str, str]:
    """Return the variables of the environment that add flags to a compiler's own."""
    return {name: value for name in _FLAGS if (value := os.environ.get(name))}


def toolchain_class(identity: Mapping[str, str]) -> dict[str, str]:
    """Return what of a toolchain two machines must share for one to run what the other built.

    Of a host compiler that is its family, major version and processor (``g++ 12, x86_64``), of
    nvcc its major version, of any other tool all of it.
    """
    found = {name: text for name, text in identity.items() if name not in _STEERING}
    if text := found.get("cxx"):
        compiler, _, machine = text.rpartition(", ")
        found["cxx"] = f"{_family(compiler)}, {machine.partition('-')[0]}"
    if text := found.get("nvcc"):
        found["nvcc"] = _family(text)
    return {**found, **{name: identity[name] for name in _FLAGS if name in identity}}


def _family(text: str) -> str:
    """Return name and major version: ``g++ 12`` of ``g++ (Debian 12.2.0-14) 12.2.0``."""
    plain = _REMARKS.sub(" ", text)
    version = _VERSION.search(plain)
    if version is None:
        return text
    words = plain[: version.start()].lower()
    known = ("clang", "g++", "gcc", "c++", "nvcc")
    name = next((word for word in known if word in words), " ".join(words.split()))
    return f"{'g++' if name in {'gcc', 'c++'} else name} {version[1]}"


def toolchain_identity(backend: str, config: Config) -> dict[str, str]:
    """Return the identity of a backend's compilers; raises ToolchainError if one is missing."""
    return dict(find_toolchain(backend, config).identity)

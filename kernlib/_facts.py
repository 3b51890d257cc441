"""What this process runs on: versions, devices, toolchains, controls."""

from __future__ import annotations

import os
import platform
import socket
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from kernlib._version import __version__

if TYPE_CHECKING:
    from kernlib.config import Config
    from kernlib.dump import Process

__all__ = ["cpus", "devices", "driver_version", "rank", "session_facts", "toolchains", "versions"]

_PACKAGES = ("torch", "apache-tvm-ffi", "safetensors", "structlog", "ninja", "triton")


def versions() -> dict[str, str]:
    """Return the versions of kernlib, Python and the packages kernlib works with."""
    found = {"kernlib": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    torch = sys.modules.get("torch")
    if torch is not None and torch.version.cuda:
        found["cuda (torch)"] = torch.version.cuda
    return found


def driver_version() -> str | None:
    """Return the version of the loaded NVIDIA driver, read from the kernel's own file."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return None
    words = text.split()
    return next((word for word in words if word[:1].isdigit() and "." in word), None)


def devices() -> list[str]:
    """Return the CUDA devices torch sees; asks torch only if it is loaded."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return []
    described = []
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        gibibytes = facts.total_memory / 2**30
        described.append(
            f"cuda:{index} {facts.name}, compute capability {facts.major}.{facts.minor}, "
            f"{gibibytes:.0f} GiB"
        )
    return described


def cpus() -> set[int]:
    """Return the processors this process may run on."""
    return os.sched_getaffinity(0)


def rank() -> int | None:
    """Return the rank a launcher such as torchrun gave this process."""
    text = os.environ.get("RANK", "")
    return int(text) if text.isdigit() else None


def toolchains(config: Config) -> dict[str, str]:
    """Return the compilers the JIT would use, or why there is none."""
    from kernlib import jit
    from kernlib.errors import ToolchainError

    found = {}
    for backend in ("cpu", "cuda"):
        try:
            found.update(jit.toolchain_identity(backend, config))
        except ToolchainError as error:
            found[f"({backend})"] = str(error)
    return found


def _uses_cuda() -> bool:
    """Return whether CUDA is at work here: to ask for devices would start it.

    A process that has started CUDA cannot fork workers that use it, and in a worker forked from
    such a process torch refuses to be asked.
    """
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


def session_facts(config: Config) -> Process:
    """Return what a recorded session says of its process."""
    from kernlib.dump import Process

    return Process(
        host=socket.gethostname(),
        pid=os.getpid(),
        rank=rank(),
        argv=tuple(sys.argv),
        python=sys.version.split()[0],
        versions=versions(),
        devices=tuple(devices()) if _uses_cuda() else (),
        driver=driver_version(),
        controls=config.to_env(),
    )

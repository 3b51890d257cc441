"""What differs between the recorded machine and this one."""

from __future__ import annotations

import os
import platform
import socket
from importlib import metadata
from typing import TYPE_CHECKING

from kernlib._facts import driver_version
from kernlib._version import __version__
from kernlib.config import get_config

if TYPE_CHECKING:
    from kernlib.dump import Session
    from kernlib.replay._protocol import Here

__all__ = ["machine_differences", "machine_text", "still_running"]


#: Variables that change what a kernel is or how it runs, apart from its build's own mode.
_FLAGS = (
    "KERNLIB_ALLOW_VERSION_MISMATCH", "KERNLIB_AOT_DIR", "KERNLIB_CXX",
    "KERNLIB_EXTRA_CFLAGS", "KERNLIB_EXTRA_CUDAFLAGS", "KERNLIB_EXTRA_LDFLAGS",
    "KERNLIB_JIT_SOURCES", "KERNLIB_NVCC",
)  # fmt: skip


def _version(name: str) -> str | None:
    if name == "kernlib":
        return __version__
    if name == "python":
        return platform.python_version()
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _model(device: str) -> str:
    """Return a device without its number: ``NVIDIA H200, compute capability 9.0, 140 GiB``."""
    return device.partition(" ")[2]


def machine_text(here: Here | None) -> str:
    """Return what this machine is; of its devices only what a child has seen."""
    models = dict.fromkeys(_model(device) for device in here.devices) if here else {}
    versions = here.versions if here else {name: _version(name) for name in ("kernlib", "python")}
    driver = driver_version()
    parts = list(models) or [f"{platform.machine()} without a CUDA device in use"]
    parts += [f"driver {driver}"] if driver else []
    parts += [f"{name} {version}" for name, version in versions.items() if name in _TOLD]
    return ", ".join(parts)


_TOLD = ("kernlib", "torch", "cuda (torch)", "python")


def machine_differences(session: Session | None, here: Here | None = None) -> list[str]:
    """Return one line for every recorded fact that is another one here.

    Devices are compared where both the recorded process and the child had started CUDA.
    """
    if session is None:
        return ["the session's own file cannot be read, so the machines cannot be compared"]
    process = session.process
    now = dict(here.versions) if here else {}
    lines = []
    for name, recorded in sorted(process.versions.items()):
        known = now.get(name) if " " in name else _version(name)
        if " " in name and not now:
            continue  # a version inside another package, which only a child can ask
        if known != recorded:
            lines.append(_difference(name, recorded, known))
    if (driver := driver_version()) != process.driver:
        lines.append(_difference("driver", process.driver, driver))
    devices = sorted({_model(device) for device in here.devices}) if here else []
    recorded_devices = sorted({_model(device) for device in process.devices})
    if devices and recorded_devices and devices != recorded_devices:
        lines.append(_difference("GPU", ", ".join(recorded_devices), ", ".join(devices)))
    controls = get_config().to_env()
    changed = [name for name in _FLAGS if process.controls.get(name) != controls.get(name)]
    return lines + [
        _difference(name, process.controls.get(name), controls.get(name)) for name in changed
    ]


def _difference(name: str, recorded: str | None, here: str | None) -> str:
    return f"{name} {recorded or 'none'} was recorded, here is {here or 'none'}"


def still_running(session: Session | None) -> str | None:
    """Return a sentence if the recording process may be alive: then nothing has crashed yet."""
    if session is None or session.process.host != socket.gethostname():
        return None
    pid = session.process.pid
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # it is there, and somebody else's
    return f"a process with the recorded pid {pid} is running: the call may just not have ended"

"""What differs between the recorded machine and this one."""

from __future__ import annotations

import os
import platform
import socket
from importlib import metadata
from typing import TYPE_CHECKING

from kernlib._facts import driver_version
from kernlib._version import __version__

if TYPE_CHECKING:
    from kernlib.dump import Session

__all__ = ["machine_differences", "still_running"]


def _version(name: str) -> str | None:
    if name == "kernlib":
        return __version__
    if name == "python":
        return platform.python_version()
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def machine_differences(session: Session | None) -> list[str]:
    """Return one line for every recorded version that is another one here."""
    if session is None:
        return ["the session's own file cannot be read, so the machines cannot be compared"]
    lines = []
    for name, recorded in sorted(session.process.versions.items()):
        if " " in name:
            continue  # a version inside another package, such as torch's CUDA
        here = _version(name)
        if here != recorded:
            lines.append(f"{name} {recorded} was recorded, here is {here or 'none'}")
    driver = driver_version()
    if driver != session.process.driver:
        lines.append(
            f"driver {session.process.driver or 'none'} was recorded, here is {driver or 'none'}"
        )
    return lines


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

"""What differs between the recorded machine and this one."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import TYPE_CHECKING

from kernlib._version import __version__

if TYPE_CHECKING:
    from kernlib.dump import Session

__all__ = ["machine_differences"]


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
    return lines

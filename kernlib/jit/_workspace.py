"""The folders the JIT reads from and writes to."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kernlib.errors import LoadError

if TYPE_CHECKING:
    from kernlib.config import Config
    from kernlib.jit._record import BuildRecord

__all__ = [
    "artifacts_dir",
    "generated_dir",
    "locks_dir",
    "logs_dir",
    "quarantine_dir",
    "source_dir_of",
    "source_root",
    "workspace_dir",
]

_DIGEST_DIGITS = 16


@cache
def source_root() -> Path:
    """Return the read-only folder that holds kernlib's ``csrc`` and ``include``.

    In a wheel that is inside the package, in an editable install the repository.

    Raises LoadError if neither is there.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_sources", package.parent):
        if (folder / "csrc").is_dir() and (folder / "include").is_dir():
            return folder
    raise LoadError(package, "the installation has no csrc and include folders; install it again")


def workspace_dir(config: Config) -> Path:
    """Return the writable folder of generated sources and artifacts."""
    if config.workspace is not None:
        return config.workspace.absolute()
    import platformdirs

    return platformdirs.user_cache_path("kernlib")


def generated_dir(config: Config) -> Path:
    """Return the folder of rendered and copied sources."""
    return workspace_dir(config) / "generated"


def source_dir_of(record: BuildRecord, config: Config) -> Path:
    """Return the folder of the sources of one build; other sources are in another one."""
    digest = hashlib.sha256(repr(record.sources).encode()).hexdigest()
    return generated_dir(config) / record.uri / digest[:_DIGEST_DIGITS]


def artifacts_dir(config: Config) -> Path:
    """Return the folder of built libraries, one folder a key."""
    return workspace_dir(config) / "artifacts"


def locks_dir(config: Config) -> Path:
    """Return the folder of lock files, which are never removed."""
    return workspace_dir(config) / "locks"


def logs_dir(config: Config) -> Path:
    """Return the folder of the logs of failed builds."""
    return workspace_dir(config) / "logs"


def quarantine_dir(config: Config) -> Path:
    """Return the folder of artifacts that did not match their record."""
    return workspace_dir(config) / "quarantine"

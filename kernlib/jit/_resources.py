"""How many compilers fit this machine."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernlib.config import Config

__all__ = ["available_memory", "job_count"]

_PER_THREAD = 2 << 30  # bytes one compiler thread may need at its worst


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _cgroup_rooms(root: Path, own: str) -> Iterator[int]:
    """Yield the bytes left in each control group of this process that has a limit.

    ``own`` is the text of ``/proc/self/cgroup``. A group's ancestors limit it too; where the
    process sees only its own group, that is the root.
    """
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            base, names = root, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            base, names = root / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        group = base / path.lstrip("/")
        for folder in (group, *(up for up in group.parents if up.is_relative_to(base))):
            limit, used = (_number(folder / name) for name in names)
            if limit is not None and used is not None:
                yield max(limit - used, 0)


def available_memory() -> int | None:
    """Return the bytes this process may still take: of the machine, and of its cgroups."""
    found = []
    with contextlib.suppress(OSError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found = [int(row.split()[1]) << 10 for row in lines if row.startswith("MemAvailable:")]
    with contextlib.suppress(OSError):
        own = Path("/proc/self/cgroup").read_text(encoding="utf-8")
        found += _cgroup_rooms(Path("/sys/fs/cgroup"), own)
    return min(found, default=None)


def job_count(config: Config) -> int:
    """Return how many compilers to run at once: cores and memory decide, unless set."""
    if config.max_jobs:
        return config.max_jobs
    cores = len(os.sched_getaffinity(0))
    memory = available_memory()
    if memory is None:
        return cores
    return max(1, min(cores, memory // (_PER_THREAD * config.nvcc_threads)))

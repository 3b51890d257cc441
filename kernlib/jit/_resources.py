"""How many compilers fit this machine."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernlib.config import Config

__all__ = ["available_memory", "job_count"]

_PER_THREAD = 2 << 30  # bytes one compiler thread may need at its worst


def _number(path: str) -> int | None:
    try:
        text = Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def available_memory() -> int | None:
    """Return the bytes this process may still take: of the machine, and of its cgroup."""
    found = []
    with contextlib.suppress(OSError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found = [int(row.split()[1]) << 10 for row in lines if row.startswith("MemAvailable:")]
    limit, used = _number("/sys/fs/cgroup/memory.max"), _number("/sys/fs/cgroup/memory.current")
    if limit is not None and used is not None:
        found.append(max(limit - used, 0))
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

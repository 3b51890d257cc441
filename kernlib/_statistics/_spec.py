"""The libraries that hold the statistics."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kernlib import jit

if TYPE_CHECKING:
    from kernlib.jit import KernelSpec

__all__ = ["statistics_choice", "statistics_spec"]

_TARGETS = {"cpu": ("cpu",), "cuda": ("sm_80+",)}
_UNITS = {"cpu": "csrc/statistics/statistics_cpu.cc", "cuda": "csrc/statistics/statistics.cu"}


@cache
def statistics_spec(backend: str = "cpu") -> KernelSpec:
    """Return the spec of the library for a backend, ``cpu`` or ``cuda``."""
    return jit.KernelSpec(
        name="statistics",
        backend=backend,
        root=jit.source_root(),
        sources=(
            _UNITS[backend],
            "csrc/statistics/binding.cc",
            f"csrc/common/backend_{backend}.cc",
        ),
        # Lets the loops that ask for it reorder a sum; no runtime comes with it.
        cflags=("-fopenmp-simd",) if backend == "cpu" else (),
        targets=_TARGETS[backend],
    )


def statistics_choice(backend: str, target: str) -> jit.KernelChoice:
    """Return the library of a backend for a target."""
    spec = statistics_spec(backend)
    return jit.KernelChoice(spec=spec, target=target, reason="statistics of recorded tensors")

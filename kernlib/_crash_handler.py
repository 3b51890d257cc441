"""The kernel that tells what signal ended a process."""

from __future__ import annotations

from functools import cache

from kernlib import jit

__all__ = ["crash_spec"]


@cache
def crash_spec() -> jit.KernelSpec:
    """Return the spec of the signal handler."""
    return jit.KernelSpec(
        name="crash",
        backend="cpu",
        root=jit.source_root(),
        sources=("csrc/crash/binding.cc",),
        targets=("cpu",),
    )

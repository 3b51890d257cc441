"""What to build for a device."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from kernlib import jit

__all__ = ["kernels_for", "spec"]

_TARGETS = {"cpu": ("cpu",), "cuda": ("sm_80+",)}


@cache
def spec(backend):
    """Return the spec of the one library; its backend's error texts are kernlib's."""
    kernels = "faults.cu" if backend == "cuda" else "faults_cpu.cc"
    return jit.KernelSpec(
        name="faults",
        backend=backend,
        root=Path(__file__).resolve().parent,
        sources=(
            f"csrc/faults/{kernels}",
            "csrc/faults/binding.cc",
            f"csrc/common/backend_{backend}.cc",
        ),
        targets=_TARGETS[backend],
    )


@cache
def kernels_for(device):
    """Return the kernels for the device of a call's first tensor."""
    reason = f"the tensors are on {device}"
    choice = jit.KernelChoice(spec=spec(device.type), target=jit.target_of(device), reason=reason)
    return (choice,)

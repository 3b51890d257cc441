"""Which library of kernlib's own sources serves a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernlib import jit
from kernlib.errors import UnsupportedTargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from kernlib.jit import KernelChoice, KernelSpec

__all__ = ["choose", "library_spec"]

_TARGETS = {"cpu": ("cpu",), "cuda": ("sm_80+",)}


def library_spec(
    name: str,
    unit: str,
    backend: str,
    *,
    params: Mapping[str, str | int | bool] | None = None,
    headers: Mapping[str, str] | None = None,
) -> KernelSpec:
    """Return the spec of an operator whose kernels are ``csrc/<unit>.cu`` and ``<unit>_cpu.cc``.

    The binding beside them serves both backends: it links with one of the backends in
    ``csrc/common``.
    """
    folder = unit.rpartition("/")[0]
    kernels = f"csrc/{unit}.cu" if backend == "cuda" else f"csrc/{unit}_{backend}.cc"
    return jit.KernelSpec(
        name=name,
        backend=backend,
        root=jit.source_root(),
        sources=(kernels, f"csrc/{folder}/binding.cc", f"csrc/common/backend_{backend}.cc"),
        params=tuple(sorted((params or {}).items())),
        headers=tuple(sorted((headers or {}).items())),
        targets=_TARGETS[backend],
    )


def choose(
    name: str, spec_of: Callable[[str], KernelSpec], argument: str, device: torch.device
) -> KernelChoice:
    """Return the kernel for the device that ``argument`` is on.

    Raises TypeError for something that is no tensor, UnsupportedTargetError for a device that
    kernlib has no backend for.
    """
    import torch

    if not isinstance(device, torch.device):
        raise TypeError(f"{argument} is on {device!r}; a torch.Tensor is needed")
    backend = device.type
    if backend not in _TARGETS:
        raise UnsupportedTargetError(name, str(device), tuple(_TARGETS))
    target = jit.target_of(device)
    reason = f"{argument} is on {device}"
    if backend == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        reason += f", compute capability {major}.{minor}"
    return jit.KernelChoice(spec=spec_of(backend), target=target, reason=reason)

"""Which library of kernlib's own sources serves a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernlib import jit
from kernlib.errors import ArgumentError, UnsupportedTargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from kernlib.jit import KernelChoice, KernelSpec

__all__ = ["choose", "library_spec", "triton_spec"]

_TARGETS = {"cpu": ("cpu",), "cuda": ("sm_80+",), "triton": ("sm_80+",)}
#: The devices, each the name of its default backend, and what else runs there.
_BACKENDS = {"cpu": ("cpu",), "cuda": ("cuda", "triton")}


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


def triton_spec(name: str, unit: str) -> KernelSpec:
    """Return the spec of an operator's kernels in Triton, ``csrc/<unit>_triton.py``."""
    return jit.KernelSpec(
        name=name,
        backend="triton",
        root=jit.source_root(),
        sources=(f"csrc/{unit}_triton.py",),
        include_dirs=(),
        targets=_TARGETS["triton"],
    )


def choose(
    name: str,
    spec_of: Callable[[str], KernelSpec],
    argument: str,
    device: torch.device,
    backend: str | None = None,
) -> KernelChoice:
    """Return the kernel for the device that ``argument`` is on; ``backend`` None is its default.

    Raises TypeError for something that is no tensor, UnsupportedTargetError for a device that
    kernlib has no backend for, ArgumentError for a backend that does not run there.
    """
    import torch

    if not isinstance(device, torch.device):
        raise TypeError(f"{argument} is on {device!r}; a torch.Tensor is needed")
    if device.type not in _BACKENDS:
        raise UnsupportedTargetError(name, str(device), tuple(_BACKENDS))
    _check_backend(name, argument, device, backend)
    target = jit.target_of(device)
    reason = f"{argument} is on {device}"
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        reason += f", compute capability {major}.{minor}"
    if backend is not None:
        reason += f"; backend {backend} was asked for"
    return jit.KernelChoice(spec=spec_of(backend or device.type), target=target, reason=reason)


def _check_backend(name: str, argument: str, device: torch.device, backend: str | None) -> None:
    if backend is None or backend in _BACKENDS[device.type]:
        return
    kinds = [kind for kind, backends in _BACKENDS.items() if backend in backends]
    if not kinds:
        known = ", ".join(sorted(_TARGETS))
        raise ArgumentError(name, f"backend = {backend!r}; known are {known}, and None")
    raise ArgumentError(
        name, f"backend {backend!r} runs on {kinds[0]}, but {argument} is on {device}"
    )

"""Gated activations."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kernlib import jit
from kernlib._runtime import kernel_api
from kernlib.ops._library import choose, library_spec

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from kernlib.jit import KernelChoice, KernelSpec

__all__ = ["activation_kernels", "activation_spec", "silu_and_mul"]


@cache
def activation_spec(backend: str) -> KernelSpec:
    """Return the spec of the library that holds the gated activations."""
    return library_spec("activation", "activation/activation", backend)


@cache
def _choice(device: torch.device) -> KernelChoice:
    return choose("activation", activation_spec, "x", device)


def activation_kernels(x: Tensor, **_options: object) -> tuple[KernelChoice, ...]:
    """Return the kernel that an activation of ``x`` uses; only its device decides."""
    return (_choice(x.device),)


@kernel_api(kernels=activation_kernels)
def silu_and_mul(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return ``silu(x[..., :d]) * x[..., d:]``.

    ``x`` is ``[..., 2 * d]`` in float16, bfloat16 or float32, dense in its last dimension; its
    other dimensions may have two different strides. ``out`` is ``[..., d]`` and may be the first
    half of ``x``; without it a new dense tensor is returned. Computed in float32, rounded once.

    Raises TypeError or ValueError naming the argument and both numbers where they disagree.
    """
    (choice,) = activation_kernels(x)
    if out is None:
        out = x.new_empty((*x.shape[:-1], x.shape[-1] // 2) if x.dim() else ())
    jit.load(choice).function("silu_and_mul")(out, x)
    return out

"""Gated activations."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kernlib import jit
from kernlib._checks import Multiple, NoOverlap, Size
from kernlib._runtime import kernel_api
from kernlib.ops import _activation_triton
from kernlib.ops._declared import any_rows, like, operand, written_rows
from kernlib.ops._library import choose, library_spec, triton_spec
from kernlib.ops._own_checks import HalfOfRows

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from kernlib.jit import KernelChoice, KernelSpec

__all__ = ["activation_kernels", "activation_spec", "silu_and_mul"]


SILU_AND_MUL_CHECKS = (
    *operand("x"),
    *any_rows("x"),
    Multiple(Size("x", -1), 2),
    *like("out", "x"),
    HalfOfRows("out", "x"),
    *written_rows("out"),
    NoOverlap("out", "x", in_place=True),
)


@cache
def activation_spec(backend: str) -> KernelSpec:
    """Return the spec of the library that holds the gated activations."""
    if backend == "triton":
        return triton_spec("activation", "activation/activation")
    return library_spec("activation", "activation/activation", backend)


@cache
def _choice(device: torch.device, backend: str | None) -> KernelChoice:
    return choose("activation", activation_spec, "x", device, backend)


def activation_kernels(
    x: Tensor, *, backend: str | None = None, **_options: object
) -> tuple[KernelChoice, ...]:
    """Return the kernel that an activation of ``x`` uses; its device and ``backend`` decide."""
    return (_choice(x.device, backend),)


@kernel_api(kernels=activation_kernels, checks=SILU_AND_MUL_CHECKS, outputs=("out",))
def silu_and_mul(x: Tensor, *, out: Tensor | None = None, backend: str | None = None) -> Tensor:
    """Return ``silu(x[..., :d]) * x[..., d:]``.

    ``x`` is ``[..., 2 * d]`` in float16, bfloat16 or float32, dense in its last dimension; its
    other dimensions may have two different strides. ``out`` is ``[..., d]`` and may be the first
    half of ``x``; without it a new dense tensor is returned. Computed in float32, rounded once.

    ``backend`` is ``cpu``, ``cuda`` or ``triton`` (the extra ``kernlib[triton]``); None takes the
    one named like the device of ``x``.

    Raises TypeError or ValueError naming the argument and both numbers where they disagree,
    ToolchainError if Triton is asked for and is not installed.
    """
    (choice,) = activation_kernels(x, backend=backend)
    if out is None:
        out = x.new_empty((*x.shape[:-1], x.shape[-1] // 2) if x.dim() else ())
    kernel = jit.load(choice)
    if choice.spec.backend == "triton":
        _activation_triton.silu_and_mul(kernel, out, x)
    else:
        kernel.function("silu_and_mul")(out, x)
    return out

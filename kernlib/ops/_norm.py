"""Root-mean-square normalisation."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kernlib import jit
from kernlib._checks import DenseLast, NoOverlap, Rank, SameShape, SameSize, Size, Writable
from kernlib._runtime import kernel_api
from kernlib.ops._declared import any_rows, like, operand, written_rows
from kernlib.ops._library import choose, library_spec

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from kernlib.jit import KernelChoice, KernelSpec

__all__ = ["fused_add_rms_norm_", "norm_kernels", "norm_spec", "rms_norm"]

_ROW_WEIGHT = (
    *operand("x"),
    *any_rows("x"),
    *like("weight", "x"),
    Rank("weight", 1),
    SameSize(Size("weight", 0), Size("x", -1)),
    DenseLast("weight"),
)
RMS_NORM_CHECKS = (
    *_ROW_WEIGHT,
    *like("out", "x"),
    SameShape("out", "x"),
    *written_rows("out"),
    NoOverlap("out", "x", in_place=True),
    NoOverlap("out", "weight"),
)
FUSED_ADD_RMS_NORM_CHECKS = (
    *_ROW_WEIGHT,
    *like("residual", "x"),
    SameShape("residual", "x"),
    Writable("x"),
    *written_rows("residual"),
    NoOverlap("residual", "x"),
    NoOverlap("weight", "x"),
    NoOverlap("weight", "residual"),
)


@cache
def norm_spec(backend: str) -> KernelSpec:
    """Return the spec of the library that holds both norms."""
    return library_spec("norm", "norm/norm", backend)


@cache
def _choice(device: torch.device) -> KernelChoice:
    return choose("norm", norm_spec, "x", device)


def norm_kernels(x: Tensor, *_operands: object, **_options: object) -> tuple[KernelChoice, ...]:
    """Return the kernel that a norm of ``x`` uses; only its device decides."""
    return (_choice(x.device),)


@kernel_api(kernels=norm_kernels, checks=RMS_NORM_CHECKS, outputs=("out",))
def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6, *, out: Tensor | None = None) -> Tensor:
    """Scale every row of ``x`` to a root mean square of one, then by ``weight``.

    ``x`` is ``[..., hidden]`` in float16, bfloat16 or float32, dense in its last dimension; its
    other dimensions may have two different strides, as in a slice of a fused projection.
    ``weight`` is ``[hidden]`` in the same dtype. ``out`` is like ``x`` and may be ``x``; without
    it a new dense tensor is returned. The sum of squares and the scaling are done in float32 and
    rounded once.

    Raises TypeError or ValueError naming the argument and both numbers where they disagree.
    """
    (choice,) = norm_kernels(x)
    result = x.new_empty(x.shape) if out is None else out
    jit.load(choice).function("rms_norm")(result, x, weight, eps)
    return result


@kernel_api(kernels=norm_kernels, checks=FUSED_ADD_RMS_NORM_CHECKS)
def fused_add_rms_norm_(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> None:
    """Add ``x`` to ``residual``, then replace ``x`` by the norm of ``residual``; both in place.

    Shapes, strides and dtypes are those of `rms_norm`, ``residual`` being like ``x``. The norm is
    that of the stored sum, rounded to the dtype.

    Raises TypeError or ValueError naming the argument and both numbers where they disagree.
    """
    (choice,) = norm_kernels(x)
    jit.load(choice).function("fused_add_rms_norm")(x, residual, weight, eps)

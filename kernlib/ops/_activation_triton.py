"""The gated activations in Triton: checks and launches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernlib.ops._launch_checks import (
    check_float,
    check_like,
    check_size,
    check_writable,
    rows_of,
)

if TYPE_CHECKING:
    from torch import Tensor

    from kernlib.jit import Kernel

__all__ = ["silu_and_mul"]

_DTYPES = {"torch.float16": "fp16", "torch.bfloat16": "bf16", "torch.float32": "fp32"}
_SMALL, _LARGE = 256, 1024  # columns of one program
_MOST_ROWS, _MOST_BLOCKS = 2**31 - 1, 65535  # a CUDA grid's; the kernel strides over the rest


def silu_and_mul(kernel: Kernel, out: Tensor, x: Tensor) -> None:
    """Write ``silu(gate) * up`` of the two halves of ``x``; refuses what the binding refuses."""
    _check(out, x)
    x_rows, out_rows = rows_of("x", x), rows_of("out", out)
    if not x.numel():
        return
    width = out.shape[-1]
    block = _SMALL if width <= _SMALL else _LARGE
    grid = min(x_rows[0], _MOST_ROWS), min(-(-width // block), _MOST_BLOCKS)
    launch = kernel.function(f"silu_and_mul_{_DTYPES[str(x.dtype)]}_{block}")
    launch(x.device, grid, out.data_ptr(), x.data_ptr(), width, *out_rows, *x_rows)


def _check(out: Tensor, x: Tensor) -> None:
    check_float("x", x)
    check_like("out", out, "x", x)
    last = x.dim() - 1
    if last < 0:
        raise ValueError("x has 0 dimensions, but at least 1 is needed")
    if x.shape[last] % 2:
        raise ValueError(f"x.shape[{last}] = {x.shape[last]}, but gate and up need an even size")
    if out.dim() != x.dim():
        raise ValueError(f"out has {out.dim()} dimensions, but x has {x.dim()}")
    for dim in range(last):
        check_size("out", out, dim, x.shape[dim], f"x.shape[{dim}]")
    check_size("out", out, last, x.shape[last] // 2, "half of x's last dimension")
    check_writable("out", out)

"""What a binding checks, for kernels launched from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["check_float", "check_like", "check_size", "check_writable", "rows_of"]

_FLOATS = ("float16", "bfloat16", "float32")


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def check_float(name: str, tensor: Tensor) -> None:
    """Refuse a dtype the kernels are not built for, and an address between two elements."""
    dtype = _dtype(tensor.dtype)
    if dtype not in _FLOATS:
        raise TypeError(f"{name} is {dtype}, but float16, bfloat16 or float32 is needed")
    _check_aligned(name, tensor)


def _check_aligned(name: str, tensor: Tensor) -> None:
    element = tensor.element_size()
    if rest := tensor.data_ptr() % element:
        raise ValueError(
            f"{name} starts {rest} bytes past a multiple of its element size, {element}"
        )


def check_like(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Refuse an operand on another device or of another dtype."""
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} is {type(tensor).__name__}, but a torch.Tensor is needed")
    if tensor.device != other.device:
        raise ValueError(f"{name} is on {tensor.device}, but {other_name} is on {other.device}")
    if tensor.dtype != other.dtype:
        raise TypeError(
            f"{name} is {_dtype(tensor.dtype)}, but {other_name} is {_dtype(other.dtype)}"
        )
    _check_aligned(name, tensor)


def check_size(name: str, tensor: Tensor, dim: int, wanted: int, what: str) -> None:
    """Refuse a size that is not the wanted one; ``what`` says where that comes from."""
    if tensor.shape[dim] != wanted:
        raise ValueError(f"{name}.shape[{dim}] = {tensor.shape[dim]}, but {what} = {wanted}")


def check_writable(name: str, tensor: Tensor) -> None:
    """Refuse a tensor of which two elements share memory through a stride of 0."""
    if not tensor.numel():
        return
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and not stride:
            raise ValueError(
                f"{name} has stride 0 in dimension {dim} of size {size}, "
                "but it is written to and needs memory for each element"
            )


def rows_of(name: str, tensor: Tensor) -> tuple[int, int, int, int]:
    """Fold the leading dimensions into rows: count, inner count, outer and inner stride.

    Row ``r`` starts at ``r // inner * outer_stride + r % inner * inner_stride``; a dimension of
    size 1 has no stride.
    """
    *sizes, last = tensor.shape
    *strides, last_stride = tensor.stride()
    if last > 1 and last_stride != 1:
        raise ValueError(
            f"{name} has stride {last_stride} in its last dimension, but only 1 is supported"
        )
    if 0 in sizes:
        return 0, 1, 0, 0
    levels: list[tuple[int, int]] = []  # count and stride, innermost first
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size == 1:
            continue
        if levels and stride == levels[-1][0] * levels[-1][1]:
            levels[-1] = levels[-1][0] * size, levels[-1][1]
        else:
            levels.append((size, stride))
    if len(levels) > 2:  # noqa: PLR2004 - an inner and an outer stride
        raise ValueError(
            f"{name} has shape {list(tensor.shape)} and strides {list(tensor.stride())}, "
            "but rows of at most two strides are supported"
        )
    (inner, inner_stride), (outer, outer_stride) = (*levels, (1, 0), (1, 0))[:2]
    return inner * outer, inner, outer_stride, inner_stride

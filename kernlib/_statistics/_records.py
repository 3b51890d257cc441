"""What the kernel writes, and which tensors it takes."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeAlias

    import torch

    Record: TypeAlias = type[ctypes.Structure]
    Statistics: TypeAlias = dict[str, float | int] | str

__all__ = ["as_dict", "record_of", "taken"]


def _record(number: type[Any]) -> Record:
    """Return the kernel's ``Statistics``, the extremes of a tensor being such numbers."""

    class Record(ctypes.Structure):
        _fields_ = (
            ("lowest", number), ("highest", number), ("mean", ctypes.c_double),
            ("finite", ctypes.c_int64), ("nans", ctypes.c_int64),
            ("infinities", ctypes.c_int64), ("zeros", ctypes.c_int64),
            ("ticket", ctypes.c_int64),
        )  # fmt: skip

    return Record


@cache
def _records() -> dict[torch.dtype, Record]:
    """Return the record of every dtype that the kernel takes and this torch has."""
    kinds = {
        _record(ctypes.c_double): (
            "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz",
            "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
        ),
        _record(ctypes.c_int64): (
            "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool",
        ),
        _record(ctypes.c_uint64): ("uint64",),
    }  # fmt: skip
    import torch

    return {
        getattr(torch, name): record
        for record, names in kinds.items()
        for name in names
        if hasattr(torch, name)
    }


def taken(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a tensor of the same elements that the kernel takes; None if there is none."""
    import torch

    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):  # a subclass may hold anything
        return None
    if tensor.requires_grad or tensor.is_neg() or tensor.is_complex():
        tensor = tensor.detach().resolve_neg()
        tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    usable = tensor.layout is torch.strided and tensor.numel()
    return tensor if usable and tensor.dtype in _records() else None


def record_of(dtype: torch.dtype) -> Record:
    """Return the layout of what the kernel writes of a tensor of this dtype."""
    return _records()[dtype]


def as_dict(record: Any) -> dict[str, float | int]:  # noqa: ANN401 - a structure made by _record
    """Return a record under the names, and in the order, of the statistics in Python."""
    counts = {"nan": record.nans, "inf": record.infinities, "zero": record.zeros}
    if not record.finite:
        return counts
    low, high = record.lowest, record.highest
    return {"min": low, "max": high, "mean": record.mean, "absmax": max(high, -low), **counts}

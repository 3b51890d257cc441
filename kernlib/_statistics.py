"""Statistics of a tensor by one fused kernel."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any

from kernlib import jit
from kernlib._background import BackgroundKernel

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    import torch

    from kernlib.config import Config
    from kernlib.jit import KernelSpec

    Statistics: TypeAlias = dict[str, float | int] | str

__all__ = ["FusedStatistics", "statistics_spec"]

_WIDEST_VECTOR = 64
#: What the kernel or the exchange of a tensor refuses, such as an element at an odd address.
_REFUSED = (RuntimeError, BufferError, TypeError, ValueError, NotImplementedError)


@cache
def statistics_spec() -> KernelSpec:
    """Return the spec of the library that holds the statistics."""
    return jit.KernelSpec(
        name="statistics",
        backend="cpu",
        root=jit.source_root(),
        sources=(
            "csrc/statistics/statistics_cpu.cc",
            "csrc/statistics/binding.cc",
            "csrc/common/backend_cpu.cc",
        ),
        cflags=("-fopenmp-simd",),  # lets the loops that ask for it reorder a sum; no runtime
        targets=("cpu",),
    )


def _record(number: type[Any]) -> type[ctypes.Structure]:
    """Return what the kernel writes, the extremes of a tensor being such numbers."""

    class Record(ctypes.Structure):
        _fields_ = (
            ("lowest", number), ("highest", number), ("mean", ctypes.c_double),
            ("finite", ctypes.c_int64), ("nans", ctypes.c_int64),
            ("infinities", ctypes.c_int64), ("zeros", ctypes.c_int64),
        )  # fmt: skip

    return Record


@cache
def _records() -> dict[torch.dtype, type[ctypes.Structure]]:
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


class FusedStatistics:
    """Statistics by the kernel where it is loaded and takes the tensor, else by Python.

    Nothing waits: the first tensor starts a thread that loads the kernel, or builds it.
    """

    def __init__(self, config: Config, in_python: Callable[[torch.Tensor], Statistics]) -> None:
        choice = jit.KernelChoice(
            spec=statistics_spec(), target="cpu", reason="statistics of recorded tensors"
        )
        self.kernel = BackgroundKernel(choice, config)
        self._in_python = in_python
        self._function: Callable[..., None] | None = None

    def __call__(self, tensor: torch.Tensor) -> Statistics:
        """Return what ``kernlib.logging.statistics`` does of a tensor."""
        function = self._function or self._loaded()
        if function is None or not tensor.is_cpu:
            return self._in_python(tensor)
        return _fused(function, tensor) or self._in_python(tensor)

    def _loaded(self) -> Callable[..., None] | None:
        if (kernel := self.kernel.get()) is not None:
            self._function = kernel.function("statistics")
        return self._function


def _fused(function: Callable[..., None], tensor: torch.Tensor) -> Statistics | None:
    """Return the statistics of a tensor in the host's memory; None if it is none for the kernel."""
    import torch

    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):  # a subclass may hold anything
        return None
    if tensor.requires_grad or tensor.is_neg() or tensor.is_complex():
        tensor = tensor.detach().resolve_neg()
        tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    kind = _records().get(tensor.dtype)
    if kind is None or tensor.layout is not torch.strided or not tensor.numel():
        return None
    record = kind()
    address = ctypes.c_void_p(ctypes.addressof(record))
    try:
        function(tensor, address, torch.get_num_threads(), _WIDEST_VECTOR)
    except _REFUSED:
        return None
    return _as_dict(record)


def _as_dict(record: Any) -> dict[str, float | int]:  # noqa: ANN401 - a structure made by _record
    """Return the record under the names, and in the order, of the statistics in Python."""
    counts = {"nan": record.nans, "inf": record.infinities, "zero": record.zeros}
    if not record.finite:
        return counts
    low, high = record.lowest, record.highest
    return {"min": low, "max": high, "mean": record.mean, "absmax": max(high, -low), **counts}

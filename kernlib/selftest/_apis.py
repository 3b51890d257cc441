"""Functions that are wrong on purpose, each in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernlib._checks import Aligned, AllInRange, InRange, SameDevice, Size
from kernlib._runtime import kernel_api
from kernlib.errors import ArgumentError
from kernlib.selftest._checks import Divides
from kernlib.selftest._kernels import call, kernels_of_call

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "selftest_assertion",
    "selftest_hang",
    "selftest_int32_overflow",
    "selftest_misalignment",
    "selftest_not_a_number",
    "selftest_off_by_one",
    "selftest_other_device",
    "selftest_race",
    "selftest_read_out_of_bounds",
    "selftest_stale_workspace",
    "selftest_write_out_of_bounds",
    "selftest_wrong_device",
]

_WORD = 8
IN_POOL = (AllInRange("indices", Size("pool", 0), "elements", "the pool"),)
IN_OUTPUT = (AllInRange("indices", Size("out", 0), "elements", "the output"),)
ALIGNED = (Aligned("x", _WORD),)
MOVES = (InRange(Size("step"), least=1),)
DIVIDES = (Divides("scale"),)
TOGETHER = (SameDevice("bias", "x"),)


@kernel_api(kernels=kernels_of_call, checks=IN_POOL)
def selftest_read_out_of_bounds(pool: Tensor, indices: Tensor) -> Tensor:
    """Return the elements ``indices`` (int64) of ``pool`` (float32); no index is checked."""
    out = pool.new_empty(indices.shape)
    call("read_out_of_bounds", pool, out, pool, indices)
    return out


@kernel_api(kernels=kernels_of_call, checks=IN_OUTPUT)
def selftest_write_out_of_bounds(out: Tensor, indices: Tensor, values: Tensor) -> None:
    """Set the elements ``indices`` (int64) of ``out`` (float32); no index is checked."""
    call("write_out_of_bounds", out, out, indices, values)


@kernel_api(kernels=kernels_of_call)
def selftest_off_by_one(x: Tensor, *, guarded: bool = False) -> Tensor:
    """Return the differences of neighbours in ``x`` (float32); it reads one element too many."""
    out = x.new_empty(x.shape)
    call("off_by_one", x, out, x, guarded)
    return out


@kernel_api(kernels=kernels_of_call, checks=ALIGNED)
def selftest_misalignment(x: Tensor) -> Tensor:
    """Return the sums of pairs in ``x`` (float32), loaded eight bytes at a time."""
    out = x.new_empty(x.shape[0] // 2)
    call("misalignment", x, out, x)
    return out


@kernel_api(kernels=kernels_of_call, checks=IN_POOL)
def selftest_assertion(pool: Tensor, indices: Tensor) -> Tensor:
    """Return the elements ``indices`` (int64) of ``pool`` (float32); a bad index aborts."""
    out = pool.new_empty(indices.shape)
    call("assertion", pool, out, pool, indices)
    return out


@kernel_api(kernels=kernels_of_call)
def selftest_race(x: Tensor, *, guarded: bool = False) -> Tensor:
    """Return a copy of ``x`` (64 of float32), made by threads that do not wait for each other."""
    out = x.new_empty(x.shape)
    call("race", x, out, x, guarded)
    return out


@kernel_api(kernels=kernels_of_call, checks=MOVES)
def selftest_hang(x: Tensor, step: int) -> Tensor:
    """Return the sums of every ``step``-th element of ``x`` (float32); a step of 0 never ends."""
    out = x.new_empty(x.shape)
    call("hang", x, out, x, step)
    return out


@kernel_api(kernels=kernels_of_call, checks=DIVIDES)
def selftest_not_a_number(x: Tensor, scale: Tensor) -> Tensor:
    """Return ``x / scale`` (float32); nothing keeps it from dividing zero by zero."""
    out = x.new_empty(x.shape)
    call("not_a_number", x, out, x, scale)
    return out


@kernel_api(kernels=kernels_of_call)
def selftest_int32_overflow(table: Tensor, ids: Tensor, scale: int) -> Tensor:
    """Return the elements ``ids * scale >> 24`` of ``table``; a product may pass 32 bits.

    ``table`` is float32, ``ids`` int32.
    """
    out = table.new_empty(ids.shape)
    call("int32_overflow", table, out, table, ids, scale)
    return out


@kernel_api(kernels=kernels_of_call, workspaces=("workspace",))
def selftest_stale_workspace(x: Tensor, workspace: Tensor, *, guarded: bool = False) -> Tensor:
    """Return ``2 * x`` (float32), summed up in a ``workspace`` that is not cleared before."""
    out = x.new_empty(x.shape)
    call("stale_workspace", x, out, x, workspace, guarded)
    return out


@kernel_api(kernels=kernels_of_call, checks=TOGETHER)
def selftest_wrong_device(x: Tensor, bias: Tensor) -> Tensor:
    """Return ``x + bias`` (float32).

    Raises ArgumentError for a ``bias`` on another kind of device.
    """
    if bias.device.type != x.device.type:
        problem = f"bias is on {bias.device}, but x is on {x.device}"
        raise ArgumentError("selftest_wrong_device", problem)
    return _add_bias(x, bias)


@kernel_api(kernels=kernels_of_call, checks=TOGETHER)
def selftest_other_device(x: Tensor, bias: Tensor) -> Tensor:
    """Return ``x + bias`` (float32); a ``bias`` on another GPU than ``x`` is not refused."""
    return _add_bias(x, bias)


def _add_bias(x: Tensor, bias: Tensor) -> Tensor:
    out = x.new_empty(x.shape)
    call("add_bias", x, out, x, bias)
    return out

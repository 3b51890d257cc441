"""Functions on kernels; each can be made to fault."""

from __future__ import annotations

from faultlib._checks import WithinHistory
from faultlib._specs import kernels_for
from kernlib import jit, kernel_api
from kernlib._checks import AllInRange, Size

__all__ = ["look_back", "put", "run", "sum_rows", "take_rows", "take_twice"]

TAKE_ROWS_CHECKS = (AllInRange("pages", Size("pool", 0), "rows", "the pool"),)
PUT_CHECKS = (AllInRange("slots", Size("out", 0), "slots", "the output"),)
LOOK_BACK_CHECKS = (WithinHistory("back"),)


def kernels_of_call(tensor, *_operands, **_options):
    """Return the kernels of a call; the device of its first tensor decides."""
    return kernels_for(tensor.device)


def run(name, tensor, *operands):
    """Call a function of the library that serves the device of ``tensor``."""
    (choice,) = kernels_for(tensor.device)
    jit.load(choice).function(name)(*operands)


@kernel_api(kernels=kernels_of_call, checks=TAKE_ROWS_CHECKS)
def take_rows(pool, pages, scale=1.0):
    """Return the rows ``pages`` (int64) of ``pool`` (float32), times ``scale``."""
    out = pool.new_empty(pages.shape[0], pool.shape[1])
    run("take_rows", pool, out, pool, pages, scale)
    return out


@kernel_api(kernels=kernels_of_call)
def take_twice(pool, pages):
    """Return the rows of the rows: an api that calls another one."""
    return take_rows(take_rows(pool, pages), pages)


@kernel_api(kernels=kernels_of_call, checks=PUT_CHECKS)
def put(out, slots, values):
    """Write ``values`` (float32) to the ``slots`` (int64) of ``out`` (float32), in place."""
    run("put", out, out, slots, values)


@kernel_api(kernels=kernels_of_call, checks=LOOK_BACK_CHECKS)
def look_back(x, back):
    """Return ``x[i - back[i]]`` for every element of ``x`` (float32)."""
    out = x.new_empty(x.shape)
    run("look_back", x, out, x, back)
    return out


@kernel_api(kernels=kernels_of_call)
def sum_rows(x, row_stride):
    """Return the sums of rows that start ``row_stride`` elements apart; it is not checked."""
    out = x.new_empty(x.shape[0])
    run("sum_rows", x, out, x, row_stride)
    return out

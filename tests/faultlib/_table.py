"""An object whose calls rely on earlier ones."""

from __future__ import annotations

from faultlib._apis import kernels_for, run
from kernlib import kernel_api
from kernlib._checks import AllInRange, Size

__all__ = ["Table"]

RUN_CHECKS = (AllInRange("self.pages", Size("pool", 0), "rows", "the pool"),)


def kernels_of_run(_table, pool, *_operands):
    """Return the kernels of a run on this pool."""
    return kernels_for(pool.device)


class Table:
    """Rows of a pool by a table that is set beforehand."""

    @kernel_api
    def __init__(self, width):
        self.width = width
        self.pages = None
        self.scale = None

    @kernel_api(setup=True)
    def plan(self, pages, scale):
        """Set which rows the runs that follow return, and what they are multiplied by."""
        self.pages = pages
        self.scale = scale

    @kernel_api(kernels=kernels_of_run, checks=RUN_CHECKS)
    def run(self, pool):
        """Return the planned rows of ``pool`` (float32 ``[rows, width]``)."""
        if self.pages is None:
            message = "there is no plan yet"
            raise RuntimeError(message)
        if pool.shape[1] != self.width:
            message = f"pool.shape[1] = {pool.shape[1]}, but width = {self.width}"
            raise ValueError(message)
        out = pool.new_empty(self.pages.shape[0], self.width)
        run("take_rows", pool, out, pool, self.pages, self.scale)
        return out

"""Which bytes of a storage its views can reach."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernlib.dump._schema import View

__all__ = ["Hull", "covers", "hull", "is_dense", "merged"]

Hull = tuple[int, int]

_LAYOUTS = 1024


def hull(view: View) -> Hull | None:
    """Return the first byte a view reaches and the one after its last; None if it is empty."""
    return _hull(view.shape, view.stride, view.offset, view.itemsize)


def merged(hulls: Iterable[Hull]) -> list[Hull]:
    """Join overlapping and adjacent hulls; far-apart ones stay apart."""
    joined: list[Hull] = []
    for start, end in sorted(hulls):
        if joined and start <= joined[-1][1]:
            if end > joined[-1][1]:
                joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def covers(hulls: Iterable[Hull], wanted: Hull) -> bool:
    """Return whether one of the hulls holds all of another."""
    return any(start <= wanted[0] and wanted[1] <= end for start, end in hulls)


def is_dense(view: View) -> bool:
    """Return whether a view's elements lie in row-major order without holes."""
    return _is_dense(view.shape, view.stride)


# A program's calls have the same shapes again and again, and each view is asked several times.
@lru_cache(_LAYOUTS)
def _hull(
    shape: tuple[int, ...], strides: tuple[int, ...], offset: int, itemsize: int
) -> Hull | None:
    last = offset
    for size, stride in zip(shape, strides, strict=True):
        if size == 0:
            return None
        last += (size - 1) * stride
    return offset * itemsize, (last + 1) * itemsize


@lru_cache(_LAYOUTS)
def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        # The stride of a dimension of size one is never stepped, so any value will do.
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True

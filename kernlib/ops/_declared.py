"""Preconditions that several operators share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernlib._checks import (
    Aligned,
    DenseLast,
    DtypeIn,
    Rank,
    SameDevice,
    SameDtype,
    Writable,
)
from kernlib.ops._own_checks import RowsOfTwoStrides

if TYPE_CHECKING:
    from kernlib._checks import Check

__all__ = ["any_rows", "int32_list", "like", "operand", "written_rows"]

_FLOATS = ("float16", "bfloat16", "float32")
_MOST_DIMS = 64


def operand(name: str) -> tuple[Check, ...]:
    """Return what the first operand of a kernel must be."""
    return DtypeIn(name, _FLOATS), Aligned(name)


def like(name: str, other: str) -> tuple[Check, ...]:
    """Return what another operand must have in common with it."""
    return SameDevice(name, other), SameDtype(name, other), Aligned(name)


def any_rows(name: str) -> tuple[Check, ...]:
    """Return what a tensor must be that is read or written row by row."""
    return Rank(name, 1, _MOST_DIMS), DenseLast(name), RowsOfTwoStrides(name)


def written_rows(name: str) -> tuple[Check, ...]:
    """Return what a tensor must be that is written row by row."""
    return (*any_rows(name), Writable(name))


def int32_list(name: str, other: str) -> tuple[Check, ...]:
    """Return what a list of a page table must be; ``other`` says on which device."""
    return (
        SameDevice(name, other), DtypeIn(name, ("int32",)), Rank(name, 1), DenseLast(name),
        Aligned(name),
    )  # fmt: skip

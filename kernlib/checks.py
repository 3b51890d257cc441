"""Preconditions for ``kernel_api(checks=...)``."""

from kernlib._checks import (
    Aligned,
    AllInRange,
    Check,
    Finding,
    LengthsInRange,
    Monotone,
    SameSize,
    Size,
)

__all__ = [
    "Aligned",
    "AllInRange",
    "Check",
    "Finding",
    "LengthsInRange",
    "Monotone",
    "SameSize",
    "Size",
]

"""Preconditions an operator declares, evaluated on recorded arguments.

A check reads *values*: a mapping from argument names to tensors and plain values. Names are
those of the signature (``q``); attributes of the receiver are written ``self.kv_indices``. A name
that is absent, None or of another kind makes a check silent: what is not known is not judged.
"""

from kernlib._checks._indices import AllInRange, Finite, LengthsInRange, Monotone
from kernlib._checks._layout import Layout
from kernlib._checks._live import LiveValues
from kernlib._checks._memory import (
    Aligned,
    Contiguous,
    DenseLast,
    DtypeIn,
    NoOverlap,
    SameDevice,
    SameDtype,
    Writable,
)
from kernlib._checks._sizes import (
    InRange,
    Int32Product,
    Int32Reach,
    Largest,
    Measure,
    Multiple,
    Rank,
    SameShape,
    SameSize,
    Size,
    Stride,
)
from kernlib._checks._values import (
    Check,
    Finding,
    Outcome,
    bare,
    data,
    evaluate,
    label,
    layout,
    run_checks,
)

__all__ = [
    "Aligned",
    "AllInRange",
    "Check",
    "Contiguous",
    "DenseLast",
    "DtypeIn",
    "Finding",
    "Finite",
    "InRange",
    "Int32Product",
    "Int32Reach",
    "Largest",
    "Layout",
    "LengthsInRange",
    "LiveValues",
    "Measure",
    "Monotone",
    "Multiple",
    "NoOverlap",
    "Outcome",
    "Rank",
    "SameDevice",
    "SameDtype",
    "SameShape",
    "SameSize",
    "Size",
    "Stride",
    "Writable",
    "bare",
    "data",
    "evaluate",
    "label",
    "layout",
    "run_checks",
]

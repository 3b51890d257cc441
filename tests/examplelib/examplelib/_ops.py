"""The public functions."""

from examplelib._kernels import gather_kernels
from kernlib import jit, kernel_api
from kernlib.checks import AllInRange, NoOverlap, SameSize, Size

GATHER_CHECKS = (
    AllInRange("rows", upper=Size("table", 0), what="rows", holder="the table"),
    SameSize(Size("out", 0), Size("rows", 0)),
    SameSize(Size("out", 1), Size("table", 1)),
    NoOverlap("out", "table"),
)


@kernel_api(kernels=gather_kernels, checks=GATHER_CHECKS, outputs=("out",))
def gather(table, rows, *, out=None):
    """Return ``table[rows]``; ``table`` is float32 ``[size, width]``, ``rows`` int64 ``[count]``.

    The kernel does not look at the values of ``rows`` or the size of ``out``: a wrong one is a
    fault, or worse. The declared checks cost a call nothing either: ``kernlib-replay DIR --check``
    evaluates them on what was recorded, and ``KERNLIB_CHECK=1`` before each call.
    """
    if out is None:
        out = table.new_empty(rows.shape[0], table.shape[1])
    (choice,) = gather_kernels(table, rows)
    jit.load(choice).function("gather")(out, table, rows)
    return out


@kernel_api
def softmax(x, *, temperature=1.0):
    """Return the softmax of each row of ``x``: no kernel of ours, and recorded all the same."""
    return (x / temperature).softmax(-1)

"""The public functions."""

from examplelib._kernels import gather_kernels
from kernlib import jit, kernel_api
from kernlib.checks import AllInRange, Size

ROWS = AllInRange("rows", upper=Size("table", 0), what="rows", holder="the table")


@kernel_api(kernels=gather_kernels, checks=(ROWS,))
def gather(table, rows):
    """Return ``table[rows]``; ``table`` is float32 ``[size, width]``, ``rows`` int64 ``[count]``.

    The kernel does not look at the values of ``rows``: a wrong one is a fault, or worse. The
    declared check costs a call nothing either; a replay evaluates it on what was recorded.
    """
    out = table.new_empty(rows.shape[0], table.shape[1])
    (choice,) = gather_kernels(table, rows)
    jit.load(choice).function("gather")(out, table, rows)
    return out


@kernel_api
def softmax(x, *, temperature=1.0):
    """Return the softmax of each row of ``x``: no kernel of ours, and recorded all the same."""
    return (x / temperature).softmax(-1)

"""Gated activations in Triton: one program a row and a block of its columns."""

import triton
import triton.language as tl


@triton.jit
def silu_and_mul(out, x, width, out_rows, x_rows, BLOCK: tl.constexpr):  # noqa: N803 - a constant
    """Rows are those of ``kernlib::Rows``: count, inner, outer stride, inner stride."""
    count, x_inner, x_outer_stride, x_inner_stride = x_rows
    _, out_inner, out_outer_stride, out_inner_stride = out_rows
    first = tl.program_id(1).to(tl.int64) * BLOCK
    step = tl.num_programs(1).to(tl.int64) * BLOCK
    for row in range(tl.program_id(0).to(tl.int64), count, tl.num_programs(0)):
        gate_row = x + row // x_inner * x_outer_stride + row % x_inner * x_inner_stride
        out_row = out + row // out_inner * out_outer_stride + row % out_inner * out_inner_stride
        for start in range(first, width, step):
            at = start + tl.arange(0, BLOCK)
            inside = at < width
            gate = tl.load(gate_row + at, mask=inside).to(tl.float32)
            up = tl.load(gate_row + width + at, mask=inside).to(tl.float32)
            value = tl.math.div_rn(gate, 1.0 + tl.exp(-gate)) * up
            tl.store(out_row + at, value.to(out.dtype.element_ty), mask=inside)


_ROWS = ("i64", "i64", "i64", "i64")


def _of(dtype, block):
    return {
        "kernel": silu_and_mul,
        "signature": {
            "out": f"*{dtype}",
            "x": f"*{dtype}",
            "width": "i64",
            "out_rows": _ROWS,
            "x_rows": _ROWS,
        },
        "constants": {"BLOCK": block},
        "num_warps": 4,
    }


#: What is compiled ahead, by the name it is called by. A small block serves narrow rows.
SPECIALISATIONS = {
    f"silu_and_mul_{dtype}_{block}": _of(dtype, block)
    for dtype in ("fp16", "bf16", "fp32")
    for block in (256, 1024)
}

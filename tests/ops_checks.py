"""What an operator must do on any device; the CPU and the device tests call these."""

import math

import ops_reference as reference
import pytest
import torch
from ops_reference import fresh, poisoned

import kernlib

#: Row shapes: one element, odd sizes, sizes around a pack of eight, longer than a block.
ROW_SHAPES = ((7,), (1, 1), (3, 5), (2, 3, 8), (5, 64), (4, 33), (2, 2, 2, 24), (3, 8200))
EMPTY_SHAPES = ((0, 16), (3, 0), (2, 0, 8))


def matrix(*columns):
    """Return pytest parameters of all combinations, with readable ids."""
    rows = [()]
    for column in columns:
        rows = [(*row, value) for row in rows for value in column]
    return [pytest.param(*row, id="-".join(map(_label, row))) for row in rows]


def _label(value):
    if isinstance(value, torch.dtype):
        return reference.name(value)
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


ROWS = matrix(reference.DTYPES, reference.VIEWS, ROW_SHAPES)
EMPTY = matrix(reference.DTYPES, EMPTY_SHAPES)
DECODE = [
    pytest.param(*row, id="-".join(map(_label, row)))
    for row in (
        (torch.float16, "dense", 128, (8, 8), 16),
        (torch.bfloat16, "dense", 128, (8, 2), 16),
        (torch.float32, "dense", 128, (8, 1), 5),
        (torch.float16, "slice", 128, (4, 1), 16),
        (torch.bfloat16, "padded", 128, (8, 1), 1),
        (torch.float16, "dense", 64, (8, 2), 1),
        (torch.bfloat16, "slice", 64, (2, 2), 5),
        (torch.float32, "heads", 64, (8, 1), 16),
        (torch.float16, "dense", 96, (4, 4), 5),
        (torch.bfloat16, "heads", 96, (8, 1), 16),
        (torch.float32, "slice", 96, (4, 1), 1),
    )
]
APPEND = matrix(reference.DTYPES, ("dense", "slice", "padded"), (1, 5, 16), (8, 12, 64))


def rms_norm_matches(device, dtype, view, shape):
    x, weight = fresh(shape, dtype, device, view), fresh(shape[-1:], dtype, device)
    before, eps = x.clone(), 1e-5
    expected = reference.rms_norm(x, weight, eps)
    reference.assert_rounded(kernlib.rms_norm(x, weight, eps), expected)
    out = poisoned(shape, dtype, device, view)
    assert kernlib.rms_norm(x, weight, eps, out=out) is out
    reference.assert_rounded(out, expected)
    assert torch.equal(x, before)
    kernlib.rms_norm(x, weight, eps, out=x)
    assert torch.equal(x, out), "in place gives the same bits"


def rms_norm_reads_a_misaligned_weight(device, dtype):
    x, weight = fresh((3, 40), dtype, device), fresh((41,), dtype, device)[1:]
    reference.assert_rounded(kernlib.rms_norm(x, weight), reference.rms_norm(x, weight, 1e-6))


def fused_add_rms_norm_matches(device, dtype, view, shape):
    x, residual = (fresh(shape, dtype, device, kind) for kind in (view, "slice"))
    weight, eps = fresh(shape[-1:], dtype, device), 1e-5
    total = residual + x
    assert kernlib.fused_add_rms_norm_(x, residual, weight, eps) is None
    assert torch.equal(residual, total)
    reference.assert_rounded(x, reference.rms_norm(total, weight, eps))


def silu_and_mul_matches(device, dtype, view, shape, backend=None):
    *lead, width = shape
    x = fresh((*lead, 2 * width), dtype, device, view)
    expected = reference.silu_and_mul(x)
    reference.assert_rounded(kernlib.silu_and_mul(x, backend=backend), expected)
    out = poisoned(shape, dtype, device, view)
    assert kernlib.silu_and_mul(x, out=out, backend=backend) is out
    reference.assert_rounded(out, expected)
    gate, up = x[..., :width], x[..., width:].clone()
    kernlib.silu_and_mul(x, out=gate, backend=backend)
    assert torch.equal(gate, out), "over its own gate it gives the same bits"
    assert torch.equal(x[..., width:], up)


def empty_rows_are_left_alone(device, dtype, shape):
    x, weight = fresh(shape, dtype, device), fresh(shape[-1:], dtype, device)
    assert kernlib.rms_norm(x, weight).shape == shape
    kernlib.fused_add_rms_norm_(x, x.clone(), weight)
    half = fresh((*shape[:-1], 2 * shape[-1]), dtype, device)
    assert kernlib.silu_and_mul(half).shape == shape


def new_cache(pages, heads, head_dim, dtype, device, view):
    return fresh((pages.num_pages, 2, heads, pages.page_size, head_dim), dtype, device, view)


def append_matches(device, dtype, view, page_size, head_dim):
    heads, lengths = 3, (7, 0, 17, 1)
    pages = reference.pages_for(lengths, page_size, device)
    kv_cache = new_cache(pages, heads, head_dim, dtype, device, view)
    tokens = [(b, at) for b, length in enumerate(lengths) for at in range(length) if at % 3 != 1]
    k, v = (fresh((len(tokens), heads, head_dim), dtype, device, kind) for kind in (view, "heads"))
    expected = kv_cache.clone()
    for row, (sequence, position) in enumerate(tokens):
        page, slot = pages.place(sequence, position)
        expected[page, 0, :, slot], expected[page, 1, :, slot] = k[row], v[row]
    columns = [torch.tensor(c, dtype=torch.int32, device=device) for c in zip(*tokens, strict=True)]
    indptr, indices, last = pages.lists()
    assert kernlib.append_paged_kv(k, v, kv_cache, indices, indptr, last, *columns) is None
    assert torch.equal(kv_cache, expected)


def decode_matches(device, dtype, view, head_dim, heads, page_size):
    num_qo_heads, num_kv_heads = heads
    pages = reference.pages_for((1, 0, 37, 16, 130), page_size, device)
    kv_cache = new_cache(pages, num_kv_heads, head_dim, dtype, device, view)
    shape = (len(pages.lengths), num_qo_heads, head_dim)
    q, out = fresh(shape, dtype, device, view), poisoned(shape, dtype, device, view)
    decode = kernlib.PagedDecode(num_qo_heads, num_kv_heads, head_dim, page_size)
    decode.plan(*pages.lists())
    expected, expected_lse = reference.paged_decode(q, kv_cache, pages, head_dim**-0.5)
    result, lse = decode.run(q, kv_cache, out=out, return_lse=True)
    assert result is out
    assert_attention(result, expected)
    assert lse.dtype == torch.float32
    torch.testing.assert_close(lse.double().cpu(), expected_lse, rtol=1e-5, atol=1e-5)
    assert torch.equal(result[1], torch.zeros_like(result[1])), "an empty sequence"
    assert torch.equal(lse[1], torch.full_like(lse[1], -math.inf))
    assert torch.equal(decode.run(q, kv_cache), result), "a new output, the same bits"


def assert_attention(actual, expected):
    rounding = reference.ROUNDING[actual.dtype]
    torch.testing.assert_close(actual.double().cpu(), expected, rtol=rounding, atol=1e-5)


def decode_scales_scores(device):
    """Large scores: the softmax must not overflow, and the scale must reach the kernel."""
    pages = reference.pages_for((40, 3), 16, device)
    kv_cache = new_cache(pages, 2, 64, torch.float32, device, "dense")
    q = fresh((2, 4, 64), torch.float32, device) * 30
    decode = kernlib.PagedDecode(4, 2, 64, 16)
    decode.plan(*pages.lists())
    for scale in (1.0, 0.01, -0.5):
        expected, expected_lse = reference.paged_decode(q, kv_cache, pages, scale)
        out, lse = decode.run(q, kv_cache, sm_scale=scale, return_lse=True)
        torch.testing.assert_close(out.double().cpu(), expected, rtol=1e-3, atol=2e-4)
        torch.testing.assert_close(lse.double().cpu(), expected_lse, rtol=1e-5, atol=1e-4)


def decode_follows_a_second_plan(device):
    """Run on the latest plan; an output may be the query itself."""
    first, second = (reference.pages_for(lengths, 16, device) for lengths in ((5, 60), (33,)))
    kv_cache = new_cache(first, 1, 64, torch.float16, device, "dense")
    decode = kernlib.PagedDecode(8, 1, 64, 16)
    for pages in (first, second):
        decode.plan(*pages.lists())
        q = fresh((len(pages.lengths), 8, 64), torch.float16, device)
        expected, _ = reference.paged_decode(q, kv_cache, pages, 0.125)
        assert decode.run(q, kv_cache, out=q) is q
        assert_attention(q, expected)


def decode_carries_nan(device):
    """Spoil one key: the NaN reaches that head's output and no other."""
    pages = reference.pages_for((20, 20), 16, device)
    kv_cache = new_cache(pages, 2, 64, torch.float32, device, "dense")
    page, slot = pages.place(1, 3)
    kv_cache[page, 0, 1, slot, 9] = math.nan
    decode = kernlib.PagedDecode(2, 2, 64, 16)
    decode.plan(*pages.lists())
    lost = decode.run(fresh((2, 2, 64), torch.float32, device), kv_cache).isnan()
    assert lost.flatten(1).sum(1).tolist() == [0, 64]
    assert lost[1, 1].all()

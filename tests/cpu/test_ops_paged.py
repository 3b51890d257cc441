"""Operators on the paged cache, on the CPU."""

import ops_checks as checks
import ops_reference as reference
import pytest
import torch

from kernlib import PagedDecode, append_paged_kv
from kernlib.errors import ArgumentError, SpecError

pytestmark = pytest.mark.requires("gxx")


@pytest.mark.parametrize(("dtype", "view", "page_size", "head_dim"), checks.APPEND)
def test_append(dtype, view, page_size, head_dim):
    checks.append_matches("cpu", dtype, view, page_size, head_dim)


@pytest.mark.parametrize(("dtype", "view", "head_dim", "heads", "page_size"), checks.DECODE)
def test_decode(dtype, view, head_dim, heads, page_size):
    checks.decode_matches("cpu", dtype, view, head_dim, heads, page_size)


def test_decode_scales_scores():
    checks.decode_scales_scores("cpu")


def test_decode_follows_a_second_plan():
    checks.decode_follows_a_second_plan("cpu")


def test_decode_carries_nan():
    checks.decode_carries_nan("cpu")


def test_an_empty_batch_is_left_alone():
    pages = reference.pages_for((), 16, "cpu")
    decode = planned(pages)
    out, lse = decode.run(torch.zeros(0, 4, 64), torch.zeros(3, 2, 2, 16, 64), return_lse=True)
    assert (out.shape, lse.shape) == ((0, 4, 64), (0, 4))
    nothing = torch.zeros(0, dtype=torch.int32)
    append_paged_kv(
        torch.zeros(0, 2, 64), torch.zeros(0, 2, 64), torch.zeros(3, 2, 2, 16, 64),
        pages.indices, pages.indptr, pages.last_page_len, nothing, nothing,
    )  # fmt: skip


def test_the_receiver_shows_its_state():
    pages = reference.pages_for((5, 60), 16, "cpu")
    decode = PagedDecode(4, 2, 64, 16)
    assert decode.kv_indptr is decode.kv_indices is decode.kv_last_page_len is None
    decode.plan(*pages.lists())
    assert vars(decode) == {
        "num_qo_heads": 4, "num_kv_heads": 2, "head_dim": 64, "page_size": 16,
        "kv_indptr": pages.indptr, "kv_indices": pages.indices,
        "kv_last_page_len": pages.last_page_len,
    }  # fmt: skip


def planned(pages):
    decode = PagedDecode(4, 2, 64, 16)
    decode.plan(*pages.lists())
    return decode


Q, CACHE = torch.zeros(2, 4, 64), torch.zeros(10, 2, 2, 16, 64)


def decode_with(q=Q, kv_cache=CACHE, **options):
    return planned(reference.pages_for((5, 60), 16, "cpu")).run(q, kv_cache, **options)


def plan_with(**lists):
    pages = reference.pages_for((5, 60), 16, "cpu")
    usual = {
        "kv_indptr": pages.indptr,
        "kv_indices": pages.indices,
        "kv_last_page_len": pages.last_page_len,
    }
    PagedDecode(4, 2, 64, 16).plan(**usual | lists)


def append_with(**changes):
    pages = reference.pages_for((5, 60), 16, "cpu")
    one = torch.zeros(1, dtype=torch.int32)
    usual = {
        "k": torch.zeros(1, 2, 64), "v": torch.zeros(1, 2, 64), "kv_cache": CACHE,
        "kv_indices": pages.indices, "kv_indptr": pages.indptr,
        "kv_last_page_len": pages.last_page_len, "batch_indices": one, "positions": one,
    }  # fmt: skip
    append_paged_kv(**usual | changes)


REFUSED = [
    (lambda: PagedDecode(5, 2, 64, 16), ArgumentError,
     "num_qo_heads = 5 is not a multiple of num_kv_heads = 2"),
    (lambda: PagedDecode(4, 0, 64, 16), ArgumentError, "multiple of num_kv_heads = 0"),
    (lambda: PagedDecode(4, 2, 64, 0), ArgumentError, "page_size = 0, but must be at least 1"),
    (lambda: PagedDecode(4, 2, 100, 16), SpecError,
     "head_dim = 100, but multiples of 8 up to 256 are supported"),
    (lambda: PagedDecode(4, 2, 264, 16), SpecError, "head_dim = 264"),
    (lambda: PagedDecode(4, 2, 0, 16), SpecError, "head_dim = 0"),
    (lambda: PagedDecode(4, 2, 64, 16).run(Q, CACHE), ArgumentError, "call plan first"),
    (lambda: plan_with(kv_indptr=torch.zeros(3, dtype=torch.int64)), TypeError,
     "kv_indptr is int64, but int32 is needed"),
    (lambda: plan_with(kv_indptr=torch.zeros(4, dtype=torch.int32)), ValueError,
     "kv_indptr.shape[0] = 4, but kv_last_page_len.shape[0] + 1 = 3"),
    (lambda: plan_with(kv_indices=torch.zeros(2, 2, dtype=torch.int32)), ValueError,
     "kv_indices has 2 dimensions, but a list has 1"),
    (lambda: plan_with(kv_indices=torch.zeros(8, dtype=torch.int32)[::2]), ValueError,
     "kv_indices has stride 2 in its last dimension"),
    (lambda: decode_with(q=torch.zeros(2, 8, 64)), ValueError,
     "q.shape[1] = 8, but num_qo_heads = 4"),
    (lambda: decode_with(q=torch.zeros(2, 4, 72)), ValueError,
     "q.shape[2] = 72, but head_dim = 64"),
    (lambda: decode_with(q=torch.zeros(3, 4, 64)), ValueError,
     "kv_last_page_len.shape[0] = 2, but q.shape[0] = 3"),
    (lambda: decode_with(q=Q[0]), ValueError,
     "q has 2 dimensions, but [batch, num_qo_heads, head_dim] has 3"),
    (lambda: decode_with(q=Q.double()), TypeError, "q is float64, but float16"),
    (lambda: decode_with(q=torch.zeros(2, 64, 4).mT), ValueError, "q has stride 4 in its last"),
    (lambda: decode_with(kv_cache=CACHE.half()), TypeError,
     "kv_cache is float16, but q is float32"),
    (lambda: decode_with(kv_cache=CACHE[:, :1]), ValueError,
     "kv_cache.shape[1] = 1, but K and V = 2"),
    (lambda: decode_with(kv_cache=CACHE[:, :, :1]), ValueError,
     "kv_cache.shape[2] = 1, but num_kv_heads = 2"),
    (lambda: decode_with(kv_cache=CACHE[:, :, :, :5]), ValueError,
     "kv_cache.shape[3] = 5, but page_size = 16"),
    (lambda: decode_with(kv_cache=CACHE[..., :32]), ValueError,
     "kv_cache.shape[4] = 32, but head_dim = 64"),
    (lambda: decode_with(kv_cache=CACHE[0]), ValueError, "kv_cache has 4 dimensions"),
    (lambda: decode_with(out=Q[:1]), ValueError, "out.shape[0] = 1, but q.shape[0] = 2"),
    (lambda: decode_with(out=Q.half()), TypeError, "out is float16, but q is float32"),
    (lambda: decode_with(out=Q[:1].expand(2, 4, 64)), ValueError,
     "out has stride 0 in dimension 0"),
    (lambda: append_with(k=torch.zeros(2, 2, 64)), ValueError,
     "v.shape[0] = 1, but k.shape[0] = 2"),
    (lambda: append_with(k=torch.zeros(1, 3, 64)), ValueError,
     "k.shape[1] = 3, but kv_cache.shape[2] = 2"),
    (lambda: append_with(v=torch.zeros(1, 2, 32)), ValueError,
     "v.shape[2] = 32, but kv_cache.shape[4] = 64"),
    (lambda: append_with(k=torch.zeros(1, 2, 64).half()), TypeError,
     "k is float16, but kv_cache is float32"),
    (lambda: append_with(kv_cache=CACHE.double()), TypeError, "kv_cache is float64, but float16"),
    (lambda: append_with(kv_cache=CACHE[:1].expand(10, 2, 2, 16, 64)), ValueError,
     "kv_cache has stride 0 in dimension 0 of size 10"),
    (lambda: append_with(kv_cache=CACHE[:, :, :, :0]), ValueError,
     "kv_cache.shape[3] = 0, but a page holds at least 1"),
    (lambda: append_with(positions=torch.zeros(2, dtype=torch.int32)), ValueError,
     "positions.shape[0] = 2, but k.shape[0] = 1"),
    (lambda: append_with(batch_indices=torch.zeros(1)), TypeError,
     "batch_indices is float32, but int32 is needed"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), REFUSED, ids=[row[2] for row in REFUSED])
def test_a_wrong_argument_is_named(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)

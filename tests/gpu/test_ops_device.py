"""The operators' checks on a CUDA device."""

import ops_checks as checks
import ops_reference as reference
import pytest
import torch
from ops_reference import DTYPES, fresh

import kernlib

pytestmark = pytest.mark.requires("gxx", "nvcc", "sm_80+")


@pytest.mark.parametrize(("dtype", "view", "shape"), checks.ROWS)
def test_rms_norm(dtype, view, shape):
    checks.rms_norm_matches("cuda", dtype, view, shape)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_reads_a_misaligned_weight(dtype):
    checks.rms_norm_reads_a_misaligned_weight("cuda", dtype)


@pytest.mark.parametrize(("dtype", "view", "shape"), checks.ROWS)
def test_fused_add_rms_norm(dtype, view, shape):
    checks.fused_add_rms_norm_matches("cuda", dtype, view, shape)


@pytest.mark.parametrize(("dtype", "view", "shape"), checks.ROWS)
def test_silu_and_mul(dtype, view, shape):
    checks.silu_and_mul_matches("cuda", dtype, view, shape)


@pytest.mark.parametrize(("dtype", "shape"), checks.EMPTY)
def test_empty_rows(dtype, shape):
    checks.empty_rows_are_left_alone("cuda", dtype, shape)


@pytest.mark.parametrize(("dtype", "view", "page_size", "head_dim"), checks.APPEND)
def test_append(dtype, view, page_size, head_dim):
    checks.append_matches("cuda", dtype, view, page_size, head_dim)


@pytest.mark.parametrize(("dtype", "view", "head_dim", "heads", "page_size"), checks.DECODE)
def test_decode(dtype, view, head_dim, heads, page_size):
    checks.decode_matches("cuda", dtype, view, head_dim, heads, page_size)


def test_decode_scales_scores():
    checks.decode_scales_scores("cuda")


def test_decode_follows_a_second_plan():
    checks.decode_follows_a_second_plan("cuda")


def test_decode_carries_nan():
    checks.decode_carries_nan("cuda")


@pytest.mark.parametrize("head_dim", [8, 72, 256])
def test_decode_of_unusual_head_sizes(head_dim):
    """One thread a token, idle threads in a team, a full warp a token."""
    checks.decode_matches("cuda", torch.float16, "dense", head_dim, (4, 2), 16)


def test_a_kernel_runs_on_the_current_stream():
    """The input is written late on a side stream; only a kernel on that stream sees it."""
    x, weight = fresh((64, 1024), torch.float32, "cuda"), torch.ones(1024, device="cuda")
    expected = reference.rms_norm(x, weight, 1e-6)
    late, out = torch.zeros_like(x), torch.zeros_like(x)
    torch.cuda.synchronize()
    kernlib.rms_norm(late, weight, out=out)  # built and loaded before it counts
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        late.copy_(x)
        kernlib.rms_norm(late, weight, out=out)
    side.synchronize()
    reference.assert_rounded(out, expected)


def test_a_captured_call_replays_on_new_data():
    x, weight = fresh((3, 64), torch.float16, "cuda"), fresh((64,), torch.float16, "cuda")
    out = kernlib.rms_norm(x, weight)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernlib.rms_norm(x, weight, out=out)
    x.copy_(fresh((3, 64), torch.float16, "cuda"))
    graph.replay()
    reference.assert_rounded(out, reference.rms_norm(x, weight, 1e-6))


def test_a_tensor_elsewhere_is_named():
    x, weight = torch.zeros(3, 8, device="cuda"), torch.zeros(8)
    with pytest.raises(ValueError, match="weight is on cpu, but x is on cuda:0"):
        kernlib.rms_norm(x, weight)
    pages = reference.pages_for((5,), 16, "cpu")
    decode = kernlib.PagedDecode(4, 2, 64, 16)
    decode.plan(*pages.lists())
    with pytest.raises(ValueError, match="kv_indptr is on cpu, but q is on cuda:0"):
        decode.run(
            torch.zeros(1, 4, 64, device="cuda"), torch.zeros(9, 2, 2, 16, 64, device="cuda")
        )


@pytest.mark.requires("cuda-pair")
def test_the_tensors_own_device_runs_the_kernel():
    x, weight = fresh((3, 64), torch.float32, "cuda:1"), torch.ones(64, device="cuda:1")
    with torch.cuda.device(0):
        out = kernlib.rms_norm(x, weight)
        assert torch.cuda.current_device() == 0
    assert out.device == x.device
    reference.assert_rounded(out, reference.rms_norm(x, weight, 1e-6))

"""Operators on rows, on the CPU: norms and gated activations."""

import ops_checks as checks
import pytest
import torch
from ops_reference import DTYPES, fresh

import kernlib
from kernlib.errors import UnsupportedTargetError

pytestmark = pytest.mark.requires("gxx")


@pytest.mark.parametrize(("dtype", "view", "shape"), checks.ROWS)
def test_rms_norm(dtype, view, shape):
    checks.rms_norm_matches("cpu", dtype, view, shape)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_reads_a_misaligned_weight(dtype):
    checks.rms_norm_reads_a_misaligned_weight("cpu", dtype)


@pytest.mark.parametrize(("dtype", "view", "shape"), checks.ROWS)
def test_fused_add_rms_norm(dtype, view, shape):
    checks.fused_add_rms_norm_matches("cpu", dtype, view, shape)


@pytest.mark.parametrize(("dtype", "view", "shape"), checks.ROWS)
def test_silu_and_mul(dtype, view, shape):
    checks.silu_and_mul_matches("cpu", dtype, view, shape)


@pytest.mark.parametrize(("dtype", "shape"), checks.EMPTY)
def test_empty_rows(dtype, shape):
    checks.empty_rows_are_left_alone("cpu", dtype, shape)


def test_size_one_dimensions_may_have_any_stride():
    x = torch.randn(4, 8).as_strided((4, 1, 1, 8), (8, 77, 3, 1))
    weight = torch.ones(8)
    out = torch.empty(8 * 4).as_strided((4, 1, 1, 8), (8, 1, 999, 1))
    kernlib.rms_norm(x, weight, out=out)
    assert torch.equal(out, kernlib.rms_norm(x.contiguous(), weight))


def test_broadcast_rows_are_read():
    x = torch.randn(1, 8).expand(3, 8)
    assert torch.equal(kernlib.rms_norm(x, torch.ones(8))[2], kernlib.rms_norm(x[0], torch.ones(8)))


def test_a_row_stride_beyond_32_bits_is_honoured():
    """Two rows 3 GiB elements apart; only their own pages of the storage are ever touched."""
    stride = 3 * 2**30
    x = torch.empty(stride + 8, dtype=torch.float16).as_strided((2, 8), (stride, 1))
    rows = fresh((2, 8), torch.float16, "cpu")
    x.copy_(rows)
    weight = torch.ones(8, dtype=torch.float16)
    assert torch.equal(kernlib.rms_norm(x, weight), kernlib.rms_norm(rows, weight))


def test_silu_of_large_numbers_neither_overflows_nor_loses_nan():
    gate = torch.tensor([-1e4, -88.0, 0.0, 1e4, float("nan")])
    out = kernlib.silu_and_mul(torch.cat([gate, torch.ones(5)]))
    assert out[:4].tolist() == [-0.0, pytest.approx(0, abs=1e-30), 0.0, 1e4]
    assert out[4].isnan()


X, WEIGHT = torch.zeros(3, 8), torch.zeros(8)
REFUSED = [
    (lambda: kernlib.rms_norm(X, WEIGHT[:5]), ValueError,
     "weight.shape[0] = 5, but x.shape[1] = 8"),
    (lambda: kernlib.rms_norm(X, WEIGHT.half()), TypeError, "weight is float16, but x is float32"),
    (lambda: kernlib.rms_norm(X.double(), WEIGHT.double()), TypeError,
     "x is float64, but float16, bfloat16 or float32 is needed"),
    (lambda: kernlib.rms_norm(X.int(), WEIGHT), TypeError, "x is int32, but float16"),
    (lambda: kernlib.rms_norm(X.bool(), WEIGHT), TypeError, "x is bool, but float16"),
    (lambda: kernlib.rms_norm(torch.zeros(8, 3).t(), WEIGHT), ValueError,
     "x has stride 3 in its last dimension, but only 1 is supported"),
    (lambda: kernlib.rms_norm(X, torch.zeros(16)[::2]), ValueError,
     "weight has stride 2 in its last dimension, but only 1 is supported"),
    (lambda: kernlib.rms_norm(X, WEIGHT[None]), ValueError,
     "weight has 2 dimensions, but [hidden] has 1"),
    (lambda: kernlib.rms_norm(torch.tensor(1.0), WEIGHT), ValueError,
     "x has 0 dimensions, but at least 1 is needed"),
    (lambda: kernlib.rms_norm(X, WEIGHT, out=torch.zeros(2, 8)), ValueError,
     "out.shape[0] = 2, but x.shape[0] = 3"),
    (lambda: kernlib.rms_norm(X, WEIGHT, out=X.half()), TypeError,
     "out is float16, but x is float32"),
    (lambda: kernlib.rms_norm(X, WEIGHT, out=WEIGHT.expand(3, 8)), ValueError,
     "out has stride 0 in dimension 0 of size 3, but it is written to"),
    (lambda: kernlib.rms_norm(torch.zeros(5, 4, 3, 8).permute(2, 1, 0, 3), WEIGHT), ValueError,
     "x has shape [3, 4, 5, 8] and strides [8, 24, 96, 1], but rows of at most two strides"),
    (lambda: kernlib.rms_norm(X.numpy(), WEIGHT), TypeError, "a torch.Tensor is needed"),
    (lambda: kernlib.rms_norm(odd_address(), WEIGHT), ValueError,
     "x starts 1 bytes past a multiple of its element size, 4"),
    (lambda: kernlib.rms_norm(X.to("meta"), WEIGHT), UnsupportedTargetError,
     "norm does not support target 'meta'; supported: cpu, cuda"),
    (lambda: kernlib.fused_add_rms_norm_(X, X, WEIGHT), ValueError,
     "x and residual share memory"),
    (lambda: kernlib.fused_add_rms_norm_(X, X[:2], WEIGHT), ValueError,
     "residual.shape[0] = 2, but x.shape[0] = 3"),
    (lambda: kernlib.silu_and_mul(X[:, :7]), ValueError,
     "x.shape[1] = 7, but gate and up need an even size"),
    (lambda: kernlib.silu_and_mul(X, out=X), ValueError,
     "out.shape[1] = 8, but half of x's last dimension = 4"),
    (lambda: kernlib.silu_and_mul(torch.tensor(1.0)), ValueError, "x has 0 dimensions"),
]  # fmt: skip


def odd_address():
    storage = bytearray(3 * 8 * 4 + 17)
    start = -torch.frombuffer(storage, dtype=torch.uint8).data_ptr() % 16 + 1
    return torch.frombuffer(storage, dtype=torch.float32, count=24, offset=start).view(3, 8)


@pytest.mark.parametrize(("call", "error", "message"), REFUSED, ids=[row[2] for row in REFUSED])
def test_a_wrong_argument_is_named(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)

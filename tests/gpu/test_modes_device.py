"""Release, lineinfo, debug and Triton builds run on a device and agree."""

import pytest
import torch

import kernlib
from kernlib.config import Mode, get_config, using

pytestmark = pytest.mark.requires("cuda", "nvcc")

MODES = (Mode.RELEASE, Mode.LINEINFO, Mode.DEBUG)


def in_mode(mode, function, *arguments, **options):
    with using(get_config().replace(jit_mode=mode)):
        return function(*arguments, **options)


def random(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, dtype=dtype, device="cuda")


def test_lineinfo_agrees_in_every_bit_and_debug_closely():
    """The machine code of lineinfo is that of release; that of debug is not."""
    x, weight = random(37, 1000), random(1000)
    release, lineinfo, debug = (in_mode(mode, kernlib.rms_norm, x, weight) for mode in MODES)
    assert torch.equal(lineinfo, release)
    torch.testing.assert_close(debug, release)


def test_decoding_agrees_in_every_mode():
    cache, q = random(8, 2, 2, 16, 64), random(3, 4, 64)
    table = [[0, 2, 5, 8], [7, 0, 3, 1, 2, 6, 4, 5], [3, 16, 9]]
    indptr, indices, last = (torch.tensor(r, dtype=torch.int32, device="cuda") for r in table)

    def decode():
        attention = kernlib.PagedDecode(4, 2, 64, 16)
        attention.plan(indptr, indices, last)
        return attention.run(q, cache)

    release, lineinfo, debug = (in_mode(mode, decode) for mode in MODES)
    assert torch.equal(lineinfo, release)
    torch.testing.assert_close(debug, release)


@pytest.mark.requires("triton")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_triton_agrees_with_every_mode(dtype):
    x = random(33, 514, dtype=dtype)
    triton = kernlib.silu_and_mul(x, backend="triton")
    for mode in MODES:
        torch.testing.assert_close(in_mode(mode, kernlib.silu_and_mul, x), triton)

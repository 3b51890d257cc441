"""The fused statistics are exact, on every dtype and every view."""

import ctypes
import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from statistics_samples import DTYPES, FLOATS, VIEWS, agree, noise, numbers

from kernlib import jit
from kernlib._statistics import FusedStatistics, statistics_spec
from kernlib.config import Mode, get_config
from kernlib.logging import statistics

pytestmark = pytest.mark.requires("gxx")

NAN, INF = float("nan"), float("inf")
SMALL = {torch.float32: 2.0**-149, torch.bfloat16: 2.0**-133, torch.float16: 2.0**-24}


def refuse(_tensor):
    raise AssertionError("the kernel takes this tensor")


@pytest.fixture(scope="module")
def fused():
    """Return the statistics by kernel; what Python would have to do is an error."""
    by_kernel = FusedStatistics(get_config(), refuse)
    assert by_kernel.kernel.wait(300) is not None
    return by_kernel


def measured(function, tensor, threads=1, vector_bytes=64):
    """Return what an exported function writes, as a list of 64-bit words."""
    words = (ctypes.c_int64 * 8)()
    function(tensor, ctypes.c_void_p(ctypes.addressof(words)), 77, 0, threads, vector_bytes)
    *found, ticket = words
    assert ticket == 77
    return found


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [1, 2, 31, 33, 64, 1000, 8191, 8193, 20_000])
def test_random_bits_and_numbers(fused, dtype, count):
    for values in (noise(dtype, count), numbers(dtype, count)):
        agree(fused(values), values)


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d.itemsize < 4], ids=str)
def test_every_bit_pattern(fused, dtype):
    """All at once, and each alone."""
    bits = torch.arange(256**dtype.itemsize, dtype=torch.int32)
    whole = bits.to(torch.uint8 if dtype.itemsize == 1 else torch.uint16).view(dtype)
    agree(fused(whole), whole)
    for value in whole[:: 1 if dtype.itemsize == 1 else 97].split(1):
        agree(fused(value), value)


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.uint8, torch.int32])
def test_views_are_read_where_they_are(fused, dtype, name):
    for values in (noise(dtype, 16_000), numbers(dtype, 16_000)):
        view = VIEWS[name](values)
        agree(fused(view), view)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    "values",
    [[NAN] * 70, [INF] * 70, [INF, -INF] * 35, [0.0, -0.0] * 35, [-0.0] * 70, [NAN] * 69 + [1.0],
     [1.0] + [-INF] * 69, [-1.0] * 70, [-2.0, -1.0] * 35, [0.5] * 70],
    ids=str,
)  # fmt: skip
def test_hard_values(fused, dtype, values):
    tensor = torch.tensor(values, dtype=torch.float64).to(dtype)
    found = fused(tensor)
    agree(found, tensor)
    assert "-0.0" not in str(found)


@pytest.mark.parametrize("flush", [False, True], ids=["kept", "flushed"])
@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_subnormals_are_numbers_even_where_the_process_flushes_them(fused, dtype, flush):
    tensor = torch.tensor([SMALL[dtype], -SMALL[dtype], SMALL[dtype]], dtype=torch.float64)
    tensor = tensor.to(dtype).repeat(50)
    torch.set_flush_denormal(flush)
    try:
        found = fused(tensor)
    finally:
        torch.set_flush_denormal(False)
    assert (found["min"], found["max"], found["zero"]) == (-SMALL[dtype], SMALL[dtype], 0)
    assert found["mean"] == pytest.approx(SMALL[dtype] / 3, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_sum_beyond_the_dtype_has_a_mean(fused, dtype):
    largest = torch.finfo(dtype).max
    tensor = torch.full((100_000,), largest, dtype=dtype)
    assert fused(tensor)["mean"] == pytest.approx(largest, rel=1e-6)
    tensor[1::2] = -largest
    assert fused(tensor)["mean"] == 0


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint64], ids=str)
def test_large_integers_stay_exact(fused, dtype):
    edge = torch.iinfo(dtype)
    tensor = torch.tensor([edge.max - 1, edge.min + 1, 2**53 + 1], dtype=dtype)
    agree(fused(tensor), tensor)
    assert fused(tensor)["max"] == edge.max - 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_the_mean_of_many_elements(fused, dtype):
    tensor = torch.full((10_000_001,), 0.1, dtype=dtype)
    tensor[::2] *= 3
    half = tensor[:2].double()
    wanted = (half[0] * 5_000_001 + half[1] * 5_000_000).item() / 10_000_001
    assert fused(tensor)["mean"] == pytest.approx(wanted, rel=1e-7)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_threads_and_instruction_sets_agree(fused, dtype):
    function = fused.kernel.get().function("statistics")
    rows = noise(dtype, 1 << 21).view(1 << 11, 1 << 10)
    for tensor in (rows, rows[:, 3:900], rows.t()[::3], numbers(dtype, 1 << 20)):
        *exact, mean = _mean_last(measured(function, tensor, threads=1, vector_bytes=16))
        for threads, vector_bytes in [(1, 32), (1, 64), (2, 64), (64, 64)]:
            *words, other = _mean_last(measured(function, tensor, threads, vector_bytes))
            assert words == exact
            assert other == pytest.approx(mean, rel=1e-6, abs=1e-9)


def _mean_last(words):
    lowest, highest, mean, *counts = words
    return [lowest, highest, *counts, struct.unpack("d", struct.pack("q", mean))[0]]


def test_complex_numbers_are_pairs_and_conjugates_are_resolved(fused):
    z = torch.randn(50, dtype=torch.complex64)
    agree(fused(z), torch.view_as_real(z))
    agree(fused(z.conj()), torch.view_as_real(z.conj().resolve_conj()))
    imaginary = z.conj().imag
    assert imaginary.is_neg()
    agree(fused(imaginary), imaginary.resolve_neg())


def test_what_autograd_watches_is_read_and_left_alone(fused):
    weight = torch.nn.Parameter(torch.randn(30))
    doubled = weight * 2
    agree(fused(weight), weight.detach())
    agree(fused(doubled), doubled.detach())
    with torch.inference_mode():
        agree(fused(weight * 3), weight * 3)


def test_an_element_at_an_odd_address(fused):
    memory = bytearray(numbers(torch.float32, 3000).numpy().tobytes()) + bytearray(4)
    tensor = torch.frombuffer(memory, dtype=torch.float32, offset=1, count=2999)
    assert tensor.data_ptr() % 4
    agree(fused(tensor), tensor.clone())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_python_says_the_same(dtype):
    """The substitute, which serves until the kernel is there, has the same order and values."""
    for values in (noise(dtype, 3000), numbers(dtype, 3000).view(50, 60).t()):
        agree(statistics(values), values)


def test_what_the_kernel_does_not_take_is_left_to_python():
    class Own(torch.Tensor):
        pass

    asked = []
    mixed = FusedStatistics(get_config(), lambda tensor: asked.append(tensor) or "by Python")
    assert mixed.kernel.wait(300) is not None
    own = torch.ones(3).as_subclass(Own)
    others = [torch.empty(0), torch.empty(2, device="meta"), own, torch.ones(3).to_sparse()]
    assert [mixed(tensor) for tensor in others] == ["by Python"] * 4
    assert [id(tensor) for tensor in asked] == [id(tensor) for tensor in others]


def test_the_kernel_names_what_it_refuses(fused):
    function = fused.kernel.get().function("statistics")
    with pytest.raises(TypeError, match="x is complex64, but a real number of 8 to 64 bits"):
        measured(function, torch.ones(2, dtype=torch.complex64))
    with pytest.raises(ValueError, match="x is empty"):
        measured(function, torch.empty(0, 3))
    with pytest.raises(ValueError, match="x has 65 dimensions, but at most 64"):
        measured(function, torch.ones((2,) + (1,) * 64))
    with pytest.raises(ValueError, match="slot = 4096, but there are 4096"):
        function(torch.ones(2), ctypes.c_void_p(), 0, 4096, 1, 64)


FORKED = """
import json, os, sys, torch
from kernlib._statistics import FusedStatistics
from kernlib.config import get_config
from kernlib.logging import statistics

fused = FusedStatistics(get_config(), statistics)
assert fused.kernel.wait(300) is not None
large = torch.arange(1 << 22, dtype=torch.float32)
torch.set_num_threads(2)
here = fused(large)
child = os.fork()
if child == 0:
    print(json.dumps(fused(large)), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(json.dumps(here))
print(json.dumps(fused(large)))
"""


def run(code, **variables):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=os.environ | variables,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("team", ["parent", "child"])
def test_a_forked_child_does_not_wait_for_threads_that_it_has_not(fused, team):  # noqa: ARG001 - builds the kernel
    """The parent's threads are used, or only torch's are; the child works alone."""
    code = (
        FORKED
        if team == "parent"
        else FORKED.replace("here = fused(large)", "here = fused(large[:9]) and statistics(large)")
    )
    done = run(code, PYTHONWARNINGS="ignore::DeprecationWarning")
    assert (done.returncode, done.stderr) == (0, "")
    child, *others = map(json.loads, done.stdout.splitlines())
    assert others == [child, child]


def test_a_process_may_end_while_the_kernel_is_built(tmp_path):
    """The first statistics are Python's, and nothing waits; another process finds the kernel."""
    code = """
import time, torch
from kernlib._statistics import FusedStatistics
from kernlib.config import get_config

fused = FusedStatistics(get_config(), lambda tensor: "by Python")
print(fused(torch.ones(3)))
while not list(get_config().workspace.glob("generated/*/*")):
    time.sleep(0.01)
"""
    done = run(code, KERNLIB_WORKSPACE=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "by Python\n", "")
    disabled = get_config().replace(workspace=tmp_path, jit_disable=True)
    deadline = time.monotonic() + 300
    while FusedStatistics(disabled, refuse).kernel.wait(60) is None:
        assert time.monotonic() < deadline, "the build goes on without the process"
        time.sleep(0.2)


MODES = [
    pytest.param(Mode.DEBUG, "g++", id="debug"),
    pytest.param(Mode.LINEINFO, "g++", id="lineinfo"),
    pytest.param(Mode.RELEASE, "clang++", id="clang", marks=pytest.mark.requires("clang")),
]


@pytest.mark.parametrize(("mode", "cxx"), MODES)
def test_other_builds_say_the_same(fused, mode, cxx):
    release = fused.kernel.get().function("statistics")
    choice = jit.KernelChoice(spec=statistics_spec(), target="cpu", reason="test")
    other = jit.load(choice, get_config().replace(cxx=cxx), mode).function("statistics")
    for dtype in DTYPES:
        for values in (noise(dtype, 5000), numbers(dtype, 5000).view(50, 100).t()):
            for vector_bytes in (16, 32, 64):
                *exact, mean = _mean_last(measured(release, values, 1, vector_bytes))
                *words, found = _mean_last(measured(other, values, 1, vector_bytes))
                assert words == exact
                assert found == pytest.approx(mean, rel=1e-6, abs=1e-9)


SANITIZED = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from statistics_samples import DTYPES, VIEWS, agree, noise, numbers
from kernlib._statistics import statistics_spec
from kernlib._statistics._fused import _fused
from kernlib import jit
from kernlib.config import Mode, get_config

choice = jit.KernelChoice(spec=statistics_spec(), target="cpu", reason="test")
function = jit.load(choice, get_config(), Mode.SANITIZE).function("statistics")
for dtype in DTYPES:
    for count in (1, 33, 9001):
        values = noise(dtype, count)
        agree(_fused(function, values), values)
for view in VIEWS.values():
    values = view(numbers(torch.bfloat16, 16_000)).clone(memory_format=torch.preserve_format)
    agree(_fused(function, values), values)
    values = view(numbers(torch.float32, 16_000))
    agree(_fused(function, values), values)
print("clean")
"""


#: The second for torch with CUDA, whose driver maps memory there.
ASAN_OPTIONS = "detect_leaks=0:protect_shadow_gap=0:detect_odr_violation=0"


@pytest.mark.requires("asan")
def test_the_sanitizers_find_nothing():
    library = subprocess.run(
        ["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    done = subprocess.run(
        [sys.executable, "-c", SANITIZED, str(Path(__file__).parents[1])],
        env=os.environ | {"ASAN_OPTIONS": ASAN_OPTIONS, "LD_PRELOAD": library},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "clean\n"), done.stderr[-3000:]

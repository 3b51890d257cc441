"""The Triton backend on a CUDA device, beside the others."""

import os
import subprocess
import sys
import threading

import ops_checks as checks
import ops_reference as reference
import pytest
import torch
from ops_reference import DTYPES, fresh

import kernlib
from kernlib.config import Mode, get_config, using
from kernlib.ops._activation import activation_kernels

pytestmark = pytest.mark.requires("gxx", "nvcc", "triton", "sm_80+")


@pytest.mark.parametrize(("dtype", "view", "shape"), checks.ROWS)
def test_silu_and_mul(dtype, view, shape):
    checks.silu_and_mul_matches("cuda", dtype, view, shape, backend="triton")


@pytest.mark.parametrize("mode", [Mode.RELEASE, Mode.LINEINFO])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_backends_agree(dtype, mode):
    x = fresh((67, 3000), dtype, "cuda")
    expected = reference.silu_and_mul(x)
    with using(get_config().replace(jit_mode=mode)):
        for backend in ("cuda", "triton", None):
            reference.assert_rounded(kernlib.silu_and_mul(x, backend=backend), expected)
        on_cpu = kernlib.silu_and_mul(x.cpu(), backend="cpu")
    reference.assert_rounded(on_cpu, expected.cpu())


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan, 1e4, -1e4, 0.0, -0.0])
def test_the_backends_agree_on_unusual_numbers(value):
    x = torch.full((2, 40), value, device="cuda")
    results = [kernlib.silu_and_mul(x, backend=backend) for backend in ("cuda", "triton")]
    torch.testing.assert_close(*results, equal_nan=True)


def test_empty_tensors_launch_nothing():
    for shape in ((0, 16), (3, 0), (2, 0, 8)):
        x = torch.zeros(shape, device="cuda")
        assert kernlib.silu_and_mul(x, backend="triton").shape == (*shape[:-1], shape[-1] // 2)


def test_the_choice_says_what_was_asked_for():
    x = torch.zeros(2, 8, device="cuda")
    (choice,) = activation_kernels(x, backend="triton")
    major, minor = torch.cuda.get_device_capability()
    assert choice.spec.backend == "triton"
    assert choice.reason == (
        f"x is on cuda:{x.device.index}, compute capability {major}.{minor}; "
        "backend triton was asked for"
    )


def test_a_mistake_is_refused_in_the_words_of_the_binding():
    x = torch.zeros(3, 8, device="cuda")
    for out in (torch.zeros(3, 4), torch.zeros(3, 5, device="cuda"), x[:, :4].half()):
        messages = []
        for backend in ("cuda", "triton"):
            with pytest.raises((TypeError, ValueError)) as raised:
                kernlib.silu_and_mul(x, out=out, backend=backend)
            messages.append(str(raised.value))
        assert messages[1] in messages[0]


def test_it_runs_on_the_current_stream():
    """The input is written late on a side stream; only a kernel on that stream sees it."""
    x = fresh((64, 1024), torch.float32, "cuda")
    expected = reference.silu_and_mul(x)
    late, out = torch.zeros_like(x), torch.zeros(64, 512, device="cuda")
    kernlib.silu_and_mul(late, out=out, backend="triton")  # built and loaded before it counts
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        late.copy_(x)
        kernlib.silu_and_mul(late, out=out, backend="triton")
    side.synchronize()
    reference.assert_rounded(out, expected)


def test_a_captured_call_replays_on_new_data():
    x = fresh((3, 64), torch.bfloat16, "cuda")
    out = kernlib.silu_and_mul(x, backend="triton")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernlib.silu_and_mul(x, out=out, backend="triton")
    x.copy_(fresh((3, 64), torch.bfloat16, "cuda"))
    graph.replay()
    reference.assert_rounded(out, reference.silu_and_mul(x))


CAPTURED_FIRST = """
import torch, kernlib
x = torch.randn(3, 64, device="cuda")
out = torch.zeros(3, 32, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    kernlib.silu_and_mul(x, out=out, backend="triton")
graph.replay()
torch.testing.assert_close(out, torch.nn.functional.silu(x[:, :32]) * x[:, 32:])
print("agrees")
"""


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, *code], env={**os.environ, **environment}, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_first_launch_of_a_process_may_be_captured():
    assert "agrees" in run(["-c", CAPTURED_FIRST])


def test_a_thread_that_never_used_the_device_can_launch():
    x, found = fresh((5, 64), torch.float32, "cuda"), []
    expected = reference.silu_and_mul(x)
    torch.cuda.synchronize()

    def work():
        found.append(kernlib.silu_and_mul(x, backend="triton"))
        torch.cuda.synchronize()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    reference.assert_rounded(found[0], expected)


@pytest.mark.requires("cuda-pair")
def test_the_tensors_own_device_runs_the_kernel():
    x = fresh((3, 64), torch.float32, "cuda:1")
    with torch.cuda.device(0):
        out = kernlib.silu_and_mul(x, backend="triton")
        assert torch.cuda.current_device() == 0
    assert out.device == x.device
    reference.assert_rounded(out, reference.silu_and_mul(x))


RECORDED = """
import torch, kernlib
kernlib.silu_and_mul(torch.randn(3, 64, device="cuda", dtype=torch.float16), backend="triton")
torch.cuda.synchronize()
"""


@pytest.mark.parametrize("options", [(), ("--mode", "lineinfo"), ("--trust-sources",)])
def test_a_recorded_call_is_replayed(tmp_path, options):
    dumps = tmp_path / "dumps"
    run(["-c", RECORDED], KERNLIB_LOG_LEVEL="dump", KERNLIB_DUMP_DIR=str(dumps))
    report = run(["-m", "kernlib.replay.cli", str(dumps), *options])
    assert "passed" in report
    assert "activation-triton" in report

"""Statistics on a device are exact, come later, and wait for nothing."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from statistics_samples import DTYPES, FLOATS, VIEWS, agree, noise, numbers

from kernlib import ring
from kernlib._registry import Api
from kernlib._statistics import FusedStatistics
from kernlib.config import Config, Level, get_config
from kernlib.logging import LogSink, Recorder, RingSink, recorded

pytestmark = pytest.mark.requires("cuda", "gxx", "nvcc")

NAN, INF = float("nan"), float("inf")


def refuse(_tensor):
    raise AssertionError("the kernel takes this tensor")


@pytest.fixture(scope="module")
def fused():
    by_kernel = FusedStatistics(get_config(), refuse)
    assert by_kernel.kernel_on(torch.device("cuda:0")).wait(300) is not None
    return by_kernel


def measured(fused, tensor):
    awaited = fused(tensor)
    torch.cuda.synchronize()
    found = awaited.poll()
    assert found is not None
    return found


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [1, 2, 31, 64, 1000, 8193, 20_000])
def test_random_bits_and_numbers(fused, dtype, count):
    for values in (noise(dtype, count), numbers(dtype, count)):
        agree(measured(fused, values.cuda()), values)


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d.itemsize < 4], ids=str)
def test_every_bit_pattern(fused, dtype):
    bits = torch.arange(256**dtype.itemsize, dtype=torch.int32)
    whole = bits.to(torch.uint8 if dtype.itemsize == 1 else torch.uint16).view(dtype)
    agree(measured(fused, whole.cuda()), whole)
    for value in whole[:: 1 if dtype.itemsize == 1 else 997].split(1):
        agree(measured(fused, value.cuda()), value)


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.uint8, torch.int32])
def test_views_are_read_where_they_are(fused, dtype, name):
    for values in (noise(dtype, 16_000), numbers(dtype, 16_000)):
        agree(measured(fused, VIEWS[name](values.cuda())), VIEWS[name](values))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    "values",
    [[NAN] * 70, [INF] * 70, [INF, -INF] * 35, [0.0, -0.0] * 35, [-0.0] * 70, [NAN] * 69 + [1.0],
     [1.0] + [-INF] * 69, [-1.0] * 70, [-2.0, -1.0] * 35, [0.5] * 70],
    ids=str,
)  # fmt: skip
def test_hard_values(fused, dtype, values):
    tensor = torch.tensor(values, dtype=torch.float64).to(dtype)
    found = measured(fused, tensor.cuda())
    agree(found, tensor)
    assert "-0.0" not in str(found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_subnormals_and_sums_beyond_the_dtype(fused, dtype):
    small = torch.finfo(dtype).smallest_normal / 4
    tensor = torch.tensor([small, -small, small], dtype=torch.float64).to(dtype).repeat(50)
    agree(measured(fused, tensor.cuda()), tensor)
    largest = torch.finfo(dtype).max
    tensor = torch.full((100_000,), largest, dtype=dtype, device="cuda")
    assert measured(fused, tensor)["mean"] == pytest.approx(largest, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.uint8, torch.int64])
def test_many_elements_with_a_rare_nan(fused, dtype):
    """Large enough for every block and for segments of every length."""
    count = 50_000_003
    values = torch.randint(1, 100, (count,), device="cuda").to(dtype)
    if dtype.is_floating_point:
        values[[7, 1_000_001, count - 1]] = NAN
    values[[5, 40_000_000]] = 0
    found = measured(fused, values)
    wide = values.double()
    finite = wide[wide.isfinite()]
    assert (found["min"], found["max"], found["zero"]) == (0, finite.max().item(), 2)
    assert found["nan"] == (3 if dtype.is_floating_point else 0)
    assert found["mean"] == pytest.approx(finite.mean().item(), rel=1e-7)


def test_nothing_waits_and_the_results_come_in_the_order_of_the_stream(fused):
    x = torch.ones(1 << 20, device="cuda")
    x += 0
    measured(fused, x)  # what is used for the first time is loaded, and that may wait
    torch.cuda._sleep(int(2e9))  # about a second
    begin = time.monotonic()
    awaited = []
    for step in range(1, 51):
        x += 1
        awaited.append((step, fused(x)))
    asked = time.monotonic() - begin
    assert awaited[0][1].poll() is None, "the device was still asleep"
    torch.cuda.synchronize()
    assert time.monotonic() - begin > 2 * asked
    assert [one.poll()["max"] for _, one in awaited] == [step + 1 for step, _ in awaited]


def test_two_streams_do_not_disturb_each_other(fused):
    streams = [torch.cuda.Stream() for _ in range(4)]
    tensors = [torch.full((1 << 20,), float(n), device="cuda") for n in range(4)]
    torch.cuda.synchronize()
    awaited = []
    for _ in range(200):
        for number, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                awaited.append((number, fused(tensors[number])))
    torch.cuda.synchronize()
    for number, one in awaited:
        found = one.poll()
        assert found["min"] == found["max"] == found["mean"] == number


def test_where_all_places_are_taken_the_line_says_so(fused):
    x = torch.ones(3, device="cuda")
    awaited = [fused(x) for _ in range(5000)]
    torch.cuda.synchronize()
    refused = [one for one in awaited if isinstance(one, str)]
    taken = [one for one in awaited if not isinstance(one, str)]
    assert len(taken) <= 4096
    assert set(refused) == {"not taken: the device has yet to get to those of earlier calls"}
    assert all(one.poll()["max"] == 1 for one in taken)
    assert measured(fused, x)["max"] == 1


def scaled(x, factor):
    return x * factor


@pytest.mark.parametrize("form", ["json", "ring"])
def test_a_recorded_call_gets_them_and_a_capture_is_left_alone(fused, tmp_path, form):
    config = Config(log_level=Level.STATS, log_format=form, log_dest=str(tmp_path / "log"))
    ring_sink = form == "ring"
    sink = RingSink(config, dict, lambda: None, fused) if ring_sink else LogSink(config, fused)
    api = recorded(scaled, Api("scaled", scaled), Recorder([sink]))
    x = torch.arange(6, dtype=torch.float32, device="cuda").view(2, 3).t()
    api(x, 2)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = api(x, 3)
    x.fill_(5)
    graph.replay()
    assert (result == 15).all()

    def events():
        if ring_sink:
            return [record.event() for record in ring.read_ring(sink.path).records]
        return [json.loads(line) for line in Path(config.log_dest).read_text().splitlines()]

    deadline = time.monotonic() + 20
    while len(events()) < 6:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    found = events()
    assert sorted(event["event"] for event in found) == (
        ["call", "call", "return", "return", "stats", "stats"]
    )
    of_args, of_result = (event for event in found if event["event"] == "stats")
    assert of_args["args"]["x"]["stats"] == {
        "min": 0.0, "max": 5.0, "mean": 2.5, "absmax": 5.0, "nan": 0, "inf": 0, "zero": 1,
    }  # fmt: skip
    assert of_result["outputs"]["result"]["stats"]["max"] == 10
    captured = next(e for e in found if e["event"] == "call" and e["call"] == 2)
    assert captured["args"]["x"]["stats"] == "capturing"


FAULTY = """
import sys, time, torch, kernlib
from kernlib._statistics import FusedStatistics
from kernlib.config import get_config

kernel = FusedStatistics(get_config(), None).kernel_on(torch.device("cuda:0"))
assert kernel.wait(300) is not None
x = torch.ones(4, 128, device="cuda", dtype=torch.bfloat16)
w = torch.ones(128, device="cuda", dtype=torch.bfloat16)
kernlib.rms_norm(x, w)   # begins to load the statistics of this recorder
torch.cuda.synchronize()
time.sleep(3)
kernlib.rms_norm(x * 3, w)
torch.cuda.synchronize()
torch.cuda._sleep(int(1e8))
torch._assert_async(torch.zeros(1, device="cuda"))  # fails on the device
for _ in range(5):
    try:
        kernlib.rms_norm(x, w)
    except RuntimeError:
        break
sys.exit(3)
"""


def test_after_a_fault_the_log_says_how_far_the_device_got(tmp_path):
    log = tmp_path / "log"
    config = get_config().replace(log_level=Level.STATS, log_format="json", log_dest=str(log))
    done = subprocess.run(
        [sys.executable, "-c", FAULTY], env=os.environ | config.to_env(), timeout=120,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr[-2000:]
    stats = [json.loads(line) for line in log.read_text().splitlines()]
    stats = [event for event in stats if event["event"] == "stats"]
    before = [event for event in stats if event["call"] == 2 and "args" in event]
    assert before[0]["args"]["x"]["stats"]["max"] == 3
    after = [event for event in stats if event["call"] > 2]
    assert after, "calls were launched after the faulty kernel"
    for event in after:
        for value in (event.get("args") or event["outputs"]).values():
            assert value["stats"] == "the device did not get to it"

"""Preconditions of tensors on a CUDA device, before a launch and in a capsule."""

import json
import logging

import pytest
import torch
from replay_runs import FAR, command, record

import kernlib
import kernlib.ops
from kernlib._checks import NoOverlap, SameDevice
from kernlib._registry import Api, registry
from kernlib._runtime import build_recorder
from kernlib.config import Config
from kernlib.errors import InvalidInputError
from kernlib.logging import recorded

pytestmark = pytest.mark.requires("cuda", "nvcc")


def checked(name):
    """Return an operator of kernlib as it is under KERNLIB_CHECK, and its class if it has one."""
    api = registry.get("kernlib", name)
    return recorded(api.function, api, build_recorder(Config(check=True)))


def decoder(*indices):
    decode = kernlib.PagedDecode(4, 2, 64, 16)
    lists = ([0, 2, 4], list(indices), [16, 3])
    decode.plan(*(torch.tensor(part, dtype=torch.int32, device="cuda") for part in lists))
    return decode


def test_a_bad_page_is_raised_before_the_launch_and_the_device_stays_well():
    run = checked("PagedDecode.run")
    q = torch.zeros(2, 4, 64, device="cuda")
    kv_cache = torch.zeros(4, 2, 2, 16, 64, device="cuda")
    with pytest.raises(InvalidInputError, match=r"kv_indices\[2\] = 67108864, but the pool has 4"):
        run(decoder(0, 1, 67108864, 3), q, kv_cache)
    torch.cuda.synchronize()
    assert run(decoder(0, 1, 2, 3), q, kv_cache).shape == q.shape
    torch.cuda.synchronize()


def test_indices_are_read_after_what_is_queued_before_them():
    run, decode = checked("PagedDecode.run"), decoder(0, 1, 2, 3)
    q = torch.zeros(2, 4, 64, device="cuda")
    kv_cache = torch.zeros(4, 2, 2, 16, 64, device="cuda")
    torch.cuda._sleep(100_000_000)
    decode.kv_indices[1] = 9
    with pytest.raises(InvalidInputError, match=r"kv_indices\[1\] = 9"):
        run(decode, q, kv_cache)


def test_operands_on_two_devices_are_told_apart():
    norm = checked("rms_norm")
    with pytest.raises(InvalidInputError, match="weight is on cpu, but x is on cuda:0"):
        norm(torch.zeros(2, 8, device="cuda"), torch.zeros(8))
    halves = torch.zeros(2, 16, device="cuda")
    with pytest.raises(InvalidInputError, match="out shares memory with x"):
        norm(halves[:, :8], torch.zeros(8, device="cuda"), out=halves[:, 4:12])


def test_during_graph_capture_nothing_is_read_and_the_graph_runs(caplog):
    norm = checked("rms_norm")
    x, weight = torch.ones(2, 8, device="cuda"), torch.ones(8, device="cuda")
    out = torch.zeros_like(x)
    norm(x, weight, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with caplog.at_level(logging.WARNING, logger="kernlib.recorder"), torch.cuda.graph(graph):
        norm(x, weight, out=out)
    assert [row.getMessage().partition(",")[0] for row in caplog.records] == [
        "rms_norm is called while a CUDA graph is captured"
    ]
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(out, torch.ones_like(out))


def test_checks_of_an_own_api_see_layouts_on_the_device():
    def work(a, b):
        return a, b

    api = Api("work", work, checks=(SameDevice("a", "b"), NoOverlap("a", "b")))
    call = recorded(work, api, build_recorder(Config(check=True)))
    pool = torch.zeros(64, device="cuda")
    call(pool[:32], pool[32:])
    with pytest.raises(InvalidInputError, match=r"a shares memory with b \(a starts 128 bytes"):
        call(pool[32:], pool[:64])


def test_a_capsule_of_a_crash_is_judged_where_no_device_is_seen(tmp_path):
    code = f"faultlib.take_rows(floats(6, 5), ints(4, 2, {FAR}))"
    assert record(code, tmp_path, device="cuda").returncode != 0
    done = command(
        tmp_path, "--check", "--json", "--import", "faultlib", CUDA_VISIBLE_DEVICES="", PATH=""
    )
    assert done.returncode == 15, done.stderr
    (found,) = json.loads(done.stdout)["calls"]
    assert found["text"] == "bad input (certain: 1 of 1 declared precondition is broken)"
    assert found["findings"][0]["message"] == f"pages[2] = {FAR}, but the pool has 6 rows"

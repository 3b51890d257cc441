"""A call runs again on a stream of its own where it ran on one; else where it would anyway."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from kernlib.replay._streams import Streams


@pytest.fixture
def used(monkeypatch):
    """Let torch make streams without a device; return what was done, in order."""
    done = []

    def make(device):
        done.append(f"made on {device}")
        return len(done)

    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: done.append(f"waited {device}"))
    monkeypatch.setattr(torch.cuda, "Stream", make)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext(f"stream {stream}"))
    return done


def on(stream, device="cuda:0"):
    return SimpleNamespace(stream=stream, device=device)


@pytest.mark.parametrize("stream", [None, 0, 1, 2])
def test_a_default_stream_is_left_alone(used, stream):
    with Streams().of(on(stream), {}) as chosen:
        assert (chosen, used) == (None, [])


def test_on_the_cpu_there_are_no_streams(used):
    for call, devices in [(on(4096, "cpu"), {}), (on(4096), {"cuda:0": "cpu"}), (on(7, None), {})]:
        with Streams().of(call, devices) as chosen:
            assert (chosen, used) == (None, [])


def test_calls_that_shared_a_stream_share_one_again(used):
    streams = Streams()
    names = []
    for stream in (4096, 8192, 4096):
        with streams.of(on(stream), {"cuda:0": "cuda:1"}) as chosen:
            names.append(chosen)
    assert names[0] == names[2] != names[1]
    assert used.count("made on cuda:1") == 2
    assert used.count("waited cuda:1") == 3

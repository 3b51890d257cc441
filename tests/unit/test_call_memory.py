"""A call's memory is told where it lies; what cannot be fenced is stated and stays plain."""

import ctypes
from types import SimpleNamespace

import pytest
import torch

from kernlib.dump import Storage
from kernlib.errors import FenceError
from kernlib.replay import _memory
from kernlib.replay._memory import CallMemory
from kernlib.replay._protocol import EventLog, Noted, Placed, Trampled, read_events

CPU = torch.device("cpu")


@pytest.fixture
def memory(tmp_path):
    """Return a function that makes a call's memory; what it tells is in its ``told()``."""

    def make(kind="fence-end", scratch="recorded", *, watch=False):
        path = tmp_path / "events.jsonl"
        made = CallMemory(kind, scratch, EventLog(path), watch=watch)
        made.told = lambda kind: [e for e in read_events(path) if isinstance(e, kind)]
        return made

    return make


def spoil(address):
    ctypes.memset(address, 1, 1)


def test_without_a_fence_nothing_is_moved_or_watched_unless_asked_for(memory):
    plain = memory("plain")
    with plain.running():
        torch.empty(3)
    assert plain.told(Placed) == []
    watching = memory("plain", watch=True)
    with watching.running():
        bare, made = torch.empty(3), torch.ones(3)
    assert [place.address for place in watching.told(Placed)] == [bare.data_ptr(), made.data_ptr()]
    assert {place.guard for place in watching.told(Placed)} == {0}
    assert watching.told(Placed)[0].paths[0].startswith("a tensor (empty at unit/test_call_mem")


@pytest.mark.parametrize(("scratch", "byte"), [("zeroed", 0), ("poisoned", 255)])
def test_scratch_of_the_apis_own_is_overwritten_on_plain_memory_too(memory, scratch, byte):
    with memory("plain", scratch).running():
        bare, made = torch.empty(3, dtype=torch.uint8), torch.ones(3)
    assert bare.tolist() == [byte] * 3
    assert made.tolist() == [1.0] * 3


def test_recorded_storages_lie_between_fences_as_aligned_as_they_were(memory):
    made = memory()
    storage = Storage(device="cpu", nbytes=40, address=0x7008)
    allocated = made.allocate(storage, CPU)
    assert (allocated.nbytes(), allocated.data_ptr() % 16) == (40, 8)
    empty = Storage(device="cpu", nbytes=0, address=0x7000)
    assert made.allocate(empty, CPU).nbytes() == 0
    assert made.allocate(storage, torch.device("meta")).nbytes() == 40


def test_what_is_trampled_is_told_once_and_again_where_a_new_block_lies(memory):
    made = memory()
    with made.running():
        first = torch.empty(3)
    spoil(first.data_ptr() + 12)
    made.check()
    made.check()
    assert [(event.where, event.offset) for event in made.told(Trampled)] == [("after", 0)]
    del first
    made.collect()
    assert len(made.told(Trampled)) == 1
    with made.running():
        again = torch.empty(3)
    spoil(again.data_ptr() + 12)
    made.check(after_fault=True)
    assert len(made.told(Trampled)) == 2


def test_memory_that_nothing_holds_is_given_back_while_the_api_runs(memory, monkeypatch):
    monkeypatch.setattr(_memory, "_HOARD_BLOCKS", 8)
    made = memory()
    with made.running():
        for _ in range(50):
            value = torch.ones(3) + 1
            assert len(made._fence.blocks()) <= 12
    assert value.tolist() == [2.0] * 3


def test_what_cannot_be_fenced_stays_plain_and_is_said_once(memory, monkeypatch):
    made = memory()

    def refuse(*_arguments):
        raise FenceError("cuMemCreate", "CUDA_ERROR_OUT_OF_MEMORY")

    monkeypatch.setattr(made, "_fence", SimpleNamespace(allocate=refuse, at=lambda _address: None))
    with made.running():
        one, two = torch.ones(3), torch.zeros(2)
    assert (one.tolist(), two.tolist()) == ([1.0] * 3, [0.0] * 2)
    (note,) = made.told(Noted)
    assert "from 12 bytes on" in note.text
    assert "CUDA_ERROR_OUT_OF_MEMORY" in note.text
    with pytest.raises(FenceError):
        made.allocate(Storage(device="cpu", nbytes=4, address=64), CPU)

"""Bytes of a device reach files and comparisons unchanged, through a piece of host memory.

Host memory stands in for a device's: how it is cut into batches does not depend on which it is.
"""

import itertools
import random

import pytest
import torch

from kernlib.dump import _files, _snapshot, _staging
from kernlib.dump._entries import Placed
from kernlib.dump._staging import DeviceBytes, batches

STAGE = 4096


@pytest.fixture(autouse=True)
def small_stage(monkeypatch):
    monkeypatch.setattr(_staging, "_STAGE", STAGE)
    monkeypatch.setattr(_staging, "_LEAST", 512)
    monkeypatch.setattr(_staging, "_FREE", [])


def device_bytes(nbytes, seed=0, start=0):
    data = torch.randint(0, 256, (start + nbytes + 3,), dtype=torch.uint8,
                         generator=torch.Generator().manual_seed(seed))  # fmt: skip
    wanted = bytes(data[start : start + nbytes].tolist())
    return DeviceBytes(data.untyped_storage(), start, nbytes), wanted


def joined(buffers):
    return b"".join(bytes(part) for batch in batches(buffers) for part in batch)


@pytest.mark.parametrize("nbytes", [1, 63, 64, 511, 512, 4095, 4096, 4097, 8192, 12_345, 40_000])
@pytest.mark.parametrize("start", [0, 1, 17])
def test_every_byte_arrives_whatever_the_length(nbytes, start):
    given, wanted = device_bytes(nbytes, nbytes, start)
    assert len(given) == nbytes
    assert joined([given]) == wanted


def test_many_buffers_of_both_kinds_arrive_in_order():
    draw = random.Random(1)  # noqa: S311 - no secrets
    for round_ in range(40):
        buffers, wanted = [], []
        for at in range(draw.randrange(1, 12)):
            if draw.random() < 0.4:
                host = draw.randbytes(draw.randrange(0, 900))
                buffers.append(host)
                wanted.append(host)
            else:
                given, held = device_bytes(draw.randrange(1, 9000), 100 * round_ + at)
                buffers.append(given)
                wanted.append(held)
        assert joined(buffers) == b"".join(wanted)


def test_small_buffers_share_a_batch_and_no_batch_is_larger_than_the_stage():
    sizes = [100] * 30
    buffers = [device_bytes(size, at)[0] for at, size in enumerate(sizes)]
    found = [sum(len(part) for part in batch) for batch in batches(buffers)]
    assert sum(found) == sum(sizes)
    assert len(found) == 1
    large = [len(batch) for batch in batches([device_bytes(3 * STAGE)[0]])]
    assert large == [1, 1, 1]


def test_host_bytes_alone_need_no_stage():
    assert list(batches([b"one", memoryview(b"two")])) == [[b"one", memoryview(b"two")]]
    assert list(batches([])) == []
    assert _staging._FREE == []


def test_the_stage_is_used_again_but_by_one_at_a_time():
    one, wanted_one = device_bytes(STAGE, 1)
    other, wanted_other = device_bytes(STAGE, 2)
    outer, inner = batches([one]), batches([other])
    ((first,), (second,)) = next(outer), next(inner)
    assert (bytes(first), bytes(second)) == (wanted_one, wanted_other)
    assert list(itertools.chain(outer, inner)) == []
    assert len(_staging._FREE) == 2
    joined([device_bytes(10)[0]])
    assert len(_staging._FREE) == 2


@pytest.mark.parametrize("modes", [(True, False, True), (False, True, False)])
def test_calls_in_inference_mode_and_outside_of_it_share_the_stage(modes):
    for seed, mode in enumerate(modes):
        with torch.inference_mode(mode=mode):
            given, wanted = device_bytes(STAGE + 9, seed)
            assert joined([given]) == wanted
    assert len(_staging._FREE) == 1


def test_a_reader_that_gives_up_gives_the_stage_back():
    reading = batches([device_bytes(3 * STAGE)[0]])
    next(reading)
    reading.close()
    assert len(_staging._FREE) == 1


def test_a_file_holds_the_bytes_and_a_comparison_sees_each_of_them(tmp_path):
    given, wanted = device_bytes(3 * STAGE + 5, 7)
    path = str(tmp_path / "file")
    assert _files.write_file(path, [b"head", given, b"tail"]) == len(wanted) + 8
    assert (tmp_path / "file").read_bytes() == b"head" + wanted + b"tail"
    stored = _snapshot.Stored(path, {"x": Placed(4, len(wanted))})
    with stored.opened() as entries:
        assert entries.holds("x", given)
        for at in (0, STAGE - 1, STAGE, 3 * STAGE, len(wanted) - 1):
            given.whole[at] += 1
            assert not entries.holds("x", given), at
            given.whole[at] -= 1
        assert not entries.holds("x", device_bytes(len(wanted) - 1, 7)[0])

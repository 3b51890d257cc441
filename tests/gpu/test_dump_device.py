"""Tensors on a CUDA device survive a capsule, and are read after what is queued before."""

import dump_samples as samples
import msgspec
import pytest
import torch

from kernlib import dump

pytestmark = pytest.mark.requires("cuda")


@pytest.mark.parametrize("skip", [0, 4, 200, 4096 + 12])
def test_memory_comes_back_with_aliasing_size_and_alignment(tmp_path, skip):
    class Foreign:
        __cuda_array_interface__ = None

    block = torch.arange(9000, device="cuda", dtype=torch.float32)
    foreign = Foreign()
    foreign.__cuda_array_interface__ = {
        "shape": (6000,),
        "typestr": "<f4",
        "data": (block.data_ptr() + skip, False),
        "version": 2,
    }
    whole = torch.as_tensor(foreign, device="cuda")
    qkv = whole[:5994].view(54, 111)
    values = {"q": qkv[:, :37], "k": qkv[:, 37:74], "n": torch.arange(5, device="cuda")}
    writer, _, _ = samples.begin(tmp_path, **values)
    back = samples.read_back(writer.path)
    for name, value in values.items():
        assert torch.equal(back[name], value)
        new, old = back[name].untyped_storage(), value.untyped_storage()
        assert new.nbytes() == old.nbytes()
        assert new.data_ptr() % 512 == old.data_ptr() % 512
    assert back["k"].data_ptr() - back["q"].data_ptr() == 37 * 4
    beyond = back["q"].as_strided((6000,), (1,), 0)[5991:]
    assert beyond.isnan().all()


def test_every_float8_and_complex_dtype(tmp_path):
    raw = torch.randint(0, 256, (64,), dtype=torch.uint8, device="cuda")
    names = ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn_x2", "complex64"]
    values = {name: raw.view(getattr(torch, name)) for name in names}
    writer, _, _ = samples.begin(tmp_path, **values)
    for name, value in samples.read_back(writer.path).items():
        assert value.dtype == getattr(torch, name)
        assert torch.equal(value.view(torch.uint8), raw)


def test_bytes_are_read_after_the_work_queued_on_the_current_stream(tmp_path):
    side = torch.cuda.Stream()
    x = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        x.add_(1)
        writer, encoder, record = samples.begin(tmp_path, x=x)
        torch.cuda._sleep(200_000_000)
        x[7] = 5
        read = samples.finish(writer, encoder, record, None)
    assert samples.read_back(writer.path)["x"].eq(1).all()
    assert [change.entry for change in read.changed] == ["x"]


def test_large_and_many_tensors_are_copied_whole(tmp_path):
    """Longer than the pinned memory they go through, of odd lengths, and many in one piece."""
    sizes = [1, 3, 1000, (8 << 20) - 1, 8 << 20, (8 << 20) + 1, 30_000_001, *range(500, 540)]
    values = {
        f"x{at}": torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda")
        for at, size in enumerate(sizes)
    }
    writer, encoder, record = samples.begin(tmp_path, **values)
    back = samples.read_back(writer.path)
    for name, value in values.items():
        assert torch.equal(back[name], value), name
    values["x6"][-1] += 1
    values["x9"][0] += 1
    read = samples.finish(writer, encoder, record, values["x0"] + 1)
    assert [change.entry for change in read.changed] == ["x6", "x9", "result"]
    pieces = {
        piece.storage: piece.data
        for piece in dump.read_outputs(tmp_path / "000001-Thing.run", read)
    }
    assert torch.equal(pieces[6], values["x6"].cpu())
    assert torch.equal(pieces[9], values["x9"].cpu())


def test_a_recorded_device_is_exchanged(tmp_path):
    writer, _, record = samples.begin(tmp_path, x=torch.arange(4, device="cuda"))
    assert record.storages[0].device == "cuda:0"
    moved = dump.rebuild(
        [msgspec.structs.replace(record.storages[0], device="cuda:5")],
        dump.input_views(record),
        dump.read_inputs(tmp_path / "000001-Thing.run", record),
        {"cuda:5": "cuda:0"},
    )
    assert moved[0].device.index == 0
    assert moved[0].tolist() == [0, 1, 2, 3]
    assert writer.stored is not None

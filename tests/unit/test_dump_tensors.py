"""Tensors come back from a capsule as they were."""

import warnings

import dump_samples as samples
import pytest
import torch

from kernlib import dump

DTYPES = sorted(
    {
        value
        for value in vars(torch).values()
        if isinstance(value, torch.dtype) and not str(value).startswith(("torch.q", "torch.quint"))
    },
    key=str,
)


def typed(data, dtype, shape, stride, offset=0):
    storage = torch.tensor(list(data), dtype=torch.uint8).untyped_storage()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.empty(0, dtype=dtype).set_(storage, offset, shape, stride)


def round_trip(tmp_path, **values):
    writer, _, _ = samples.begin(tmp_path, **values)
    return samples.read_back(writer.path)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_keeps_every_bit(tmp_path, dtype):
    data = [(at * 37 + 11) % 256 for at in range(6 * dtype.itemsize)]
    if dtype is torch.bool:
        data = [at % 2 for at in range(6)]
    x = typed(data, dtype, (2, 3), (3, 1))
    y = round_trip(tmp_path, x=x)["x"]
    assert samples.same_bits(x, y)


def test_views_of_one_storage_share_memory_again(tmp_path):
    qkv = torch.randn(5, 96)
    back = round_trip(tmp_path, q=qkv[:, :32], k=qkv[:, 32:64], v=qkv[:, 64:], out=qkv[2:])
    assert len({item.untyped_storage().data_ptr() for item in back.values()}) == 1
    for name, value in {"q": qkv[:, :32], "k": qkv[:, 32:64], "out": qkv[2:]}.items():
        assert torch.equal(back[name], value)
        assert back[name].stride() == value.stride()
    back["out"][0, 0] = 7
    assert back["q"][2, 0] == 7


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: torch.randn(3, 4).t(), id="transposed"),
        pytest.param(lambda: torch.randn(3, 1).expand(3, 5), id="expanded"),
        pytest.param(lambda: torch.randn(10).as_strided((4, 3), (2, 1), 1), id="overlapping"),
        pytest.param(lambda: torch.randn(8).as_strided((1, 4), (1000, 2)), id="size-1 odd stride"),
        pytest.param(lambda: torch.randn(4, 5).t()[1:, ::2], id="column-major slice"),
        pytest.param(lambda: torch.randn(4, 0, 3), id="zero-size"),
        pytest.param(lambda: torch.randn(10)[10:], id="empty end"),
        pytest.param(lambda: torch.tensor(-0.0), id="negative zero, 0-dim"),
        pytest.param(lambda: torch.randn(5)[::2], id="stepped"),
    ],
)
def test_layouts_come_back(tmp_path, make):
    x = make()
    y = round_trip(tmp_path, x=x)["x"]
    assert (y.shape, y.stride(), y.storage_offset()) == (x.shape, x.stride(), x.storage_offset())
    assert samples.same_bits(x, y)


def test_nan_payloads_and_subnormals_survive(tmp_path):
    bits = torch.tensor([0x7FC00001, -0x3FFFFF, -0x7FFFFFFF, 1], dtype=torch.int32)
    assert samples.same_bits(
        round_trip(tmp_path, x=bits.view(torch.float32))["x"], bits.view(torch.float32)
    )


def test_backing_ends_where_it_ended_at_the_recorded_alignment(tmp_path):
    """An over-read of one byte must be one here as well."""
    whole = torch.zeros(4099, dtype=torch.uint8)
    foreign = torch.frombuffer(memoryview(bytearray(1003))[24:], dtype=torch.uint8)
    back = round_trip(tmp_path, x=whole[3:4000], y=foreign)
    for name, old in {"x": whole, "y": foreign}.items():
        new = back[name].untyped_storage()
        assert new.nbytes() == old.untyped_storage().nbytes()
        assert new.data_ptr() % 512 == old.untyped_storage().data_ptr() % 512


def test_bytes_that_no_view_reaches_are_poison(tmp_path):
    whole = torch.zeros(16, dtype=torch.uint8)
    x = round_trip(tmp_path, x=whole[4:8])["x"]
    assert x.as_strided((16,), (1,), 0).tolist() == [255] * 4 + [0] * 4 + [255] * 8


def test_far_apart_views_are_two_segments():
    pool = torch.zeros(1 << 20)
    _, record = samples.encoded(head=pool[:4], tail=pool[-4:])
    (storage,) = record.storages
    assert [(item.entry, item.start, item.nbytes) for item in storage.segments] == [
        ("head", 0, 16),
        ("tail", (4 << 20) - 16, 16),
    ]


def test_adjacent_and_overlapping_views_are_one_segment():
    pool = torch.zeros(12)
    _, record = samples.encoded(a=pool[:4], b=pool[4:8], c=pool[6:10])
    assert [(item.start, item.nbytes) for item in record.storages[0].segments] == [(0, 40)]


def test_any_safetensors_reader_shows_dense_arguments(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    kv = torch.randn(4, 6)
    values = {"x": torch.randn(2, 3), "n": torch.arange(5), "kv": kv[:, :2]}
    writer, _, _ = samples.begin(tmp_path, **values)
    shown = safetensors.load_file(f"{writer.path}/inputs.safetensors")
    assert torch.equal(shown["x"], values["x"])
    assert torch.equal(shown["n"], values["n"])
    assert set(shown) == {"x", "n", "storage2@0"}


def test_names_of_entries_never_collide(tmp_path):
    values = {"storage1@0": torch.zeros(2), "b": torch.ones(4)[1::2], "__metadata__": torch.ones(1)}
    back = round_trip(tmp_path, **values)
    assert all(torch.equal(back[name], value) for name, value in values.items())


def test_autograd_and_bit_views_come_back(tmp_path):
    z = torch.randn(3, dtype=torch.complex64)
    values = {
        "weight": torch.nn.Parameter(torch.randn(2)),
        "frozen": torch.nn.Parameter(torch.randn(2), requires_grad=False),
        "leaf": torch.randn(2, requires_grad=True),
        "conj": z.conj(),
        "neg": z.conj().imag,
    }
    back = round_trip(tmp_path, **values)
    assert type(back["weight"]) is torch.nn.Parameter
    for name, value in values.items():
        assert back[name].requires_grad == value.requires_grad
        assert (back[name].is_conj(), back[name].is_neg()) == (value.is_conj(), value.is_neg())
        assert torch.equal(back[name], value)


def test_inference_tensors_can_be_recorded(tmp_path):
    with torch.inference_mode():
        x = torch.randn(3)
        back = round_trip(tmp_path, x=x)["x"]
    assert back.is_inference()
    assert samples.same_bits(back, x)


def test_meta_tensors_have_no_data(tmp_path):
    back = round_trip(tmp_path, x=torch.empty(1 << 30, 64, device="meta"))["x"]
    assert back.device.type == "meta"
    assert back.shape == (1 << 30, 64)


def test_a_tensor_passed_twice_is_one_tensor(tmp_path):
    x = torch.randn(3)
    back = round_trip(tmp_path, x=x, out=x)
    assert back["x"] is back["out"]


def test_tensors_that_are_more_than_a_view_are_opaque():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(3)
    sparse = torch.eye(3).to_sparse()
    _, record = samples.encoded(fake=fake, sparse=sparse)
    assert [line.split(":")[0] for line in dump.opaque_paths(record)] == [
        "fake is a torch._subclasses.fake_tensor.FakeTensor",
        "sparse is a torch.Tensor",
    ]


def test_a_tensor_inside_a_transform_is_opaque():
    seen = []

    def inside(x):
        seen.append(samples.encoded(x=x)[1])
        return x

    torch.vmap(inside)(torch.randn(2, 3))
    assert "without a storage" in dump.opaque_paths(seen[0])[0]


def test_a_subclass_with_plain_data_is_kept_with_a_note(tmp_path):
    class Weight(torch.nn.Parameter):
        pass

    weight = Weight(torch.randn(3))
    encoder, _ = samples.encoded(weight=weight)
    assert encoder.incomplete == [f"weight: kept as a plain tensor, it was a {Weight.__qualname__}"]
    assert torch.equal(round_trip(tmp_path, weight=weight)["weight"], weight)


def test_storages_that_overlap_in_memory_are_noted():
    block = bytearray(64)
    one = torch.frombuffer(block, dtype=torch.uint8)
    other = torch.frombuffer(memoryview(block)[8:], dtype=torch.uint8)
    encoder, _ = samples.encoded(one=one, other=other)
    assert encoder.incomplete == [
        "storages 0 and 1 overlap in memory; rebuilt, each gets memory of its own"
    ]


def test_rebuilding_more_than_the_machine_has_is_refused():
    from kernlib.errors import NotReplayableError

    storage = dump.Storage(device="cpu", nbytes=1 << 47, address=0)
    view = dump.View(path="x", storage=0, dtype="uint8", itemsize=1, shape=(1,), stride=(1,))
    with pytest.raises(NotReplayableError, match="this machine has"):
        dump.rebuild([storage], {0: view}, [])


@pytest.mark.parametrize("name", ["no_such", "nn", "float32.is_floating_point", "__doc__", "load"])
def test_a_dtype_from_a_file_is_only_ever_a_dtype(name):
    from kernlib.errors import NotReplayableError

    storage = dump.Storage(device="cpu", nbytes=4, address=0)
    view = dump.View(path="x", storage=0, dtype=name, itemsize=4, shape=(1,), stride=(1,))
    with pytest.raises(NotReplayableError, match="has no 4-byte"):
        dump.rebuild([storage], {0: view}, [])


def test_a_device_can_be_exchanged():
    storage = dump.Storage(device="cuda:7", nbytes=4, address=64)
    view = dump.View(path="x", storage=0, dtype="int32", itemsize=4, shape=(1,), stride=(1,))
    x = dump.rebuild([storage], {0: view}, [], {"cuda:7": "cpu"})[0]
    assert x.device.type == "cpu"
    assert x.tolist() == [-1]

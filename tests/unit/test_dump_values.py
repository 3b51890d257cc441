"""Plain values come back from their nodes, and others say what they were."""

import collections
import enum
import json
import math
import struct

import dump_samples as samples
import msgspec
import pytest
import torch

from kernlib import dump
from kernlib.errors import NotReplayableError


def round_trip(value):
    _, record = samples.encoded(value=value)
    data = msgspec.json.encode(record)
    read = dump.decode_call(data, "call.json")
    return dump.decode(read.arguments.kwargs["value"], {})


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, -(2**200), 10**5000,
        0.1, 1e308, 5e-324, 1.0, "", "naïve ☃", '\x00\n"', b"", b"\x00\xff", ...,
        [], [1, [2, (3,)]], (), (1, "a"), {}, {1: {"a": None}, (2, 3): [4], "1": 5},
        slice(None), slice(1, None, -2), torch.float16, torch.float8_e4m3fn,
        torch.device("cuda:3"), torch.strided, torch.sparse_csr, torch.channels_last,
        1 + 2j,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_values_come_back_with_their_types(value):
    back = round_trip(value)
    assert back == value
    assert type(back) is type(value)


def test_a_size_stays_a_size():
    assert type(round_trip(torch.Size([2, 3]))) is torch.Size


@pytest.mark.parametrize("bits", [1 << 63, 0x7FF8000000000000, 0x7FF8000000000123, 0xFFF8 << 48])
def test_floats_that_json_lacks_keep_their_bits(bits):
    (value,) = struct.unpack(">d", bits.to_bytes(8, "big"))
    assert struct.pack(">d", round_trip(value)) == bits.to_bytes(8, "big")


def test_infinities():
    assert round_trip([math.inf, -math.inf]) == [math.inf, -math.inf]
    assert math.isnan(round_trip(complex(math.nan, -0.0)).real)
    assert math.copysign(1, round_trip(complex(0, -0.0)).imag) == -1


class Colour(enum.IntEnum):
    RED = 1


Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024 - what users pass


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (Colour.RED, "value"),
        ([0, Pair(1, 2)], "value[1]"),
        ({"k": [collections.OrderedDict()]}, "value['k'][0]"),
        (object(), "value"),
        (len, "value"),
        ("\ud800", "value"),
        ("x" * (1 << 21), "value"),
        ({1, 2}, "value"),
        ({"a" * 200: object()}, "value[#0]"),
        ({10**5000: object()}, "value[#0]"),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_what_cannot_be_held_is_opaque_and_says_where(value, path):
    encoder, record = samples.encoded(value=value)
    (line,) = dump.opaque_paths(record)
    assert line.startswith(f"{path} is a ")
    assert encoder.incomplete
    with pytest.raises(NotReplayableError):
        dump.decode(record.arguments.kwargs["value"], {})


def test_all_opaque_parts_are_named_at_once():
    _, record = samples.encoded(value=[object(), 1, object()])
    with pytest.raises(NotReplayableError) as caught:
        dump.decode(record.arguments.kwargs["value"], {})
    assert len(caught.value.reasons) == 2


def test_no_repr_of_an_unknown_object_is_asked_for():
    """It may read a device, take minutes, or raise."""

    class Loud:
        def __repr__(self):
            raise AssertionError

    _, record = samples.encoded(value=Loud())
    assert dump.opaque_paths(record)


def test_cycles_and_depths_end():
    loop = [1]
    loop.append(loop)
    deep = []
    for _ in range(500):
        deep = [deep]
    _, record = samples.encoded(loop=loop, deep=deep)
    lines = dump.opaque_paths(record)
    assert "it contains itself" in lines[0]
    assert "nested more than 32 deep" in lines[1]


def test_a_list_passed_twice_is_no_cycle():
    shared = [1]
    assert round_trip([shared, shared]) == [[1], [1]]


def test_a_recorded_receiver_is_known_by_number():
    holder = object()
    encoder = dump.Encoder(lambda value: 7 if value is holder else None)
    node = encoder.encode([holder], "x")
    assert dump.decode(node, {}, {7: "made again"}) == ["made again"]
    with pytest.raises(NotReplayableError, match="call 7"):
        dump.decode(node, {})


def test_a_device_argument_follows_the_device_map():
    node = dump.Encoder().encode(torch.device("cuda:1"), "device")
    assert dump.decode(node, {}, None, {"cuda:1": "cuda:0"}) == torch.device("cuda:0")


def test_a_constant_that_this_torch_lacks_is_told():
    with pytest.raises(NotReplayableError, match="no dtype 'float3'"):
        dump.decode(dump.DtypeNode("float3"), {})


def test_a_million_values_do_not_fill_the_disk():
    encoder, record = samples.encoded(many=list(range(150_000)), few=[1])
    assert dump.opaque_paths(record) == (
        "many is a builtins.list: more than 100000 values in one call",
    )
    assert len(encoder.incomplete) == 1


def test_the_json_is_plain():
    _, record = samples.encoded(x=torch.zeros(2, 3), scale=0.5)
    read = json.loads(msgspec.json.encode(record))
    assert read["arguments"]["kwargs"] == {
        "x": {"type": "tensor", "view": 0},
        "scale": {"type": "float", "value": 0.5},
    }
    assert read["views"][0]["shape"] == [2, 3]

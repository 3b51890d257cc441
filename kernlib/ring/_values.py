"""Values as they stand in a record."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Union

import msgspec

from kernlib.ring._format import TENSOR, Tag

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Described",
    "Tensor",
    "Value",
    "decode_values",
    "encode_values",
    "plain",
    "with_statistics",
]

_INT = struct.Struct("<q")
_FLOAT = struct.Struct("<d")
_COUNT = struct.Struct("<I")
_DEEPEST = 8
_LARGEST_INT = 1 << 63
_PLAIN: dict[Tag, bool | None] = {Tag.NONE: None, Tag.FALSE: False, Tag.TRUE: True}
_PLAIN_TAGS = {value: tag for tag, value in _PLAIN.items()}


@dataclass(frozen=True, slots=True)
class Tensor:
    """What is recorded of a tensor; strides count elements, ``pointer`` is its address."""

    dtype: str
    device: str
    pointer: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    statistics: object = None

    def facts(self) -> dict[str, object]:
        """Return the description that a log line gives."""
        align = min(self.pointer & -self.pointer, 512) or 512
        facts: dict[str, object] = {
            "dtype": self.dtype, "shape": self.shape, "device": self.device,
            "stride": self.stride, "align": align,
        }  # fmt: skip
        if self.statistics is not None:
            facts["stats"] = self.statistics
        return facts


@dataclass(frozen=True, slots=True)
class Described:
    """A value that has no form of its own here: its description, ready for JSON."""

    content: object


Value = Union[  # noqa: UP007 - a value of the module, on Python 3.10 too
    bool, int, float, str, list["Value"], Tensor, Described, None
]


def encode_values(values: Iterable[Value]) -> bytes:
    """Return the bytes of some values, one after the other."""
    return b"".join(_encoded(value) for value in values)


def _encoded(value: Value) -> bytes:
    if value is None or isinstance(value, bool):
        return bytes((_PLAIN_TAGS[value],))
    if isinstance(value, int) and -_LARGEST_INT <= value < _LARGEST_INT:
        return bytes((Tag.INT,)) + _INT.pack(value)
    if isinstance(value, float):
        return bytes((Tag.FLOAT,)) + _FLOAT.pack(value)
    if isinstance(value, str):
        return _sized(Tag.TEXT, value.encode(errors="replace"))
    if isinstance(value, list):
        return bytes((Tag.LIST,)) + _COUNT.pack(len(value)) + encode_values(value)
    if isinstance(value, Tensor):
        return _tensor(value)
    content = value.content if isinstance(value, Described) else value  # an int of any length
    return _sized(Tag.JSON, msgspec.json.encode(content))


def _sized(tag: Tag, text: bytes) -> bytes:
    return bytes((tag,)) + _COUNT.pack(len(text)) + text


def _tensor(tensor: Tensor) -> bytes:
    dtype, device = tensor.dtype.encode(), tensor.device.encode()
    sizes = struct.pack(f"<{2 * len(tensor.shape)}q", *tensor.shape, *tensor.stride)
    fields = TENSOR.pack(tensor.pointer, len(tensor.shape), len(dtype), len(device))
    encoded = bytes((Tag.TENSOR,)) + fields + dtype + device + sizes
    if tensor.statistics is None:
        return encoded
    stats = _sized(Tag.JSON, msgspec.json.encode(tensor.statistics))
    return bytes((Tag.STATISTICS,)) + encoded + stats


def decode_values(data: bytes, count: int) -> list[Value]:
    """Return ``count`` values.

    Raises ValueError if the bytes hold something else.
    """
    at, values = 0, []
    try:
        for _ in range(count):
            value, at = _decoded(data, at, _DEEPEST)
            values.append(value)
    except (struct.error, IndexError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise ValueError(f"the values of a record end early or are damaged: {error}") from None
    return values


def _decoded(data: bytes, at: int, depth: int) -> tuple[Value, int]:
    tag = Tag(data[at])
    at += 1
    if tag in _PLAIN:
        return _PLAIN[tag], at
    if tag is Tag.INT:
        return _INT.unpack_from(data, at)[0], at + 8
    if tag is Tag.FLOAT:
        return _FLOAT.unpack_from(data, at)[0], at + 8
    if tag is Tag.TENSOR:
        return _decoded_tensor(data, at)
    if tag is Tag.STATISTICS:
        return _decoded_statistics(data, at)
    (count,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    if tag is Tag.LIST:
        return _decoded_list(data, at, count, depth)
    text = data[at : at + count]
    if len(text) != count:
        raise ValueError(f"{count} bytes of text were announced, {len(text)} are there")
    return (text.decode() if tag is Tag.TEXT else Described(msgspec.json.decode(text))), at + count


def _decoded_list(data: bytes, at: int, count: int, depth: int) -> tuple[Value, int]:
    if not depth or count > len(data):
        raise ValueError(f"a list of {count} values, {_DEEPEST - depth} deep")
    items = []
    for _ in range(count):
        item, at = _decoded(data, at, depth - 1)
        items.append(item)
    return items, at


def _decoded_tensor(data: bytes, at: int) -> tuple[Tensor, int]:
    pointer, ndim, dtype_bytes, device_bytes = TENSOR.unpack_from(data, at)
    at += TENSOR.size
    dtype = data[at : at + dtype_bytes].decode()
    at += dtype_bytes
    device = data[at : at + device_bytes].decode()
    at += device_bytes
    sizes = struct.unpack_from(f"<{2 * ndim}q", data, at)
    return Tensor(dtype, device, pointer, sizes[:ndim], sizes[ndim:]), at + 16 * ndim


def _decoded_statistics(data: bytes, at: int) -> tuple[Tensor, int]:
    if data[at] != Tag.TENSOR:
        raise ValueError("statistics without their tensor")
    tensor, at = _decoded_tensor(data, at + 1)
    stats, at = _decoded(data, at, 0)
    return with_statistics(tensor, plain(stats)), at


def with_statistics(tensor: Tensor, statistics: object) -> Tensor:
    """Return a tensor's facts with the statistics of its elements."""
    return replace(tensor, statistics=statistics)


def plain(value: Value) -> object:
    """Return a value as a log line describes it."""
    if isinstance(value, Tensor):
        return value.facts()
    if isinstance(value, Described):
        return value.content
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value

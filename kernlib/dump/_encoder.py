"""Turns values into nodes, views and storages."""

from __future__ import annotations

import enum
import functools
import struct
import sys
from pathlib import PurePath
from types import BuiltinFunctionType, EllipsisType, FunctionType, NoneType
from typing import TYPE_CHECKING, Any

from kernlib.dump._nodes import (
    BoolNode,
    BytesNode,
    ComplexNode,
    DeviceNode,
    DictNode,
    DtypeNode,
    EllipsisNode,
    FloatNode,
    IntNode,
    LayoutNode,
    ListNode,
    MemoryFormatNode,
    NoneNode,
    OpaqueNode,
    ReceiverNode,
    SliceNode,
    StrNode,
    TensorNode,
    TupleNode,
)
from kernlib.dump._tensors import TensorTable

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from kernlib.dump._nodes import Node
    from kernlib.dump._schema import Storage, View

__all__ = ["Encoder", "float_text"]

_MAX_DEPTH = 32
_MAX_NODES = 100_000
_MAX_TEXT = 1 << 20
_MAX_REPR = 120
_MAX_BITS = 1 << 18
_INT64 = 1 << 63
_NAN_BITS = 0x7FF8000000000000


def float_text(value: float) -> float | str:
    """Return a float as it stands in JSON; text where JSON has no such number."""
    if value - value == 0.0:
        return value
    if value == value:  # noqa: PLR0124 - only a NaN differs from itself
        return "inf" if value > 0 else "-inf"
    bits = int.from_bytes(struct.pack(">d", value), "big")
    return "nan" if bits == _NAN_BITS else f"nan:{bits:016x}"


class Encoder:
    """Encodes the values of one call; reads no tensor's data.

    ``receivers`` returns the number of an object whose making was recorded, or None.
    Afterwards ``views`` are the tensors met, ``memory`` their storages by number (None where
    there is no data, as on the meta device), and ``incomplete`` says what could not be held.
    """

    def __init__(self, receivers: Callable[[object], int | None] | None = None) -> None:
        self._receivers = receivers
        self._table = TensorTable()
        self._makers = _makers(sys.modules.get("torch"))
        self._open: set[int] = set()
        self._nodes = 0
        self._planned: tuple[Storage, ...] | None = None

    @property
    def views(self) -> tuple[View, ...]:
        """The tensors met so far."""
        return tuple(self._table.views)

    @property
    def memory(self) -> list[torch.UntypedStorage | None]:
        """The storages met so far, by number."""
        return self._table.memory

    @property
    def incomplete(self) -> list[str]:
        """Why a part of the call could not be held as it was."""
        return self._table.incomplete

    def encode(self, value: object, path: str) -> Node:
        """Return the node of a value that stands at ``path``; tensors join ``views``."""
        self._nodes += 1
        maker = self._makers.get(type(value))
        if maker is not None:
            return maker(self, value, path)
        number = self._receivers(value) if self._receivers is not None else None
        if number is not None:
            return ReceiverNode(number)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        return self._opaque(value, path, "its type cannot be rebuilt without importing it")

    def storages(self) -> tuple[Storage, ...]:
        """Return the storages met so far.

        The first call decides the segments: the bytes that the views met until then can reach.
        Storages met later hold results and get no segments.
        """
        if self._planned is None:
            self._planned = self._table.planned()
        known = len(self._planned)
        if known < len(self._table.memory):
            self._planned += self._table.bare(known)
        return self._planned

    def _opaque(self, value: object, path: str, reason: str) -> OpaqueNode:
        kind = type(value)
        self.incomplete.append(f"{path}: {reason}")
        name = f"{kind.__module__}.{kind.__qualname__}"
        return OpaqueNode(path, name, reason, _safe_text(value))

    def _tensor(self, value: torch.Tensor, path: str) -> Node:
        found = self._table.add(value, path)
        return TensorNode(found) if isinstance(found, int) else self._opaque(value, path, found)

    def _text(self, value: str, path: str) -> Node:
        if len(value) > _MAX_TEXT:
            return self._opaque(value, path, f"text of {len(value)} characters")
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            return self._opaque(value, path, "text with lone surrogates")
        return StrNode(value)

    def _bytes(self, value: bytes, path: str) -> Node:
        if len(value) > _MAX_TEXT:
            return self._opaque(value, path, f"{len(value)} bytes")
        return BytesNode(value)

    def _int(self, value: int, path: str) -> Node:
        if -_INT64 <= value < _INT64:
            return IntNode(value)
        if value.bit_length() > _MAX_BITS:
            return self._opaque(value, path, f"an int of {value.bit_length()} bits")
        # Decimal text of such numbers is quadratic, and refused by Python above 4300 digits.
        return IntNode(hex(value))

    def _items(self, value: list[Any] | tuple[Any, ...], path: str) -> list[Node] | OpaqueNode:
        if (refused := self._enter(value, path, len(value))) is not None:
            return refused
        encode = self.encode
        items = [encode(item, f"{path}[{at}]") for at, item in enumerate(value)]
        self._open.discard(id(value))
        return items

    def _list(self, value: list[Any], path: str) -> Node:
        items = self._items(value, path)
        return ListNode(items) if isinstance(items, list) else items

    def _tuple(self, value: tuple[Any, ...], path: str) -> Node:
        items = self._items(value, path)
        return TupleNode(items) if isinstance(items, list) else items

    def _size(self, value: torch.Size, path: str) -> Node:
        items = self._items(value, path)
        return TupleNode(items, size=True) if isinstance(items, list) else items

    def _dict(self, value: dict[Any, Any], path: str) -> Node:
        if (refused := self._enter(value, path, 2 * len(value))) is not None:
            return refused
        items = []
        for at, (key, item) in enumerate(value.items()):
            key_node = self.encode(key, f"{path}.keys[{at}]")
            items.append((key_node, self.encode(item, f"{path}[{_label(key, at)}]")))
        self._open.discard(id(value))
        return DictNode(items)

    def _slice(self, value: slice, path: str) -> Node:
        if (refused := self._enter(value, path)) is not None:
            return refused
        start, stop, step = (
            self.encode(getattr(value, part), f"{path}.{part}")
            for part in ("start", "stop", "step")
        )
        self._open.discard(id(value))
        return SliceNode(start, stop, step)

    def _enter(self, value: object, path: str, length: int = 0) -> OpaqueNode | None:
        if id(value) in self._open:
            return self._opaque(value, path, "it contains itself")
        if len(self._open) >= _MAX_DEPTH:
            return self._opaque(value, path, f"nested more than {_MAX_DEPTH} deep")
        # Here and not at each item, or a list of millions would become millions of opaque nodes.
        if self._nodes + length > _MAX_NODES:
            return self._opaque(value, path, f"more than {_MAX_NODES} values in one call")
        self._open.add(id(value))
        return None


def _label(key: object, at: int) -> str:
    if type(key) is str and len(key) < _MAX_REPR:
        return repr(key)
    return str(key) if type(key) is int and -_INT64 <= key < _INT64 else f"#{at}"


def _safe_text(value: object) -> str:
    """Return a short text of values whose repr is known to be short, quick and free of data."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"[:_MAX_REPR]
    if isinstance(value, (type, FunctionType, BuiltinFunctionType)):
        return f"{value.__module__}.{value.__qualname__}"[:_MAX_REPR]
    return str(value)[:_MAX_REPR] if isinstance(value, (PurePath, range)) else ""


@functools.cache
def _makers(torch: Any) -> dict[type, Callable[[Encoder, Any, str], Node]]:  # noqa: ANN401 - the module or None
    makers: dict[type, Callable[[Encoder, Any, str], Node]] = {
        NoneType: lambda _encoder, _value, _path: NoneNode(),
        EllipsisType: lambda _encoder, _value, _path: EllipsisNode(),
        bool: lambda _encoder, value, _path: BoolNode(value),
        float: lambda _encoder, value, _path: FloatNode(float_text(value)),
        complex: lambda _encoder, value, _path: ComplexNode(
            float_text(value.real), float_text(value.imag)
        ),
        int: Encoder._int,  # noqa: SLF001 - the table is part of the class
        str: Encoder._text,  # noqa: SLF001
        bytes: Encoder._bytes,  # noqa: SLF001
        list: Encoder._list,  # noqa: SLF001
        tuple: Encoder._tuple,  # noqa: SLF001
        dict: Encoder._dict,  # noqa: SLF001
        slice: Encoder._slice,  # noqa: SLF001
    }
    if torch is not None:
        makers |= {
            torch.Tensor: Encoder._tensor,  # noqa: SLF001
            torch.nn.Parameter: Encoder._tensor,  # noqa: SLF001
            torch.Size: Encoder._size,  # noqa: SLF001
            torch.dtype: lambda _encoder, value, _path: DtypeNode(str(value)[6:]),
            torch.device: lambda _encoder, value, _path: DeviceNode(str(value)),
            torch.layout: lambda _encoder, value, _path: LayoutNode(str(value)[6:]),
            torch.memory_format: lambda _encoder, value, _path: MemoryFormatNode(str(value)[6:]),
        }
    return makers

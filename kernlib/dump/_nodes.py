"""Values as a tree of typed nodes."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

__all__ = [
    "BoolNode",
    "BytesNode",
    "ComplexNode",
    "DeviceNode",
    "DictNode",
    "DtypeNode",
    "EllipsisNode",
    "FloatNode",
    "IntNode",
    "LayoutNode",
    "ListNode",
    "MemoryFormatNode",
    "Node",
    "NoneNode",
    "OpaqueNode",
    "ReceiverNode",
    "SliceNode",
    "StrNode",
    "TensorNode",
    "TupleNode",
]


class _Leaf(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):  # fmt: skip
    """Base of the nodes that hold no other node."""


class _Branch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of the nodes that hold other nodes."""


class NoneNode(_Leaf, frozen=True, tag="none"):
    """The value None."""


class BoolNode(_Leaf, frozen=True, tag="bool"):
    """A bool."""

    value: bool


class IntNode(_Leaf, frozen=True, tag="int"):
    """An int; as hexadecimal text where it does not fit into 64 bits."""

    value: int | str


class FloatNode(_Leaf, frozen=True, tag="float"):
    """A float; as text (``inf``, ``-inf``, ``nan``, ``nan:<bits>``) where JSON has no number."""

    value: float | str


class ComplexNode(_Leaf, frozen=True, tag="complex"):
    """A complex number; each part as in FloatNode."""

    real: float | str
    imag: float | str


class StrNode(_Leaf, frozen=True, tag="str"):
    """A str."""

    value: str


class BytesNode(_Leaf, frozen=True, tag="bytes"):
    """A bytes object, in base64."""

    value: bytes


class DtypeNode(_Leaf, frozen=True, tag="dtype"):
    """A torch.dtype by its name without ``torch.``."""

    name: str


class DeviceNode(_Leaf, frozen=True, tag="device"):
    """A torch.device by its text, such as ``cuda:1``."""

    name: str


class LayoutNode(_Leaf, frozen=True, tag="layout"):
    """A torch.layout by its name without ``torch.``."""

    name: str


class MemoryFormatNode(_Leaf, frozen=True, tag="memory_format"):
    """A torch.memory_format by its name without ``torch.``."""

    name: str


class TensorNode(_Leaf, frozen=True, tag="tensor"):
    """A tensor: the number of its view."""

    view: int


class ReceiverNode(_Leaf, frozen=True, tag="receiver"):
    """An object whose making was recorded: the sequence number of its ``__init__``."""

    id: int


class EllipsisNode(_Leaf, frozen=True, tag="ellipsis"):
    """The value Ellipsis."""


class OpaqueNode(_Leaf, frozen=True, tag="opaque"):
    """A value that this format cannot hold: where it stood, what it was, why it is missing."""

    path: str
    class_name: str
    reason: str
    text: str = ""


class ListNode(_Branch, frozen=True, tag="list"):
    """A list."""

    items: list[Node]


class TupleNode(_Branch, frozen=True, tag="tuple"):
    """A tuple, or a torch.Size."""

    items: list[Node]
    size: bool = False


class DictNode(_Branch, frozen=True, tag="dict"):
    """A dict, as pairs, so that keys of any kind survive."""

    items: list[tuple[Node, Node]]


class SliceNode(_Branch, frozen=True, tag="slice"):
    """A slice."""

    start: Node
    stop: Node
    step: Node


Node: TypeAlias = (
    NoneNode
    | BoolNode
    | IntNode
    | FloatNode
    | ComplexNode
    | StrNode
    | BytesNode
    | DtypeNode
    | DeviceNode
    | LayoutNode
    | MemoryFormatNode
    | TensorNode
    | ReceiverNode
    | EllipsisNode
    | OpaqueNode
    | ListNode
    | TupleNode
    | DictNode
    | SliceNode
)

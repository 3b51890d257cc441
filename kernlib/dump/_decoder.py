"""Turns nodes back into values."""

from __future__ import annotations

import re
import struct
import sys
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
    OpaqueNode,
    ReceiverNode,
    SliceNode,
    StrNode,
    TensorNode,
    TupleNode,
)
from kernlib.dump._segments import covers, hull
from kernlib.errors import NotReplayableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import torch

    from kernlib.dump._nodes import Node
    from kernlib.dump._schema import Call, View

__all__ = [
    "call_nodes",
    "decode",
    "input_views",
    "missing_data",
    "opaque_paths",
    "result_views",
    "torch_constant",
    "walk",
]

_NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)


def decode(
    node: Node,
    views: Mapping[int, torch.Tensor],
    receivers: Mapping[int, object] | None = None,
    device_map: Mapping[str, str] | None = None,
) -> Any:  # noqa: ANN401 - whatever was recorded
    """Return the value of a node, with tensors by view number and receivers by number.

    Raises NotReplayableError, naming every opaque part, if there is one.
    """
    opaque = [_opaque_text(part) for part in walk(node) if isinstance(part, OpaqueNode)]
    if opaque:
        raise NotReplayableError("the recorded value", opaque)
    return _Decoder(views, receivers or {}, device_map or {}).value(node)


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it."""
    yield node
    if isinstance(node, (ListNode, TupleNode)):
        for item in node.items:
            yield from walk(item)
    elif isinstance(node, DictNode):
        for key, item in node.items:
            yield from walk(key)
            yield from walk(item)
    elif isinstance(node, SliceNode):
        for part in (node.start, node.stop, node.step):
            yield from walk(part)


def call_nodes(call: Call) -> Iterator[Node]:
    """Yield every node that running the call again needs."""
    for node in call.arguments.args:
        yield from walk(node)
    for node in call.arguments.kwargs.values():
        yield from walk(node)


def _state_nodes(call: Call) -> Iterator[Node]:
    if call.receiver is not None:
        for node in call.receiver.state.values():
            yield from walk(node)


def opaque_paths(call: Call) -> tuple[str, ...]:
    """Return one line for each argument, or part of one, that could not be recorded.

    The receiver's state is left out: a replay rebuilds it by running the set-up calls.
    """
    return tuple(_opaque_text(node) for node in call_nodes(call) if isinstance(node, OpaqueNode))


def input_views(call: Call, *, state: bool = False) -> dict[int, View]:
    """Return the views of the arguments by number; with ``state``, those of the receiver too."""
    found = _tensor_views(call, call_nodes(call))
    return found | _tensor_views(call, _state_nodes(call)) if state else found


def result_views(call: Call) -> dict[int, View]:
    """Return the views of the result by number."""
    return _tensor_views(call, walk(call.result)) if call.result is not None else {}


def missing_data(call: Call) -> tuple[str, ...]:
    """Return one line for each argument tensor whose bytes are not in the capsule."""
    lines = []
    for view in input_views(call).values():
        storage = call.storages[view.storage]
        bounds = hull(view)
        saved = ((part.start, part.start + part.nbytes) for part in storage.segments)
        if bounds is not None and storage.device != "meta" and not covers(saved, bounds):
            lines.append(f"{view.path}: its data was not recorded")
    return tuple(lines)


def torch_constant(name: str, kind: type) -> object | None:
    """Return ``torch.<name>`` if it is a constant of that kind; a name from a file is no more."""
    torch = sys.modules["torch"]
    value = getattr(torch, name, None) if _NAME.fullmatch(name) else None
    return value if isinstance(value, kind) else None


def _tensor_views(call: Call, nodes: Iterable[Node]) -> dict[int, View]:
    return {node.view: call.views[node.view] for node in nodes if isinstance(node, TensorNode)}


def _opaque_text(node: OpaqueNode) -> str:
    return f"{node.path} is a {node.class_name}: {node.reason}"


def _float(value: float | str) -> float:
    if not isinstance(value, str):
        return float(value)
    if value.startswith("nan:"):
        return float(struct.unpack(">d", bytes.fromhex(value[4:]))[0])
    return float(value)


class _Decoder:
    def __init__(
        self,
        views: Mapping[int, torch.Tensor],
        receivers: Mapping[int, object],
        device_map: Mapping[str, str],
    ) -> None:
        self._views = views
        self._receivers = receivers
        self._device_map = device_map

    def value(self, node: Node) -> Any:  # noqa: ANN401 - whatever was recorded
        if isinstance(node, (BoolNode, StrNode, BytesNode)):
            return node.value
        if isinstance(node, (ListNode, TupleNode, DictNode, SliceNode)):
            return self._branch(node)
        if isinstance(node, (DtypeNode, DeviceNode, LayoutNode, MemoryFormatNode)):
            return self._constant(node)
        return self._leaf(node)

    def _leaf(self, node: Node) -> Any:  # noqa: ANN401 - one line for each kind of node
        if isinstance(node, IntNode):
            return int(node.value, 16) if isinstance(node.value, str) else node.value
        if isinstance(node, FloatNode):
            return _float(node.value)
        if isinstance(node, ComplexNode):
            return complex(_float(node.real), _float(node.imag))
        if isinstance(node, TensorNode):
            return self._views[node.view]
        if isinstance(node, ReceiverNode):
            if node.id not in self._receivers:
                raise NotReplayableError("the recorded value", [_absent(node.id)])
            return self._receivers[node.id]
        return ... if isinstance(node, EllipsisNode) else None

    def _branch(self, node: ListNode | TupleNode | DictNode | SliceNode) -> Any:  # noqa: ANN401
        value = self.value
        if isinstance(node, ListNode):
            return [value(item) for item in node.items]
        if isinstance(node, DictNode):
            return {value(key): value(item) for key, item in node.items}
        if isinstance(node, SliceNode):
            return slice(value(node.start), value(node.stop), value(node.step))
        items = tuple(value(item) for item in node.items)
        return sys.modules["torch"].Size(items) if node.size else items

    def _constant(self, node: DtypeNode | DeviceNode | LayoutNode | MemoryFormatNode) -> object:
        import torch

        if isinstance(node, DeviceNode):
            return torch.device(self._device_map.get(node.name, node.name))
        kind: type = torch.dtype
        if isinstance(node, LayoutNode):
            kind = torch.layout
        elif isinstance(node, MemoryFormatNode):
            kind = torch.memory_format
        found = torch_constant(node.name, kind)
        if found is None:
            problem = f"torch {torch.__version__} has no {kind.__name__} {node.name!r}"
            raise NotReplayableError("the recorded value", [problem])
        return found


def _absent(number: int) -> str:
    return f"the object that call {number} made is not there"

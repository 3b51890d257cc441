"""Recorded arguments in one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernlib import dump

if TYPE_CHECKING:
    from kernlib.dump import Call, Node, View

__all__ = ["arguments_of", "recorded_end_text"]

_LONGEST = 100
_MOST = 8


def _view(call: Call, view: View) -> str:
    shape = ",".join(map(str, view.shape))
    text = f"{view.dtype}[{shape}]"
    if not dump.is_dense(view):
        text += f" stride({','.join(map(str, view.stride))})"
    if view.offset:
        text += f" offset {view.offset}"
    storage = call.storages[view.storage]
    shared = [
        other.path
        for other in call.views
        if other.storage == view.storage and other.path != view.path
    ]
    if shared:
        text += f", shares memory with {', '.join(shared[:3])}"
    return f"{text} on {storage.device}"


def _text(call: Call, node: Node) -> str:
    if isinstance(node, dump.TensorNode):
        return _view(call, call.views[node.view])
    if isinstance(node, dump.OpaqueNode):
        return f"<{node.class_name}: {node.reason}>"
    if isinstance(node, dump.ReceiverNode):
        return f"<the object made by call {node.id}>"
    if isinstance(node, (dump.ListNode, dump.TupleNode)):
        items = [_text(call, item) for item in node.items[:_MOST]]
        more = [f"... {len(node.items)} items"] if len(node.items) > _MOST else []
        return f"[{', '.join(items + more)}]"[:_LONGEST]
    if isinstance(node, dump.DictNode):
        return f"{{{len(node.items)} items}}"
    return repr(dump.decode(node, {}))[:_LONGEST]


def arguments_of(call: Call) -> list[tuple[str, str]]:
    """Return the name and the one-line text of every argument, and of the receiver's tensors."""
    rows = []
    names = call.arguments.names
    for at, node in enumerate(call.arguments.args):
        rows.append((names[at] if at < len(names) else f"args[{at}]", _text(call, node)))
    rows += [(name, _text(call, node)) for name, node in call.arguments.kwargs.items()]
    if call.receiver is not None:
        rows += [(f"self.{name}", _text(call, node)) for name, node in call.receiver.state.items()]
    return rows


_ENDS = {
    "returned": "it returned",
    "closed": "its caller closed it before its end",
    "suspended": "it waited for its caller or its event loop when the process ended",
}


def recorded_end_text(call: Call) -> str:
    """Return how the call was recorded to have ended."""
    if call.device_error:
        return f"the device was in error after it: {call.device_error}"
    if call.status == "started":
        return "the process ended during this call; how it ended is not known"
    if call.exception is not None:
        head = call.exception.message.splitlines()[:1]
        return f"it raised {call.exception.type}: {''.join(head)}"
    return _ENDS[call.status]

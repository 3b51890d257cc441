"""Compares what a replayed call left with what was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from kernlib import dump
from kernlib.replay._compare import compare
from kernlib.replay._protocol import Compared
from kernlib.replay._rebuild import expected_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from kernlib.dump import Node
    from kernlib.replay._chain import Step
    from kernlib.replay._rebuild import Rebuilt

__all__ = ["compare_outcome", "result_pairs"]


def compare_outcome(step: Step, rebuilt: Rebuilt, result: object) -> Iterator[Compared]:
    """Yield a comparison for every tensor of the result and every input changed in place.

    An input that the recorded call left as it was is told only if the replay changed it.
    """
    call = step.call
    pairs = list(result_pairs(call.result, result, "result"))
    wanted = {node.view for node, _, _ in pairs if isinstance(node, dump.TensorNode)}
    expected = expected_tensors(step, wanted | set(rebuilt.tensors))
    for node, value, path in pairs:
        if isinstance(node, dump.TensorNode):
            yield _tensor(path, value, expected[node.view])
        else:
            yield _plain(path, node, value)
    changed = {change.storage for change in call.changed}
    for number, tensor in rebuilt.tensors.items():
        view = call.views[number]
        if number in wanted:
            continue
        compared = compare(view.path, tensor.detach().cpu(), expected[number])
        if view.storage in changed:
            yield compared
        elif not compared.matches:
            yield msgspec.structs.replace(compared, unchanged=True)


def _tensor(path: str, value: object, expected: torch.Tensor) -> Compared:
    import torch

    if not isinstance(value, torch.Tensor):
        return _differs(path, f"{type(value).__qualname__}, recorded a tensor")
    return compare(path, value.detach().cpu(), expected)


def _plain(path: str, node: Node, value: object) -> Compared:
    if dump.Encoder().encode(value, path) == node:
        return Compared(path, "", matches=True, identical=True, detail="equal", tolerance="exact")
    return _differs(path, "another value than the recorded one")


def _differs(path: str, detail: str) -> Compared:
    return Compared(path, "", matches=False, identical=False, detail=detail, tolerance="exact")


def result_pairs(node: Node | None, value: Any, path: str) -> Iterator[tuple[Node, Any, str]]:  # noqa: ANN401
    """Yield the leaves of a recorded result beside what the replay returned in their place."""
    if node is None or isinstance(node, (dump.NoneNode, dump.OpaqueNode)):
        return  # nothing was recorded to compare with
    if isinstance(node, (dump.ListNode, dump.TupleNode)):
        items = value if isinstance(value, (list, tuple)) else ()
        for at, item in enumerate(node.items):
            found = items[at] if at < len(items) else None
            yield from result_pairs(item, found, f"{path}[{at}]")
    elif isinstance(node, dump.DictNode):
        keys = [dump.decode(key, {}) for key, _ in node.items]
        for key, (_, item) in zip(keys, node.items, strict=True):
            found = value.get(key) if isinstance(value, dict) else None
            yield from result_pairs(item, found, f"{path}[{key!r}]")
    else:
        yield node, value, path

"""Brings back the arguments of a recorded call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernlib import dump
from kernlib.errors import NotReplayableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import torch

    from kernlib.dump import Call, Node, Storage
    from kernlib.replay._chain import Step

__all__ = ["Rebuilt", "device_map", "expected_tensors", "rebuild_call"]


class Rebuilt:
    """A call's arguments as values, on memory laid out as it was recorded."""

    def __init__(
        self,
        args: list[Any],
        kwargs: dict[str, Any],
        tensors: dict[int, torch.Tensor],
        state: dict[str, Any],
    ) -> None:
        self.args = args
        self.kwargs = kwargs
        self.tensors = tensors
        self.state = state


def device_map(call: Call, wanted: str | None) -> tuple[dict[str, str], list[str]]:
    """Return where each recorded device is found here, and what a reader should know of it.

    Raises NotReplayableError if a recorded device has no counterpart.
    """
    import torch

    recorded = sorted({storage.device for storage in call.storages} - {"cpu", "meta"})
    if wanted is not None:
        return dict.fromkeys(recorded, wanted), [
            f"{name} replayed on {wanted}" for name in recorded
        ]
    devices: dict[str, str] = {}
    notes = []
    for name in recorded:
        kind, _, digits = name.partition(":")
        count = torch.cuda.device_count() if kind == "cuda" and (digits or "0").isdecimal() else 0
        if not count:
            reason = (
                f"it was recorded on {name}, and there is no such device here; "
                "--device cpu runs the operator's CPU kernel instead"
            )
            raise NotReplayableError(f"call {call.sequence} ({call.api})", [reason])
        if int(digits or 0) >= count:
            devices[name] = "cuda:0"
            notes.append(f"{name} replayed on cuda:0, the only device here")
    return devices, notes


def rebuild_call(
    step: Step,
    devices: Mapping[str, str],
    receivers: Mapping[int, object],
    allocate: Callable[[Storage, torch.device], torch.UntypedStorage] = dump.allocate,
    given: Mapping[int, torch.UntypedStorage] | None = None,
) -> Rebuilt:
    """Return the arguments of a call; ``receivers`` are the objects its chain has made.

    Storages that are ``given``, by number, are taken as they are.
    """
    call = step.call
    views = dump.input_views(call, state=True)
    pieces = dump.read_inputs(step.path, call)
    tensors = dump.rebuild(call.storages, views, pieces, devices, allocate, given)
    args = [dump.decode(node, tensors, receivers, devices) for node in call.arguments.args]
    kwargs = {
        name: dump.decode(node, tensors, receivers, devices)
        for name, node in call.arguments.kwargs.items()
    }
    recorded = call.receiver.state if call.receiver is not None else {}
    state = {
        name: dump.decode(node, tensors, receivers, devices)
        for name, node in recorded.items()
        if _is_tensor_state(node)
    }
    return Rebuilt(args, kwargs, tensors, state)


def _is_tensor_state(node: Node) -> bool:
    """Return whether an attribute holds tensors, and nothing that cannot be rebuilt."""
    parts = list(dump.walk(node))
    opaque = any(isinstance(part, (dump.OpaqueNode, dump.ReceiverNode)) for part in parts)
    return not opaque and any(isinstance(part, dump.TensorNode) for part in parts)


def expected_tensors(step: Step, views: Iterable[int]) -> dict[int, torch.Tensor]:
    """Return, on the CPU, how the tensors of these views looked after the recorded call."""
    call = step.call
    everywhere = {storage.device: "cpu" for storage in call.storages if storage.device != "meta"}
    pieces = [*dump.read_inputs(step.path, call), *dump.read_outputs(step.path, call)]
    wanted = {number: call.views[number] for number in views}
    return dump.rebuild(call.storages, wanted, pieces, everywhere)

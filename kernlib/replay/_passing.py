"""Passes memory that a replayed call left to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernlib import dump
from kernlib.replay._outcome import result_pairs

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from kernlib.dump import Piece, Storage
    from kernlib.replay._chain import Step
    from kernlib.replay._rebuild import Rebuilt

__all__ = ["Passing"]


@dataclass(frozen=True, slots=True)
class _Held:
    """Memory that a replayed call left, and the number it had in the recording of that call."""

    memory: torch.UntypedStorage
    step: Step
    number: int


class Passing:
    """Knows the memory of the calls that ran, by where the recording had it.

    A storage of a later call is the same one if it had the same address and size, and its recorded
    bytes are those that the earlier call was recorded to have left: then nothing came between.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[str, int, int], _Held] = {}

    def given(
        self, step: Step, devices: Mapping[str, str]
    ) -> tuple[dict[int, torch.UntypedStorage], list[str]]:
        """Return, by number, the storages of a call that are already there, and notes on them."""
        import torch

        if not self._held:
            return {}, []
        found: dict[int, torch.UntypedStorage] = {}
        notes = []
        pieces = dump.read_inputs(step.path, step.call)
        paths: dict[int, str] = {}
        for view in dump.input_views(step.call, state=True).values():
            paths.setdefault(view.storage, view.path)
        for number, path in paths.items():
            storage = step.call.storages[number]
            held = self._held.get(_key(storage))
            place = torch.empty(0, device=devices.get(storage.device, storage.device)).device
            if held is None or held.memory.device != place:
                continue
            own = [piece for piece in pieces if piece.storage == number]
            if own and all(_was_left(held, piece) for piece in own):
                found[number] = held.memory
                notes.append(f"{path} is the memory that {held.step.text} left")
        return found, notes

    def keep(self, step: Step, rebuilt: Rebuilt, result: object) -> None:
        """Remember the memory of a call's arguments and of its result."""
        import torch

        call = step.call
        for number, tensor in rebuilt.tensors.items():
            self._add(step, call.views[number].storage, tensor)
        for node, value, _ in result_pairs(call.result, result, "result"):
            if isinstance(node, dump.TensorNode) and isinstance(value, torch.Tensor):
                self._add(step, call.views[node.view].storage, value)

    def _add(self, step: Step, number: int, tensor: torch.Tensor) -> None:
        storage, memory = step.call.storages[number], tensor.untyped_storage()
        if storage.address and memory.nbytes() == storage.nbytes:
            self._held[_key(storage)] = _Held(memory, step, number)


def _key(storage: Storage) -> tuple[str, int, int]:
    return storage.device, storage.address, storage.nbytes


def _was_left(held: _Held, piece: Piece) -> bool:
    """Return whether a call was recorded to have left these very bytes."""
    import torch

    path, call = held.step.path, held.step.call
    end = piece.start + piece.data.numel()
    wanted = piece.data
    unknown = torch.ones(wanted.numel(), dtype=torch.bool)
    # What the call changed counts before what it was given.
    for known in (*dump.read_outputs(path, call), *dump.read_inputs(path, call)):
        low, high = max(known.start, piece.start), min(known.start + known.data.numel(), end)
        if known.storage != held.number or low >= high:
            continue
        here = slice(low - piece.start, high - piece.start)
        there = known.data[low - known.start : high - known.start]
        if bool(((there != wanted[here]) & unknown[here]).any()):
            return False
        unknown[here] = False
    return not bool(unknown.any())

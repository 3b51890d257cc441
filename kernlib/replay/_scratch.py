"""Overwrites what a call should not read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernlib import dump

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from kernlib.dump import Call, View
    from kernlib.replay._protocol import Scratch

__all__ = ["overwrite_scratch"]

#: NaN in every float type, and no sound index in any integer type.
_BYTES = {"zeroed": 0x00, "poisoned": 0xFF}


def overwrite_scratch(
    names: tuple[str, ...], call: Call, tensors: Mapping[int, torch.Tensor], how: Scratch
) -> list[str]:
    """Overwrite the tensors of these arguments; return what a reader should know of it.

    A tensor that shares bytes with an argument of another name is left as it is: those mean
    something.
    """
    if how == "recorded":
        return []
    notes = []
    scratch = {number for number in tensors if _belongs(call.views[number], names)}
    for number in sorted(scratch):
        view = call.views[number]
        others = [call.views[other] for other in tensors.keys() - scratch]
        shared = next((other.path for other in others if _overlap(view, other)), None)
        if shared is not None:
            notes.append(f"{view.path} is not {how}: it shares memory with {shared}")
        elif tensors[number].device.type != "meta":
            _bytes_of(tensors[number]).fill_(_BYTES[how])
            notes.append(f"{view.path} was {how} before the call")
    return notes


def _belongs(view: View, names: tuple[str, ...]) -> bool:
    """Return whether a view is an argument of these names, or a part of one."""
    return any(
        view.path == name or view.path.startswith((f"{name}[", f"{name}.")) for name in names
    )


def _overlap(one: View, other: View) -> bool:
    bounds, others = dump.hull(one), dump.hull(other)
    if one.storage != other.storage or bounds is None or others is None:
        return False
    return bounds[0] < others[1] and others[0] < bounds[1]


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor's elements, each once, as a view of the tensor's memory."""
    import torch

    shown = tensor.detach()
    size = shown.itemsize
    pairs = zip(shown.shape, shown.stride(), strict=True)
    kept = [(length if step else min(length, 1), step * size) for length, step in pairs]
    flat = torch.empty(0, dtype=torch.uint8, device=shown.device)
    shape = (*(length for length, _ in kept), size)
    stride = (*(step for _, step in kept), 1)
    flat.set_(shown.untyped_storage(), int(shown.storage_offset()) * size, shape, stride)
    return flat

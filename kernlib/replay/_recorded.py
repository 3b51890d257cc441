"""Recorded arguments as checks read them, on any machine."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from kernlib import dump
from kernlib._checks import Layout
from kernlib.errors import CapsuleError, NotReplayableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from kernlib._registry import Api
    from kernlib.dump import Call, Node, Piece, View
    from kernlib.replay._chain import Step

__all__ = ["RecordedValues", "bytes_of", "named_nodes", "only_storage"]

_ADDRESS = ".address"


def named_nodes(api: Api, call: Call) -> dict[str, Node]:
    """Return the arguments and the receiver's attributes as they were recorded, by name."""
    names = api.parameters
    names = names[1:] if api.owner is not None else names
    named = dict(zip(names, call.arguments.args, strict=False))
    named.update(call.arguments.kwargs)
    if call.receiver is not None:
        named.update({f"self.{name}": node for name, node in call.receiver.state.items()})
    return named


def only_storage(call: Call, number: int) -> Call:
    """Return a call that promises the data of one storage only, so that no more is read."""
    storages = tuple(
        storage if at == number else msgspec.structs.replace(storage, segments=())
        for at, storage in enumerate(call.storages)
    )
    changed = tuple(change for change in call.changed if change.storage == number)
    return msgspec.structs.replace(call, storages=storages, changed=changed)


def bytes_of(pieces: list[Piece], start: int, end: int) -> torch.Tensor | None:
    """Return bytes of a storage that one piece holds, as a flat uint8 tensor."""
    for piece in pieces:
        if piece.start <= start and end <= piece.start + piece.data.numel():
            return piece.data[start - piece.start : end - piece.start]
    return None


class RecordedValues(Mapping[str, object]):
    """The values of a recorded call, on the CPU whatever device they were on.

    A tensor's data is read when a check asks for it, and no more memory is taken than its
    capsule's file has. ``layout`` needs no data.
    """

    def __init__(self, api: Api, step: Step) -> None:
        self._step = step
        self._call = step.call
        self._nodes = named_nodes(api, step.call)
        self._defaults = _defaults(api)
        self._tensors: dict[int, torch.Tensor] = {}
        self._absent: dict[str, str] = {}

    def layout(self, name: str) -> Layout | None:
        """Return how a recorded tensor lay in memory; None for anything else."""
        node = self._nodes.get(name)
        if not isinstance(node, dump.TensorNode):
            return None
        view = self._call.views[node.view]
        storage = self._call.storages[view.storage]
        address = storage.address + view.offset * view.itemsize if storage.address else 0
        return Layout(view.dtype, view.itemsize, view.shape, view.stride, address, storage.device)

    def why_absent(self, name: str) -> str:
        """Return why there is no such value."""
        return self._absent.get(name, "is not known")

    def __getitem__(self, name: str) -> object:
        if name.endswith(_ADDRESS) and (found := self.layout(name.removesuffix(_ADDRESS))):
            return found.address
        node = self._nodes.get(name)
        if node is None:
            return self._defaults[name]
        try:
            views = {
                part.view: self._tensor(part.view)
                for part in dump.walk(node)
                if isinstance(part, dump.TensorNode)
            }
            return dump.decode(node, views)
        except NotReplayableError as error:
            self._absent[name] = f"was not recorded ({'; '.join(error.reasons)})"
        except CapsuleError as error:
            self._absent[name] = f"cannot be read: {error.problem}"
        except (RuntimeError, ValueError, TypeError, OverflowError) as error:
            self._absent[name] = f"cannot be made: {str(error).splitlines()[0][:100]}"
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes | self._defaults)

    def __len__(self) -> int:
        return len(self._nodes | self._defaults)

    def _tensor(self, number: int) -> torch.Tensor:
        if number not in self._tensors:
            self._tensors[number] = self._read(self._call.views[number])
        return self._tensors[number]

    def _read(self, view: View) -> torch.Tensor:
        """Return a view on a copy of the very bytes that it reaches."""
        import torch

        dtype = dump.decode(dump.DtypeNode(view.dtype), {})
        bounds = dump.hull(view)
        if bounds is None:
            return torch.empty(view.shape, dtype=dtype)
        limited = only_storage(self._call, view.storage)
        found = bytes_of(dump.read_inputs(self._step.path, limited), *bounds)
        if found is None or dtype.itemsize != view.itemsize:
            reason = "its data is not in the capsule"
            if self._call.capturing:
                reason = "a CUDA graph was being captured, so no data was read"
            raise NotReplayableError(view.path, [reason])
        return found.clone().view(dtype).as_strided(view.shape, view.stride)


def _defaults(api: Api) -> dict[str, object]:
    """Return what an api takes for the arguments that it is not given."""
    try:
        parameters = inspect.signature(api.function).parameters
    except (TypeError, ValueError):
        return {}
    empty = inspect.Parameter.empty
    return {name: p.default for name, p in parameters.items() if p.default is not empty}

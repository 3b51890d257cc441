"""Collects tensors as views on shared storages."""

from __future__ import annotations

import functools
import itertools
import sys
from typing import TYPE_CHECKING

from kernlib.dump._naming import entry_name, naming_views
from kernlib.dump._schema import Segment, Storage, View
from kernlib.dump._segments import hull, merged

if TYPE_CHECKING:
    import torch

    from kernlib.dump._segments import Hull

__all__ = ["TensorTable", "dtype_name"]

_DATALESS = "meta"
_DEVICES = ("cpu", "cuda", _DATALESS)


@functools.cache
def dtype_name(dtype: torch.dtype) -> tuple[str, int]:
    """Return a dtype's name without ``torch.`` and its size in bytes."""
    return str(dtype)[6:], dtype.itemsize


class TensorTable:
    """The views met so far, and the storages behind them; reads no data."""

    def __init__(self) -> None:
        self.views: list[View] = []
        self.memory: list[torch.UntypedStorage | None] = []
        self.incomplete: list[str] = []
        self._facts: list[tuple[str, int, int]] = []
        self._numbers: dict[tuple[str, int, bool], int] = {}
        # The tensors are held so that no other object can get the id of one of them.
        self._seen: dict[int, tuple[torch.Tensor, int]] = {}

    def add(self, tensor: torch.Tensor, path: str) -> int | str:
        """Return the number of a tensor's view, or why the format cannot hold the tensor."""
        torch = sys.modules["torch"]
        kind = type(tensor)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            return self._add(tensor, path, parameter=kind is not torch.Tensor)
        if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            return "a tensor subclass that is more than its data"
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001 - its public form is a decorator
            number = self._add(tensor, path, parameter=isinstance(tensor, torch.nn.Parameter))
        if isinstance(number, int):
            self.incomplete.append(f"{path}: kept as a plain tensor, it was a {kind.__qualname__}")
        return number

    def planned(self) -> tuple[Storage, ...]:
        """Return the storages with the segments that the views met so far can reach."""
        reach: list[list[Hull]] = [[] for _ in self.memory]
        for view in self.views:
            if (bounds := hull(view)) is not None:
                reach[view.storage].append(bounds)
        naming = naming_views(self.views)
        storages = []
        for number, (device, nbytes, address) in enumerate(self._facts):
            hulls = () if self.memory[number] is None else merged(reach[number])
            segments = tuple(
                Segment(
                    entry=entry_name((number, start, end), naming), start=start, nbytes=end - start
                )
                for start, end in hulls
            )
            storages.append(
                Storage(device=device, nbytes=nbytes, address=address, segments=segments)
            )
        self._note_overlaps()
        return tuple(storages)

    def bare(self, first: int) -> tuple[Storage, ...]:
        """Return the storages from a number on, without segments."""
        return tuple(
            Storage(device=device, nbytes=nbytes, address=address)
            for device, nbytes, address in self._facts[first:]
        )

    def _add(self, tensor: torch.Tensor, path: str, *, parameter: bool) -> int | str:
        if (seen := self._seen.get(id(tensor))) is not None and self._unchanged(tensor, seen[1]):
            return seen[1]
        try:
            if (problem := _problem(tensor)) is not None:
                return problem
            name, itemsize = dtype_name(tensor.dtype)
            view = View(
                path=path,
                storage=self._storage(tensor),
                dtype=name,
                itemsize=itemsize,
                shape=tuple(tensor.shape),
                stride=tensor.stride(),
                offset=int(tensor.storage_offset()),
                requires_grad=tensor.requires_grad,
                parameter=parameter,
                conj=tensor.is_conj(),
                neg=tensor.is_neg(),
                inference=tensor.is_inference(),
            )
        except (RuntimeError, NotImplementedError) as error:
            # Tensors inside torch.func transforms look plain but have no storage to ask for.
            return f"a tensor without a storage ({str(error).splitlines()[0][:100]})"
        self.views.append(view)
        self._seen[id(tensor)] = (tensor, len(self.views) - 1)
        return len(self.views) - 1

    def _unchanged(self, tensor: torch.Tensor, number: int) -> bool:
        """Return whether a tensor met before still is the view it was then."""
        view = self.views[number]
        return (
            tuple(tensor.shape) == view.shape
            and tensor.stride() == view.stride
            and tensor.storage_offset() == view.offset
            and self._storage(tensor) == view.storage
        )

    def _storage(self, tensor: torch.Tensor) -> int:
        memory = tensor.untyped_storage()
        device = str(tensor.device)
        dataless = device == _DATALESS
        address = 0 if dataless else memory.data_ptr()
        nbytes = memory.nbytes()
        # Storages without memory all have the address 0; what tells them apart is the object.
        key = (device, address or memory._cdata, bool(address))  # noqa: SLF001 - no public identity
        number = self._numbers.setdefault(key, len(self.memory))
        if number == len(self.memory):
            self.memory.append(None if dataless else memory)
            self._facts.append((device, nbytes, address))
        elif nbytes > self._facts[number][1]:
            # Two imports of one foreign buffer, the second one longer.
            self.memory[number] = memory
            self._facts[number] = (device, nbytes, address)
        return number

    def _note_overlaps(self) -> None:
        if len(self._facts) < 2:  # noqa: PLR2004 - a pair
            return
        places = sorted(
            (device, address, address + nbytes, number)
            for number, (device, nbytes, address) in enumerate(self._facts)
            if address and nbytes
        )
        for (device, _, end, one), (other_device, start, _, other) in itertools.pairwise(places):
            if device == other_device and start < end:
                self.incomplete.append(
                    f"storages {one} and {other} overlap in memory; "
                    "rebuilt, each gets memory of its own"
                )


def _problem(tensor: torch.Tensor) -> str | None:
    """Return why a tensor is more than a view on a storage."""
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}"
    if tensor.is_quantized:
        return "a quantized tensor"
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.device.type not in _DEVICES:
        return f"a tensor on device {tensor.device}"
    return None

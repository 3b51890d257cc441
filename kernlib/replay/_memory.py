"""The memory a replayed call runs on: plain or fenced."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from kernlib import dump
from kernlib._checks import AllInRange
from kernlib.errors import FenceError
from kernlib.fence import Fence, moved_allocations
from kernlib.replay._origin import origin_of
from kernlib.replay._protocol import Noted, Placed, PlacedView, Trampled
from kernlib.replay._scratch import overwrite_scratch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager

    import torch

    from kernlib._checks import Check
    from kernlib._registry import Api
    from kernlib.dump import Call, Storage, View
    from kernlib.fence import Side, Trampling
    from kernlib.replay._protocol import EventLog, Memory, Scratch

__all__ = ["CallMemory"]

_SIDES: dict[Memory, Side] = {"fence-end": "end", "fence-start": "start"}
_POISON = 0xFF
_GAPS = "alignment is kept, so that bytes lie between some storages and their fence"
_IN_GAPS = "read, they give NaN or a huge number instead of a fault; written to, they are told"
#: Fenced memory of the api's own that nothing holds is given back each time so much was added.
_HOARD_BYTES = 1 << 28
_HOARD_BLOCKS = 2048


class CallMemory:
    """Lays the storages of recorded calls out, and tells where they lie and what was trampled.

    With ``watch`` it is told as well where plain memory lies that the api allocates itself.
    """

    def __init__(
        self, memory: Memory, scratch: Scratch, events: EventLog, *, watch: bool = False
    ) -> None:
        side = _SIDES.get(memory)
        self._fence = Fence(side) if side is not None else None
        self._scratch = scratch
        self._events = events
        self._names: dict[int, str] = {}
        self._told: set[tuple[int, str]] = set()
        self._hoard = [0, 0]
        self._watch = watch or self._fence is not None or scratch != "recorded"
        self._refused = False

    def allocate(self, storage: Storage, device: torch.device) -> torch.UntypedStorage:
        """Return memory for a recorded storage; what cannot be fenced is plain.

        Raises FenceError or MemoryError where fenced memory was asked for and cannot be had.
        """
        if self._fence is None or device.type == "meta" or not storage.nbytes:
            return dump.allocate(storage, device)
        return self._fence.allocate(storage.nbytes, storage.address, device)

    def place(
        self, call: Call, tensors: Mapping[int, torch.Tensor], api: Api, *, last: bool
    ) -> None:
        """Overwrite the scratch of a call if that is wanted; tell where each storage lies.

        For the last call of a chain what a reader should know is told as well.
        """
        names = (*api.outputs, *api.workspaces)
        notes = overwrite_scratch(names, call, tensors, self._scratch)
        units = _units(api.checks)
        gaps = []
        by_storage: dict[int, list[int]] = {}
        for number in tensors:
            by_storage.setdefault(call.views[number].storage, []).append(number)
        for storage, numbers in sorted(by_storage.items()):
            memory = tensors[numbers[0]].untyped_storage()
            if memory.device.type != "meta" and memory.nbytes():
                views = tuple(_view(call.views[number], units) for number in numbers)
                self._tell(storage, memory, views)
                gaps += self._gap(memory.data_ptr(), views[0].path)
        if gaps:
            notes.append(f"{_GAPS} ({', '.join(gaps)}): {_IN_GAPS}")
        for note in notes if last else ():
            self._events.write(Noted(note))

    def running(self) -> AbstractContextManager[object]:
        """Return a context in which what the api allocates is treated as its arguments are."""
        return moved_allocations(self._own) if self._watch else contextlib.nullcontext()

    def check(self, *, after_fault: bool = False) -> None:
        """Tell which padding was written to, each place once.

        After a fault only the host's is looked at: a device in error answers nothing.
        """
        if self._fence is None:
            return
        for block in self._fence.blocks():
            if block.on_host or not after_fault:
                for trampling in block.trampled():
                    self._tell_trampled(block.address, trampling)

    def collect(self) -> None:
        """Give back what nothing holds any more."""
        if self._fence is not None:
            self._hoard = [0, 0]
            for address, trampling in self._fence.collect():
                self._tell_trampled(address, trampling)
            # Another block may come to lie where one was.
            self._told = {told for told in self._told if self._fence.at(told[0]) is not None}

    def _gap(self, address: int, name: str) -> list[str]:
        """Return how many bytes lie between a storage and its fence, if any do."""
        block = self._fence.at(address) if self._fence is not None else None
        return [f"{name} {block.gap}"] if block is not None and block.gap else []

    def _own(self, tensor: torch.Tensor, operator: str, kept: bool) -> torch.UntypedStorage:  # noqa: FBT001 - the caller's signature
        """Return where memory of the api's own is to lie: fenced, with its contents or poison."""
        plain = tensor.untyped_storage()
        memory = self._fenced(plain)
        bare = not kept and (self._fence is not None or self._scratch != "recorded")
        if bare:
            _fill(memory, 0 if self._scratch == "zeroed" else _POISON)
        elif memory is not plain:
            memory.copy_(plain)
        if bare or memory is not plain:
            _wait(memory.device)
        view = PlacedView(
            origin_of(operator), str(tensor.dtype).removeprefix("torch."), tensor.itemsize,
            tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()),
        )  # fmt: skip
        self._tell(-1, memory, (view,))
        return memory

    def _fenced(self, plain: torch.UntypedStorage) -> torch.UntypedStorage:
        if self._fence is None or self._refused:
            return plain
        self._hoard = [self._hoard[0] + plain.nbytes(), self._hoard[1] + 1]
        if self._hoard[0] > _HOARD_BYTES or self._hoard[1] > _HOARD_BLOCKS:
            self.collect()
        try:
            return self._fence.allocate(plain.nbytes(), plain.data_ptr(), plain.device)
        except (MemoryError, FenceError) as error:
            self._refused = True
            text = f"from {plain.nbytes()} bytes on that the api allocated, nothing is fenced: "
            self._events.write(Noted(f"{text}{error}"))
            return plain

    def _tell(
        self, number: int, memory: torch.UntypedStorage, views: tuple[PlacedView, ...]
    ) -> None:
        address = memory.data_ptr()
        block = self._fence.at(address) if self._fence is not None else None
        before, after, guard = (0, 0, 0)
        if block is not None:
            before, after, guard = block.layout.before, block.layout.after, block.layout.guard
            self._names[address] = views[0].path
        placed = Placed(
            number, str(memory.device), address, memory.nbytes(), views, before, after, guard
        )
        self._events.write(placed)

    def _tell_trampled(self, address: int, trampling: Trampling) -> None:
        if (address, trampling.where) not in self._told:
            self._told.add((address, trampling.where))
            name = self._names.get(address, "memory of the call")
            self._events.write(Trampled(name, *trampling))


def _units(checks: Iterable[Check]) -> dict[str, str]:
    """Return what an index into the first dimension of an argument is called, where it is told."""
    return {
        check.upper.name: check.what.removesuffix("s")
        for check in checks
        if isinstance(check, AllInRange) and check.upper.dim == 0
    }


def _view(view: View, units: Mapping[str, str]) -> PlacedView:
    unit = units.get(view.path, "row")
    return PlacedView(
        view.path, view.dtype, view.itemsize, view.shape, view.stride, view.offset, unit
    )


def _fill(memory: torch.UntypedStorage, byte: int) -> None:
    import torch

    torch.empty(0, dtype=torch.uint8, device=memory.device).set_(memory).fill_(byte)


def _wait(device: torch.device) -> None:
    """Wait for what was written: the api may go on in another stream, where nothing orders it."""
    import torch

    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()

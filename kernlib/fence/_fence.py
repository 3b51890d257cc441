"""Storages that end, or begin, where nothing can be touched."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Protocol

from kernlib.fence._canary import Trampling, fill, first_wrong
from kernlib.fence._device import DevicePages
from kernlib.fence._host import HostPages
from kernlib.fence._layout import lay_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from kernlib.fence._layout import Layout, Side

__all__ = ["Block", "Fence", "Pages"]


class Pages(Protocol):
    """What maps memory of one device between guards."""

    granule: int
    alignment: int

    def map(self, layout: Layout) -> int:
        """Return the address of the first mapped byte."""

    def unmap(self, first: int, layout: Layout) -> None:
        """Give back a mapping and its guards."""

    def wait(self) -> None:
        """Wait for what runs on the device."""

    def tensor(self, address: int, nbytes: int) -> tuple[torch.Tensor, object]:
        """Return mapped bytes as a storage of their own, and what lives as long as that does."""


class Block:
    """A fenced storage: where it lies, and whether anything holds it still.

    ``gap`` is how many bytes of padding lie between it and the fence it was to touch.
    """

    def __init__(self, pages: Pages, layout: Layout, side: Side) -> None:
        self.layout = layout
        self.gap = layout.after if side == "end" else layout.before
        self._pages = pages
        self._first = pages.map(layout)
        for address, padding in self._padding():
            fill(padding, address)
        self._holder: Callable[[], object] = lambda: None

    @property
    def address(self) -> int:
        """The address of the storage."""
        return self._first + self.layout.before

    @property
    def on_host(self) -> bool:
        """Whether this is host memory."""
        return isinstance(self._pages, HostPages)

    @property
    def held(self) -> bool:
        """Whether torch still has a storage here."""
        return self._holder() is not None

    def storage(self) -> torch.UntypedStorage:
        """Return the storage; asked for once."""
        tensor, holder = self._pages.tensor(self.address, self.layout.nbytes)
        self._holder = weakref.ref(holder)
        return tensor.untyped_storage()

    def trampled(self) -> list[Trampling]:
        """Return on which side the padding was written to; waits for the device."""
        self._pages.wait()
        found = []
        for address, padding in self._padding():
            if (bounds := first_wrong(padding, address)) is None:
                continue
            low, high = bounds
            if address < self.address:
                found.append(Trampling("before", padding.numel() - high, high - low))
            else:
                found.append(Trampling("after", low, high - low))
        return found

    def unmap(self) -> None:
        """Give the memory back; whoever touches it from now on faults."""
        self._pages.unmap(self._first, self.layout)

    def _padding(self) -> Iterator[tuple[int, torch.Tensor]]:
        before, after = self.layout.before, self.layout.after
        if before:
            yield self._first, self._pages.tensor(self._first, before)[0]
        if after:
            end = self.address + self.layout.nbytes
            yield end, self._pages.tensor(end, after)[0]


class Fence:
    """All fenced storages of a process, flush with a fence at their end or their start.

    Raises FenceError or MemoryError where fenced memory cannot be had.
    """

    def __init__(self, side: Side) -> None:
        self._side = side
        self._pages: dict[torch.device, Pages] = {}
        self._blocks: dict[int, Block] = {}

    def allocate(self, nbytes: int, address: int, device: torch.device) -> torch.UntypedStorage:
        """Return a storage of ``nbytes`` (at least 1), as aligned as one that was at ``address``.

        Its contents are undefined.
        """
        pages = self._pages_of(device)
        layout = lay_out(
            nbytes, address, self._side, granule=pages.granule, alignment=pages.alignment
        )
        block = Block(pages, layout, self._side)
        self._blocks[block.address] = block
        return block.storage()

    def at(self, address: int) -> Block | None:
        """Return the block whose storage begins at an address."""
        return self._blocks.get(address)

    def blocks(self) -> tuple[Block, ...]:
        """Return all blocks, the oldest first."""
        return tuple(self._blocks.values())

    def collect(self) -> list[tuple[int, Trampling]]:
        """Unmap what nothing holds any more; return what was trampled there, by address."""
        found = []
        for block in self.blocks():
            if not block.held:
                found += [(block.address, trampling) for trampling in block.trampled()]
                self._release(block)
        return found

    def release(self) -> None:
        """Unmap everything: storages that are still held may not be touched again."""
        for block in self.blocks():
            self._release(block)

    def _release(self, block: Block) -> None:
        block.unmap()
        del self._blocks[block.address]

    def _pages_of(self, device: torch.device) -> Pages:
        import torch

        if device.type == "cuda" and str(device) == "cuda":
            device = torch.device("cuda", torch.cuda.current_device())
        if device not in self._pages:
            on_host = device.type == "cpu"
            self._pages[device] = HostPages() if on_host else DevicePages(device.index)
        return self._pages[device]

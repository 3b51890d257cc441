"""Host memory between pages that nobody may touch."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from kernlib.fence._layout import Layout

__all__ = ["HostPages"]

_PROT_NONE = 0
_MAP_NORESERVE = 0x4000
_FAILED = ctypes.c_void_p(-1).value


class HostPages:
    """Maps host memory with ``mmap``; the pages around it are never given memory."""

    granule = mmap.PAGESIZE
    #: What torch's own allocator promises; a storage that is aligned better is so by chance.
    alignment = 64

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._mmap, self._mprotect, self._munmap = libc.mmap, libc.mprotect, libc.munmap
        self._mmap.restype = ctypes.c_void_p
        self._mmap.argtypes = [
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
            ctypes.c_long,
        ]  # fmt: skip
        self._mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self._munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

    def map(self, layout: Layout) -> int:
        """Return the address of the first mapped byte.

        Raises MemoryError if there is no more memory or address space.
        """
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        reserved = self._mmap(None, layout.reserved, _PROT_NONE, flags, -1, 0)
        if reserved == _FAILED:
            raise MemoryError(f"mmap of {layout.reserved} bytes: {_problem()}")
        first: int = reserved + layout.guard
        if self._mprotect(first, layout.mapped, mmap.PROT_READ | mmap.PROT_WRITE):
            problem = _problem()
            self._munmap(reserved, layout.reserved)
            raise MemoryError(f"mprotect of {layout.mapped} bytes: {problem}")
        return first

    def unmap(self, first: int, layout: Layout) -> None:
        """Give back a mapping and its guards."""
        self._munmap(first - layout.guard, layout.reserved)

    def wait(self) -> None:
        """Return at once: nothing runs behind the host's back."""

    def tensor(self, address: int, nbytes: int) -> tuple[torch.Tensor, object]:
        """Return mapped bytes as a storage of their own, and what lives as long as that does."""
        import torch

        block = (ctypes.c_ubyte * nbytes).from_address(address)
        return torch.frombuffer(block, dtype=torch.uint8), block


def _problem() -> str:
    return os.strerror(ctypes.get_errno())

"""Copies device memory to the host, through pinned memory."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import torch

    Buffer = bytes | memoryview

__all__ = ["DeviceBytes", "batches", "taken_or_made", "wait_for"]

#: A copy of this size is as fast as a longer one, and more of them would be memory lost.
_STAGE = 8 << 20
#: Less than this is not split off from the bytes that follow it.
_LEAST = 1 << 20
_ALIGNMENT = 64

_Item = TypeVar("_Item")


class DeviceBytes:
    """Bytes of a storage on a device, which are read only when they are needed."""

    __slots__ = ("whole",)

    def __init__(self, storage: torch.UntypedStorage, start: int, nbytes: int) -> None:
        import torch

        self.whole = torch.empty(0, dtype=torch.uint8, device=storage.device)
        self.whole.set_(storage, start, (nbytes,), (1,))

    def __len__(self) -> int:
        return self.whole.numel()


class _Stage:
    """Host memory that a device copies to at full speed; for one user at a time."""

    def __init__(self) -> None:
        import torch

        pinned = torch.cuda.is_available()
        # Memory made in inference mode could not be written outside of it, by a later call.
        with torch.inference_mode(mode=False):
            self.memory = torch.empty(_STAGE, dtype=torch.uint8, pin_memory=pinned)
        block = (ctypes.c_ubyte * _STAGE).from_address(self.memory.data_ptr())
        self.view = memoryview(block).cast("B")


_FREE: list[_Stage] = []


def batches(buffers: Iterable[Buffer | DeviceBytes]) -> Iterator[list[Buffer]]:
    """Return the bytes of buffers in order; those of a device are good until the next batch.

    They are copied in the order of the current stream of their device, and waited for once a
    batch. Raises RuntimeError if a device is in error.
    """
    stage: _Stage | None = None
    try:
        batch: list[Buffer] = []
        copied: set[torch.device] = set()
        used = 0
        for buffer in buffers:
            if not isinstance(buffer, DeviceBytes):
                batch.append(buffer)
                continue
            stage = stage or taken_or_made(_FREE, _Stage)
            copied.add(buffer.whole.device)
            at = 0
            while at < len(buffer):
                nbytes = min(len(buffer) - at, _STAGE - used)
                if nbytes < min(len(buffer) - at, _LEAST):
                    wait_for(copied)
                    yield batch
                    batch, used = [], 0
                    continue
                part = slice(used, used + nbytes)
                stage.memory[part].copy_(buffer.whole[at : at + nbytes], non_blocking=True)
                batch.append(stage.view[part])
                at += nbytes
                used = -(-part.stop // _ALIGNMENT) * _ALIGNMENT
        wait_for(copied)
        if batch:
            yield batch
    finally:
        if stage is not None:
            _FREE.append(stage)


def taken_or_made(free: list[_Item], make: Callable[[], _Item]) -> _Item:
    """Return one of the free items, which no other thread gets then, or a new one."""
    try:
        return free.pop()
    except IndexError:
        return make()


def wait_for(devices: Iterable[torch.device]) -> None:
    """Wait for the current streams of devices; RuntimeError if one is in error."""
    for device in devices:
        if device.type == "cuda":
            sys.modules["torch"].cuda.current_stream(device).synchronize()

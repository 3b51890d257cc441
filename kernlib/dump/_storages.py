"""Reads the memory of recorded storages, and builds it again."""

from __future__ import annotations

import ctypes
import os
import warnings
import weakref
from typing import TYPE_CHECKING, NamedTuple

from kernlib.dump._decoder import torch_constant
from kernlib.dump._staging import DeviceBytes
from kernlib.errors import NotReplayableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import torch

    from kernlib.dump._schema import Storage, View

__all__ = ["Piece", "allocate", "bytes_of", "rebuild"]

_ALIGNMENT = 512
_POISON = 0xFF


class Piece(NamedTuple):
    """Bytes of a storage: its number, the first byte, and the bytes as a flat uint8 tensor."""

    storage: int
    start: int
    data: torch.Tensor


def bytes_of(storage: torch.UntypedStorage, start: int, nbytes: int) -> memoryview | DeviceBytes:
    """Return bytes of a storage, to be written or compared before they change; nothing is copied.

    ValueError if the storage does not have them.
    """
    if start < 0 or nbytes <= 0 or start + nbytes > storage.nbytes():
        raise ValueError(f"bytes {start}..{start + nbytes} of a storage of {storage.nbytes()}")
    if storage.device.type != "cpu":
        return DeviceBytes(storage, start, nbytes)
    block = (ctypes.c_ubyte * nbytes).from_address(storage.data_ptr() + start)
    block._owner = storage  # type: ignore[attr-defined] # noqa: SLF001 - keeps the memory alive
    return memoryview(block).cast("B")


def rebuild(
    storages: Sequence[Storage],
    views: Mapping[int, View],
    pieces: Iterable[Piece],
    device_map: Mapping[str, str] | None = None,
    allocator: Callable[[Storage, torch.device], torch.UntypedStorage] | None = None,
    given: Mapping[int, torch.UntypedStorage] | None = None,
) -> dict[int, torch.Tensor]:
    """Return the tensors of these views, by number, on memory laid out as it was recorded.

    Views of one storage share memory, at the recorded alignment; the allocation ends where the
    storage ended; bytes that no piece holds are 0xFF. Storages that are ``given``, by number, are
    taken with what they hold.
    """
    import torch

    devices = device_map or {}
    _check_room(storages[number] for number in {view.storage for view in views.values()})
    used = {view.storage for view in views.values()}
    memory = {number: found for number, found in (given or {}).items() if number in used}
    fresh = used - memory.keys()
    for number in sorted(fresh):
        storage = storages[number]
        device = torch.device(devices.get(storage.device, storage.device))
        try:
            memory[number] = (allocator or allocate)(storage, device)
        except (MemoryError, RuntimeError) as error:
            problem = f"{storage.nbytes} bytes on {device} cannot be had: {error}"
            raise NotReplayableError("the recorded memory", [problem]) from error
        _fill(memory[number], 0, None)
    for piece in pieces:
        if piece.storage in fresh:
            _fill(memory[piece.storage], piece.start, piece.data)
    try:
        return {number: _tensor(view, memory[view.storage]) for number, view in views.items()}
    except RuntimeError as error:
        problem = f"a recorded view cannot be made: {str(error).splitlines()[0]}"
        raise NotReplayableError("the recorded memory", [problem]) from error


def allocate(storage: Storage, device: torch.device) -> torch.UntypedStorage:
    """Return new memory of a storage's exact size, at its alignment modulo 512 bytes."""
    import torch

    if device.type == "meta" or storage.nbytes == 0:
        return torch.empty(storage.nbytes, dtype=torch.uint8, device=device).untyped_storage()
    pad = storage.address % _ALIGNMENT
    if device.type == "cpu":
        return _allocate_host(pad, storage.nbytes)
    block = torch.empty(pad + storage.nbytes, dtype=torch.uint8, device=device)
    if block.data_ptr() % _ALIGNMENT or not pad:
        return block.untyped_storage()
    exact = torch.as_tensor(_Inside(block, pad, storage.nbytes), device=device)
    return exact.untyped_storage()


def _check_room(storages: Iterable[Storage]) -> None:
    """Refuse more host memory than there is: Linux promises it, and kills who uses it."""
    wanted = sum(storage.nbytes for storage in storages if storage.device == "cpu")
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if wanted > there:
        problem = f"its storages take {wanted} bytes, this machine has {there}"
        raise NotReplayableError("the recorded memory", [problem])


class _Inside:
    """A part of a CUDA tensor, shown to torch as an allocation of its own."""

    def __init__(self, block: torch.Tensor, start: int, nbytes: int) -> None:
        self._block = block
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (block.data_ptr() + start, False),
            "version": 2,
        }


def _allocate_host(pad: int, nbytes: int) -> torch.UntypedStorage:
    """Return host memory whose last byte is the last of its heap block.

    torch's own allocator rounds up; here a sanitizer sees a read of a single byte too many.
    """
    import torch

    libc = ctypes.CDLL(None)
    base = ctypes.c_void_p()
    if libc.posix_memalign(
        ctypes.byref(base), ctypes.c_size_t(_ALIGNMENT), ctypes.c_size_t(pad + nbytes)
    ):
        raise MemoryError(f"posix_memalign of {pad + nbytes} bytes")
    address = base.value or 0
    ctypes.memset(address, _POISON, pad)
    # In a process under AddressSanitizer a read before the storage is then an error as well.
    forbid = getattr(libc, "__asan_poison_memory_region", None)
    if forbid is not None and pad:
        forbid(ctypes.c_void_p(address), ctypes.c_size_t(pad))
    block = (ctypes.c_ubyte * nbytes).from_address(address + pad)
    # torch holds the block as long as the storage lives; tensors may outlive the interpreter.
    weakref.finalize(block, libc.free, base).atexit = False
    return torch.frombuffer(block, dtype=torch.uint8).untyped_storage()


def _fill(memory: torch.UntypedStorage, start: int, data: torch.Tensor | None) -> None:
    import torch

    if memory.device.type == "meta":
        return
    nbytes = memory.nbytes() if data is None else data.numel()
    part = torch.empty(0, dtype=torch.uint8, device=memory.device)
    part.set_(memory, start, (nbytes,), (1,))
    if data is None:
        part.fill_(_POISON)
    else:
        part.copy_(data)


def _tensor(view: View, memory: torch.UntypedStorage) -> torch.Tensor:
    import torch

    dtype = torch_constant(view.dtype, torch.dtype)
    if not isinstance(dtype, torch.dtype) or dtype.itemsize != view.itemsize:
        problem = f"{view.path}: torch {torch.__version__} has no {view.itemsize}-byte {view.dtype}"
        raise NotReplayableError("the recorded memory", [problem])
    with torch.inference_mode(mode=view.inference), warnings.catch_warnings():
        # torch warns of complex32 each time one is made; the recorded program was told already.
        warnings.simplefilter("ignore", UserWarning)
        tensor = torch.empty(0, dtype=dtype, device=memory.device)
        tensor.set_(memory, view.offset, view.shape, view.stride)
        if view.conj:
            tensor = tensor.conj()
        if view.neg:
            tensor = torch._neg_view(tensor)  # noqa: SLF001 - there is no public way
        if view.parameter:
            return torch.nn.Parameter(tensor, requires_grad=view.requires_grad)
        return tensor.requires_grad_() if view.requires_grad else tensor

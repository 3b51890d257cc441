"""The CUDA driver's virtual memory calls."""

from __future__ import annotations

import ctypes
from typing import Any

from kernlib.errors import FenceError

__all__ = ["AccessDesc", "AllocationProp", "Driver", "Location"]

_LIBRARY = "libcuda.so.1"
_PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
_ON_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
_MINIMUM = 0  # CU_MEM_ALLOC_GRANULARITY_MINIMUM


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Flags(ctypes.Structure):
    _fields_ = (
        ("compression_type", ctypes.c_ubyte),
        ("gpu_direct_rdma_capable", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class AllocationProp(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("requested_handle_types", ctypes.c_int),
        ("location", Location),
        ("win32_handle_meta_data", ctypes.c_void_p),
        ("flags", _Flags),
    )


class AccessDesc(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


_POINTER = ctypes.c_ulonglong  # CUdeviceptr and CUmemGenericAllocationHandle
_SIZE = ctypes.c_size_t
_FLAGS = ctypes.c_ulonglong
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuGetErrorName": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
    "cuMemGetAllocationGranularity": (
        ctypes.POINTER(_SIZE), ctypes.POINTER(AllocationProp), ctypes.c_int,
    ),
    "cuMemAddressReserve": (ctypes.POINTER(_POINTER), _SIZE, _SIZE, _POINTER, _FLAGS),
    "cuMemAddressFree": (_POINTER, _SIZE),
    "cuMemCreate": (ctypes.POINTER(_POINTER), _SIZE, ctypes.POINTER(AllocationProp), _FLAGS),
    "cuMemRelease": (_POINTER,),
    "cuMemMap": (_POINTER, _SIZE, _SIZE, _POINTER, _FLAGS),
    "cuMemUnmap": (_POINTER, _SIZE),
    "cuMemSetAccess": (_POINTER, _SIZE, ctypes.POINTER(AccessDesc), _SIZE),
}  # fmt: skip


class Driver:
    """The calls, each with its error as an exception.

    Raises FenceError where the driver or one of the calls is missing.
    """

    def __init__(self, library: Any = None) -> None:  # noqa: ANN401 - a loaded library, or one like it
        try:
            found = ctypes.CDLL(_LIBRARY) if library is None else library
            self._calls = {name: getattr(found, name) for name in _SIGNATURES}
        except (OSError, AttributeError) as error:
            raise FenceError(_LIBRARY, str(error)) from error
        for name, function in self._calls.items():
            function.argtypes, function.restype = _SIGNATURES[name], ctypes.c_int
        self._do("cuInit", 0)

    def _do(self, name: str, *arguments: object) -> None:
        if code := self._calls[name](*arguments):
            text = ctypes.c_char_p()
            self._calls["cuGetErrorName"](code, ctypes.byref(text))
            raise FenceError(name, (text.value or b"an unknown error").decode())

    def granule(self, device: int) -> int:
        """Return the bytes that a mapping is a multiple of."""
        size = _SIZE()
        prop = _prop(device)
        self._do("cuMemGetAllocationGranularity", ctypes.byref(size), ctypes.byref(prop), _MINIMUM)
        return size.value

    def reserve(self, nbytes: int, alignment: int) -> int:
        """Return the first of so many addresses, which nothing is mapped at."""
        pointer = _POINTER()
        self._do("cuMemAddressReserve", ctypes.byref(pointer), nbytes, alignment, 0, 0)
        return pointer.value

    def free(self, pointer: int, nbytes: int) -> None:
        """Give reserved addresses back."""
        self._do("cuMemAddressFree", pointer, nbytes)

    def map(self, pointer: int, nbytes: int, device: int) -> None:
        """Map new memory of a device at reserved addresses; it lives until it is unmapped."""
        handle = _POINTER()
        prop = _prop(device)
        self._do("cuMemCreate", ctypes.byref(handle), nbytes, ctypes.byref(prop), 0)
        try:
            self._do("cuMemMap", pointer, nbytes, 0, handle, 0)
        finally:
            self._do("cuMemRelease", handle)

    def allow(self, pointer: int, nbytes: int, device: int) -> None:
        """Let a device read and write mapped memory."""
        access = AccessDesc(Location(_ON_DEVICE, device), _READ_WRITE)
        self._do("cuMemSetAccess", pointer, nbytes, ctypes.byref(access), 1)

    def unmap(self, pointer: int, nbytes: int) -> None:
        """Take memory away from its addresses and give it back."""
        self._do("cuMemUnmap", pointer, nbytes)


def _prop(device: int) -> AllocationProp:
    return AllocationProp(type=_PINNED, location=Location(_ON_DEVICE, device))

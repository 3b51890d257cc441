"""Loads and launches objects through the CUDA driver."""

from __future__ import annotations

import ctypes
import threading
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from kernlib.errors import LaunchError, LoadError, ToolchainError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import torch

__all__ = ["KernelRow", "Listing", "TritonFunction", "TritonModule"]

_LIBRARY = "libcuda.so.1"
_POINTER, _INT, _UINT = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint
#: The driver's functions with the types of their parameters, CUDA driver API.
_FUNCTIONS: dict[str, tuple[type, ...]] = {
    "cuInit": (_UINT,),
    "cuDeviceGet": (_POINTER, _INT),
    "cuDevicePrimaryCtxRetain": (_POINTER, _INT),
    "cuCtxPushCurrent_v2": (_POINTER,),
    "cuCtxPopCurrent_v2": (_POINTER,),
    "cuThreadExchangeStreamCaptureMode": (_POINTER,),
    "cuModuleLoadData": (_POINTER, ctypes.c_char_p),
    "cuModuleGetFunction": (_POINTER, _POINTER, ctypes.c_char_p),
    "cuFuncSetAttribute": (_POINTER, _INT, _INT),
    "cuGetErrorString": (_INT, _POINTER),
    "cuLaunchKernel": (_POINTER, *(_UINT,) * 7, _POINTER, _POINTER, _POINTER),
}
_DYNAMIC_SHARED_SIZE = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_SHARED_UNASKED = 48 << 10  # bytes of shared memory a kernel has without asking for more
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_INTEGERS = {"i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}


class KernelRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One object: its file, its kernel and what launching it takes."""

    object: str
    size: int
    sha256: str
    symbol: str
    parameters: tuple[str, ...]
    scratch: int
    threads: int
    shared: int


class Listing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands in the JSON beside the objects: the kernels by the name they are called by."""

    schema_version: int
    kernels: dict[str, KernelRow]


class _Driver:
    """The CUDA driver of this machine and the primary contexts of its devices."""

    def __init__(self, library: str) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise ToolchainError(library, str(error), "Install the NVIDIA driver") from None
        for name, types in _FUNCTIONS.items():
            getattr(self._library, name).argtypes = types
        self._contexts: dict[int, int] = {}

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of the driver; raises _DriverError if it does not succeed."""
        if code := getattr(self._library, name)(*arguments):
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(code, ctypes.byref(text))
            raise _DriverError(code, (text.value or b"unknown error").decode(errors="replace"))

    @contextmanager
    def on(self, index: int) -> Iterator[None]:
        """Make the primary context of a device, which torch uses, current in this thread."""
        if (context := self._contexts.get(index)) is None:
            device, found = ctypes.c_int(), ctypes.c_void_p()
            self.call("cuInit", 0)
            self.call("cuDeviceGet", ctypes.byref(device), index)
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(found), device)
            context = self._contexts[index] = found.value or 0
        self.call("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            self._library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def function(self, image: bytes, row: KernelRow) -> int:
        """Load an object into the current context and return its kernel.

        Loading may allocate, which a stream that is captured forbids in its strict mode.
        """
        module, function, mode = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int(_RELAXED)
        self.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            self.call("cuModuleLoadData", ctypes.byref(module), image)
            self.call("cuModuleGetFunction", ctypes.byref(function), module, row.symbol.encode())
            if row.shared > _SHARED_UNASKED:
                self.call("cuFuncSetAttribute", function, _DYNAMIC_SHARED_SIZE, row.shared)
        finally:
            self._library.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        return function.value or 0


class _DriverError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


@cache
def _driver(library: str) -> _Driver:
    return _Driver(library)


class TritonFunction:
    """A kernel that can be launched on every device; loaded where it is first launched."""

    def __init__(self, name: str, row: KernelRow, path: Path) -> None:
        self._name = name
        self._row = row
        self._path = path
        self._lock = threading.Lock()
        self._loaded: dict[int, int] = {}

    def __call__(self, device: torch.device, grid: tuple[int, int], *arguments: int) -> None:
        """Launch on torch's current stream of a device, with that device current.

        ``arguments`` are addresses and integers, one a parameter of the kernel.

        Raises LaunchError with what the driver says, LoadError for an object it does not take.
        """
        import torch

        index = torch.cuda.current_device() if device.index is None else device.index
        stream = torch.cuda.current_stream(device).cuda_stream
        self.launch(_driver(_LIBRARY), (index, stream), grid, arguments)

    def launch(
        self,
        driver: _Driver,
        place: tuple[int, int],
        grid: tuple[int, int],
        arguments: tuple[int, ...],
    ) -> None:
        """Launch on a place: the number of a device and the address of a stream of it."""
        index, stream = place
        row = self._row
        if len(arguments) != len(row.parameters):
            raise TypeError(
                f"{self._name} takes {len(row.parameters)} arguments, {len(arguments)} were given"
            )
        # Each parameter lies in eight bytes of its own; a narrower integer is their first part.
        count = len(arguments) + row.scratch
        values = (ctypes.c_int64 * count)(*arguments)
        begin = ctypes.addressof(values)
        pointers = (ctypes.c_void_p * count)(*range(begin, begin + 8 * count, 8))
        sizes = (grid[0], grid[1], 1, row.threads, 1, 1, row.shared)
        try:
            with driver.on(index):
                function = self._loaded.get(index) or self._load(driver, index)
                driver.call("cuLaunchKernel", function, *sizes, stream, pointers, None)
        except _DriverError as error:
            device = f"cuda:{index}"
            raise LaunchError(self._name, device, error.text, error.code) from None

    def _load(self, driver: _Driver, index: int) -> int:
        with self._lock:
            if (known := self._loaded.get(index)) is not None:
                return known
            try:
                function = driver.function(self._path.read_bytes(), self._row)
            except (OSError, _DriverError) as error:
                text = (
                    f"{error.text} (error {error.code})"
                    if isinstance(error, _DriverError)
                    else str(error)
                )
                raise LoadError(self._path, text) from None
            self._loaded[index] = function
            return function


class TritonModule:
    """The kernels of a folder; each is an attribute."""

    def __init__(self, folder: Path, listing: Listing) -> None:
        for name, row in listing.kernels.items():
            if unknown := [kind for kind in row.parameters if not _launchable(kind)]:
                raise LoadError(folder, f"{name} has a parameter of type {unknown[0]}")
            setattr(self, name, TritonFunction(name, row, folder / row.object))


def _launchable(kind: str) -> bool:
    return kind.startswith("*") or kind in _INTEGERS

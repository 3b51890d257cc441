"""Statistics by the kernel, or else by Python."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

from kernlib._background import BackgroundKernel
from kernlib._statistics._device import slots_of
from kernlib._statistics._records import as_dict, record_of, taken
from kernlib._statistics._spec import statistics_choice

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from kernlib._statistics._device import Awaited
    from kernlib._statistics._records import Statistics
    from kernlib.config import Config

__all__ = ["FusedStatistics"]

_WIDEST_VECTOR = 64
#: What the kernel or the exchange of a tensor refuses, such as an element at an odd address.
_REFUSED = (RuntimeError, BufferError, TypeError, ValueError, NotImplementedError)


class FusedStatistics:
    """Statistics by the kernel where it is loaded and takes the tensor, else by Python.

    Nothing waits: the first tensor of a device starts a thread that loads the kernel, or builds
    it. Of a tensor on the CPU the numbers are returned; of one on a CUDA device something that
    has them later, once the device got there in the order of the current stream.
    """

    def __init__(self, config: Config, in_python: Callable[[torch.Tensor], Statistics]) -> None:
        self.kernel = BackgroundKernel(statistics_choice("cpu", "cpu"), config)
        self._config = config
        self._in_python = in_python
        self._function: Callable[..., None] | None = None
        self._on_devices: dict[int, Callable[..., None]] = {}
        self._kernels: dict[str, BackgroundKernel] = {}

    def __call__(self, tensor: torch.Tensor) -> Statistics | Awaited:
        """Return what ``kernlib.logging.statistics`` does of a tensor, or what awaits that."""
        if tensor.is_cpu:
            function = self._function or self._loaded()
            return (function and _fused(function, tensor)) or self._in_python(tensor)
        if tensor.is_cuda:
            launch = self._on_devices.get(tensor.get_device()) or self._loaded_on(tensor.device)
            return (launch and self._launched(launch, tensor)) or self._in_python(tensor)
        return self._in_python(tensor)

    def kernel_on(self, device: torch.device) -> BackgroundKernel:
        """Return the kernel for a CUDA device; for benchmarks and tests, which wait for it."""
        from kernlib import jit

        target = jit.target_of(device)
        if target not in self._kernels:
            choice = statistics_choice("cuda", target)
            self._kernels[target] = BackgroundKernel(choice, self._config)
        return self._kernels[target]

    def _loaded(self) -> Callable[..., None] | None:
        if (kernel := self.kernel.get()) is not None:
            self._function = kernel.function("statistics")
        return self._function

    def _loaded_on(self, device: torch.device) -> Callable[..., None] | None:
        if (kernel := self.kernel_on(device).get()) is None:
            return None
        function = self._on_devices[device.index] = kernel.function("statistics")
        return function

    def _launched(self, launch: Callable[..., None], tensor: torch.Tensor) -> Statistics | Awaited:
        plain = taken(tensor)
        if plain is None:
            return ""
        awaited = slots_of(os.getpid()).take(plain.dtype)
        if awaited is None:
            return "not taken: the device has yet to get to those of earlier calls"
        try:
            launch(plain, awaited.address, awaited.ticket, awaited.slot, 1, 0)
        except _REFUSED:
            awaited.give_back()
            return ""
        return awaited


def _fused(function: Callable[..., None], tensor: torch.Tensor) -> Statistics | None:
    """Return the statistics of a tensor in the host's memory; None if it is none for the kernel."""
    import torch

    plain = taken(tensor)
    if plain is None:
        return None
    record = record_of(plain.dtype)()
    address = ctypes.c_void_p(ctypes.addressof(record))
    try:
        function(plain, address, 0, 0, torch.get_num_threads(), _WIDEST_VECTOR)
    except _REFUSED:
        return None
    return as_dict(record)

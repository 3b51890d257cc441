"""Device memory between addresses that nothing is mapped at."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from kernlib.errors import FenceError
from kernlib.fence._driver import Driver

if TYPE_CHECKING:
    import torch

    from kernlib.fence._layout import Layout

__all__ = ["DevicePages"]


class DevicePages:
    """Maps memory of one CUDA device, in whole granules.

    Raises FenceError where the driver is missing or refuses.
    """

    #: What cudaMalloc promises; libraries look at no more when they choose a kernel.
    alignment = 256

    def __init__(self, device: int, driver: Driver | None = None) -> None:
        self._device = device
        self._driver = driver or _driver_for(device)
        self.granule = self._driver.granule(device)

    def map(self, layout: Layout) -> int:
        """Return the address of the first mapped byte.

        Raises FenceError if the driver refuses; then nothing stays behind.
        """
        driver, size = self._driver, layout.mapped
        with ExitStack() as undo:
            reserved = driver.reserve(layout.reserved, self.granule)
            undo.callback(driver.free, reserved, layout.reserved)
            first = reserved + layout.guard
            driver.map(first, size, self._device)
            undo.callback(driver.unmap, first, size)
            driver.allow(first, size, self._device)
            undo.pop_all()
        return first

    def unmap(self, first: int, layout: Layout) -> None:
        """Give back memory and addresses; nothing may run on them any more."""
        self._driver.unmap(first, layout.mapped)
        self._driver.free(first - layout.guard, layout.reserved)

    def wait(self) -> None:
        """Wait until everything that was launched on the device has ended."""
        import torch

        torch.cuda.synchronize(self._device)

    def tensor(self, address: int, nbytes: int) -> tuple[torch.Tensor, object]:
        """Return mapped bytes as a storage of their own, and what lives as long as that does.

        Raises FenceError if torch makes a copy of them instead.
        """
        import torch

        shown = _Shown(address, nbytes)
        tensor = torch.as_tensor(shown, device=torch.device("cuda", self._device))
        if tensor.data_ptr() != address:
            raise FenceError("torch", "it copied the fenced memory instead of using it")
        return tensor, shown


class _Shown:
    """Device memory as torch and others ask for it."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 2,
        }


def _driver_for(device: int) -> Driver:
    """Return the driver after the device's context was made, which the calls need."""
    import torch

    torch.cuda.synchronize(device)
    return Driver()

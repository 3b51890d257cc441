"""Loads a kernel in the background; nobody waits for it."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING

from kernlib.config import Mode
from kernlib.errors import KernlibError

if TYPE_CHECKING:
    from kernlib.config import Config
    from kernlib.jit import Kernel, KernelChoice

__all__ = ["BackgroundKernel"]

_logger = logging.getLogger("kernlib.recorder")


class BackgroundKernel:
    """A kernel of the recorder's own that has a substitute in Python until it is there.

    It is found or built by a thread of its own, always in mode release: what recording does to a
    process does not depend on how the kernels that are watched are built.
    """

    def __init__(self, choice: KernelChoice, config: Config) -> None:
        self._choice = choice
        self._config = config
        self._pid = 0
        self._tried = threading.Event()
        self._kernel: Kernel | None = None

    def get(self) -> Kernel | None:
        """Return the kernel if it is loaded; the first time it is asked for, begin to load it."""
        if self._kernel is None and self._pid != os.getpid():
            # First use, or a forked child, in which the thread that loads it does not exist.
            self._pid, self._tried = os.getpid(), threading.Event()
            name = f"kernlib-{self._choice.spec.name}"
            threading.Thread(target=self._load, name=name, daemon=True).start()
        return self._kernel

    def wait(self, seconds: float | None = None) -> Kernel | None:
        """Return the kernel once it is loaded or cannot be; for benchmarks and tests."""
        self.get()
        self._tried.wait(seconds)
        return self._kernel

    def _load(self) -> None:
        from kernlib import jit

        try:
            artifact = jit.prepare(self._choice, self._config, Mode.RELEASE)
            self._kernel = jit.open_kernel(artifact)
        except KernlibError as error:
            _logger.info("%s: Python does its work: %s", self._choice.spec.uri, error)
        finally:
            self._tried.set()

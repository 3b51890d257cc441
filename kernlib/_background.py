"""Loads a kernel in the background; nobody waits for it."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from kernlib.config import Mode, recording_variables
from kernlib.errors import KernlibError

if TYPE_CHECKING:
    from kernlib.config import Config
    from kernlib.jit import Kernel, KernelChoice

__all__ = ["BackgroundKernel"]

_logger = logging.getLogger("kernlib.recorder")
_NICE = 10


class BackgroundKernel:
    """A kernel of the recorder's own that has a substitute in Python until it is there.

    A thread looks for it. Where it has to be built, a process of its own does that, which goes on
    when this one dies: a program that never lives as long as the compiler finds it at its next
    start. It is always built in mode release: what recording does to a process does not depend on
    how the kernels that are watched are built.
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
            self._kernel = self._found()
            if self._kernel is None and not self._config.jit_disable:
                _build_apart(self._choice, self._config)
                # If that brought nothing, this fails as it did and says why.
                artifact = jit.prepare(self._choice, self._config, Mode.RELEASE)
                self._kernel = jit.open_kernel(artifact)
        except KernlibError as error:
            _logger.info("%s: Python does its work: %s", self._choice.spec.uri, error)
        finally:
            self._tried.set()

    def _found(self) -> Kernel | None:
        """Return what is there already, in the cache or built ahead."""
        from kernlib import jit
        from kernlib.errors import MissingArtifactError, StaleArtifactError

        config = self._config.replace(jit_disable=True)
        with contextlib.suppress(MissingArtifactError, StaleArtifactError):
            return jit.open_kernel(jit.prepare(self._choice, config, Mode.RELEASE))
        return None


def _build_apart(choice: KernelChoice, config: Config) -> None:
    """Build a kernel in a process that outlives this one, and wait for it; it may fail."""
    command = [sys.executable, "-m", "kernlib._commands", "jit", "build", choice.spec.uri]
    command += ["--target", choice.target, "--mode", str(Mode.RELEASE)]
    with contextlib.suppress(OSError, ValueError):  # an embedded interpreter has no program
        child = subprocess.Popen(
            command, env=_environment(config), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.setpriority(os.PRIO_PROCESS, child.pid, _NICE)  # what is watched comes first
        child.wait()


def _environment(config: Config) -> dict[str, str]:
    """Return an environment in which the same kernel is built and nothing is recorded."""
    from kernlib import jit

    environment = {
        name: value
        for name, value in jit.clean_environment().items()
        if not name.startswith("KERNLIB_")
    }
    recording = {row.name for row in recording_variables()}
    settings = {name: value for name, value in config.to_env().items() if name not in recording}
    settings.pop("KERNLIB_CONTROL", None)
    package = str(Path(__file__).resolve().parents[1])
    search = os.pathsep.join(filter(None, (package, environment.get("PYTHONPATH"))))
    return environment | settings | {"PYTHONPATH": search, "PYTHONSAFEPATH": "1"}

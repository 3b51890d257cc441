"""The native recorder's spec, and its functions once loaded."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kernlib import jit
from kernlib._background import BackgroundKernel
from kernlib.logging import NativeRecorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernlib.config import Config

__all__ = ["native_recorder", "recorder_spec"]


@cache
def recorder_spec() -> jit.KernelSpec:
    """Return the spec of the native recorder."""
    return jit.KernelSpec(
        name="recorder",
        backend="cpu",
        root=jit.source_root(),
        sources=("csrc/recorder/binding.cc",),
        targets=("cpu",),
    )


def native_recorder(config: Config) -> Callable[[], NativeRecorder | None]:
    """Return what gives the functions of the native recorder, None until it is loaded."""
    choice = jit.KernelChoice(spec=recorder_spec(), target="cpu", reason="records calls")
    kernel = BackgroundKernel(choice, config)

    def functions() -> NativeRecorder | None:
        loaded = kernel.get()
        if loaded is None:
            return None
        return NativeRecorder(*(loaded.function(name) for name in NativeRecorder._fields))

    return functions

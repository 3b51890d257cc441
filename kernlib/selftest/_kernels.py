"""Which library of planted faults serves a device."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from kernlib import jit
from kernlib.ops._library import choose, library_spec

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from kernlib.jit import KernelChoice, KernelSpec

__all__ = ["call", "kernels_of_call", "selftest_spec"]


@cache
def selftest_spec(backend: str) -> KernelSpec:
    """Return the spec of the library that holds the planted faults.

    It is built where it is asked for and shipped in no package built ahead of time.
    """
    spec = library_spec("selftest", "selftest/selftest", backend)
    return replace(spec, ldflags=("-lpthread",)) if backend == "cpu" else spec


@cache
def _choice(device: torch.device) -> KernelChoice:
    return choose("selftest", selftest_spec, "the first tensor", device)


def kernels_of_call(
    tensor: Tensor, *_operands: object, **_options: object
) -> tuple[KernelChoice, ...]:
    """Return the kernel of a call; the device of its first tensor decides."""
    return (_choice(tensor.device),)


def call(name: str, tensor: Tensor, *operands: object) -> None:
    """Call a function of the library that serves the device of ``tensor``."""
    jit.load(_choice(tensor.device)).function(name)(*operands)

"""Removes capsules; half of one never looks whole."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernlib.dump._reuse import Spares

__all__ = ["remove_capsule", "strip_capsule"]


#: What a process leaves that dies while it completes a capsule.
_HALF_WRITTEN = (".call.json.tmp", ".outputs.safetensors.tmp")


def strip_capsule(folder: str, spares: Spares, *, keeps_inputs: bool) -> None:
    """Take away what a capsule that is written over an old one has not, or not yet."""
    spares.keep(f"{folder}/outputs.safetensors")
    if not keeps_inputs:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{folder}/inputs.safetensors")  # noqa: PTH108 - here and below: pathlib costs


def remove_capsule(folder: str) -> bool:
    """Remove the files of a capsule, ``call.json`` first, and it; return whether it was there.

    Of several processes that remove one capsule, one is told that it did. What cannot be removed
    stays; that is no reason to lose the call that needs room.
    """
    try:
        os.unlink(f"{folder}/call.json")  # noqa: PTH108
    except OSError:
        removed = False
    else:
        removed = True
    for name in ("inputs.safetensors", "outputs.safetensors"):
        with contextlib.suppress(OSError):
            os.unlink(f"{folder}/{name}")  # noqa: PTH108
    try:
        os.rmdir(folder)  # noqa: PTH106
    except OSError:
        for name in _HALF_WRITTEN:
            with contextlib.suppress(OSError):
                os.unlink(f"{folder}/{name}")  # noqa: PTH108
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # noqa: PTH106
    return removed

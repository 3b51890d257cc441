"""Removes capsules; half of one never looks whole."""

from __future__ import annotations

import contextlib
import os

__all__ = ["empty_capsule", "remove_capsule"]


#: What a process leaves that dies while it completes a capsule.
_HALF_WRITTEN = (".call.json.tmp", ".outputs.safetensors.tmp")


def empty_capsule(folder: str) -> bool:
    """Remove the files of a capsule, ``call.json`` first; return whether it was there.

    Of several processes that remove one capsule, one is told that it did. What cannot be removed
    stays; that is no reason to lose the call that needs room.
    """
    try:
        os.unlink(f"{folder}/call.json")  # noqa: PTH108 - here and below: pathlib costs
    except OSError:
        removed = False
    else:
        removed = True
    for name in ("inputs.safetensors", "outputs.safetensors"):
        with contextlib.suppress(OSError):
            os.unlink(f"{folder}/{name}")  # noqa: PTH108
    return removed


def remove_capsule(folder: str) -> bool:
    """Remove a capsule, as ``empty_capsule`` does, and its folder."""
    removed = empty_capsule(folder)
    try:
        os.rmdir(folder)  # noqa: PTH106
    except OSError:
        for name in _HALF_WRITTEN:
            with contextlib.suppress(OSError):
                os.unlink(f"{folder}/{name}")  # noqa: PTH108
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # noqa: PTH106
    return removed

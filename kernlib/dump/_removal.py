"""Removes capsules; half of one never looks whole."""

from __future__ import annotations

import contextlib
import os

__all__ = ["empty_capsule", "remove_capsule"]


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
    with contextlib.suppress(OSError):
        os.rmdir(folder)  # noqa: PTH106
    return removed

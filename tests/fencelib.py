"""An api that overruns memory of its own; it stands for a package that the user imports."""

from __future__ import annotations

import ctypes

import torch

from kernlib import kernel_api

__all__ = ["spill"]


@kernel_api
def spill(x, nbytes, start=0):
    """Return a tensor like ``x`` after writing ``nbytes`` zeros from byte ``start`` of it on."""
    out = torch.empty_like(x)  # FAULT is overrun
    ctypes.memset(out.data_ptr() + start, 0, nbytes)
    return out

"""Apis that build nothing."""

from __future__ import annotations

import time

from kernlib import kernel_api

__all__ = ["add_up", "pause", "row_means"]


@kernel_api
def row_means(x, observer=None):
    """Return the mean of every row, and show it to ``observer``, any object with ``see``."""
    means = x.mean(-1)
    if observer is not None:
        observer.see(means)
    return means


@kernel_api(workspaces=("total",))
def add_up(x, total):
    """Add the sum of ``x`` to ``total``, a workspace that ought to be zero, and return it."""
    total += x.sum()
    return total.clone()


@kernel_api
def pause(x, seconds):
    """Return ``x`` after some seconds: a call that hangs."""
    time.sleep(seconds)
    return x

"""Runs recorded calls on streams like those they ran on."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import torch

    from kernlib.dump import Call

__all__ = ["Streams"]

#: The handles of CUDA's own streams: the default one, and those that threads have.
_DEFAULT = {None, 0, 1, 2}


class Streams:
    """One stream for each that was recorded; calls that shared one share one again."""

    def __init__(self) -> None:
        self._streams: dict[tuple[str, int], torch.cuda.Stream] = {}

    def of(self, call: Call, devices: dict[str, str]) -> AbstractContextManager[object]:
        """Return a context in which a call runs on its stream, after all that was done before.

        ``devices`` are recorded devices and those they are here. A call that ran on the default
        stream, or that does not run on CUDA here, runs where it would anyway.
        """
        here = devices.get(call.device or "", call.device or "cpu")
        if call.stream is None or call.stream in _DEFAULT or not here.startswith("cuda"):
            return nullcontext()
        import torch

        torch.cuda.synchronize(here)  # the arguments were written on another stream
        key = (here, call.stream)
        if key not in self._streams:
            self._streams[key] = torch.cuda.Stream(here)  # type: ignore[no-untyped-call]
        return torch.cuda.stream(self._streams[key])

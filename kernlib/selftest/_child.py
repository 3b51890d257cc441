"""The child process that makes the recorded calls.

Started as ``python -m kernlib.selftest._child FAULT VARIANT DEVICE`` with recording on; it dies or
returns as the fault has it. The call that sets the fault off is the process's call 2, in a worker
the worker's.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import threading
from typing import TYPE_CHECKING

import kernlib.selftest
from kernlib.selftest._cases import case_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernlib.selftest._cases import Arguments

__all__ = ["VARIANTS", "main"]


def _call(fault: str, arguments: Arguments) -> None:
    api: Callable[..., object] = getattr(kernlib.selftest, f"selftest_{fault}")
    api(*arguments.args, **arguments.kwargs)


def _eager(fault: str, device: str) -> None:
    case = case_of(fault, device)
    _call(fault, case.sound)
    _call(fault, case.planted)
    _wait(device)


def _thread(fault: str, device: str) -> None:
    """Make the calls in a thread while the main thread waits for it."""
    worker = threading.Thread(target=_eager, args=(fault, device))
    worker.start()
    worker.join()


def _streams(fault: str, device: str) -> None:
    """Make the sound call on one stream and the other one on a second stream."""
    import torch

    case = case_of(fault, device)
    _wait(device)
    for arguments in (case.sound, case.planted):
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            _call(fault, arguments)
    _wait(device)


def _graph(fault: str, device: str) -> None:
    """Warm up, capture the call in a CUDA graph, and run the graph.

    Nothing can be read while a graph is captured, so the call that warms up is the one that can
    be replayed.
    """
    import torch

    case = case_of(fault, device)
    _call(fault, case.sound)
    _call(fault, case.planted)
    _wait(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _call(fault, case.planted)
    graph.replay()
    _wait(device)


def _worker(fault: str, device: str) -> None:
    """Make the calls in a spawned process, after a sound call in this one."""
    _call(fault, case_of(fault, device).sound)
    worker = multiprocessing.get_context("spawn").Process(target=_eager, args=(fault, device))
    worker.start()
    worker.join()
    sys.exit(1 if worker.exitcode else 0)


def _wait(device: str) -> None:
    if device != "cpu":
        import torch

        torch.cuda.synchronize()


VARIANTS: dict[str, Callable[[str, str], None]] = {
    "eager": _eager,
    "graph": _graph,
    "streams": _streams,
    "thread": _thread,
    "worker": _worker,
}


def main(fault: str, variant: str, device: str) -> None:
    """Make the calls of a fault in one way, on ``cpu`` or ``cuda:0``."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it is meant to die: nobody needs its core
    VARIANTS[variant](fault, device)


if __name__ == "__main__":
    main(*sys.argv[1:])

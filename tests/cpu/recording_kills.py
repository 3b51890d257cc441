"""Forks children that record without end, and kills each at a random moment.

Started with the number of children and how many of them share a working directory, which is a
folder of the present one. Writes one JSON line for each child: its pid, and where it was.
"""

import json
import mmap
import operator
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from kernlib import PagedDecode, _builds, jit, kernel_api, rms_norm
from kernlib._native_recorder import recorder_spec
from kernlib._statistics import statistics_spec
from kernlib.config import Mode
from kernlib.ops import _norm, _paged_decode

BEFORE, INSIDE, DONE, AFTER = range(4)
STATES = 4  # the mark is one number, stored at once: a kill leaves the former or the new one
WARM = 2
LONGEST = 0.015


def record_for_ever(mark):
    decode = PagedDecode(4, 2, 64, 16)
    lists = [[0, 2, 4], [0, 1, 2, 3], [16, 3]]
    decode.plan(*(torch.tensor(values, dtype=torch.int32) for values in lists))
    cache = torch.rand(4, 2, 2, 16, 64)

    @kernel_api(kernels=_norm.norm_kernels)
    def marked(x, at):
        mark(INSIDE, at)
        rms_norm(x, torch.ones(64))
        decode.run(x, cache)
        mark(DONE, at)
        return x

    at = 0
    while True:
        mark(BEFORE, at)
        marked(torch.rand(2, 4, 64), at)
        mark(AFTER, at)
        at += 1


def kill_one(memory, folder):
    """Fork, wait until the child is at work, kill it; return its pid and its last mark."""
    memory[0] = -STATES
    folder.mkdir(exist_ok=True)
    pid = os.fork()
    if pid == 0:
        os.chdir(folder)
        record_for_ever(lambda state, at: operator.setitem(memory, 0, at * STATES + state))
    deadline = time.monotonic() + 60
    while memory[0] < WARM * STATES:
        if os.waitpid(pid, os.WNOHANG)[0] or time.monotonic() > deadline:
            sys.exit(f"child {pid} did not get to work")
        time.sleep(0.001)
    time.sleep(random.uniform(0, LONGEST))  # noqa: S311 - nothing secret
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    at, state = divmod(memory[0], STATES)
    return {"pid": pid, "status": status, "state": state, "at": at}


def main():
    """Make everything ready that the children would each do again, then fork them."""
    count, share = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    for choice in (
        *_norm.norm_kernels(torch.ones(1)),
        *_paged_decode.run_kernels(_Decode(), torch.ones(1)),
    ):
        jit.load(choice)
        _builds._capture(choice)
    for spec in (statistics_spec(), recorder_spec()):  # or every child begins to build them anew
        jit.prepare(jit.KernelChoice(spec=spec, target="cpu", reason="kills"), mode=Mode.RELEASE)
    with mmap.mmap(-1, mmap.PAGESIZE) as shared, memoryview(shared).cast("q") as memory:
        for at in range(count):
            end = kill_one(memory, Path(str(at // share)))
            print(json.dumps(end), flush=True)  # noqa: T201 - its output


class _Decode:
    head_dim = 64


if __name__ == "__main__":
    main()

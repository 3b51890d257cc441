"""Forks children that record without end, and kills each at a random moment.

Started with the number of children; writes one JSON line for each: its pid, and where it was.
"""

import json
import mmap
import os
import random
import signal
import struct
import sys
import time

import torch

from kernlib import PagedDecode, _builds, jit, kernel_api, rms_norm
from kernlib.ops import _norm, _paged_decode

BEFORE, INSIDE, DONE, AFTER = range(4)
WARM = 2
LONGEST = 0.05
MARK = struct.Struct("=qq")


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


def kill_one(memory):
    """Fork, wait until the child is at work, kill it; return its pid and its last mark."""
    MARK.pack_into(memory, 0, BEFORE, -1)
    pid = os.fork()
    if pid == 0:
        record_for_ever(lambda state, at: MARK.pack_into(memory, 0, state, at))
    deadline = time.monotonic() + 60
    while MARK.unpack_from(memory)[1] < WARM:
        if os.waitpid(pid, os.WNOHANG)[0] or time.monotonic() > deadline:
            sys.exit(f"child {pid} did not get to work")
        time.sleep(0.001)
    time.sleep(random.uniform(0, LONGEST))  # noqa: S311 - nothing secret
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    state, at = MARK.unpack_from(memory)
    return {"pid": pid, "status": status, "state": state, "at": at}


def main():
    """Make everything ready that the children would each do again, then fork them."""
    torch.set_num_threads(1)
    for choice in (
        *_norm.norm_kernels(torch.ones(1)),
        *_paged_decode.run_kernels(_Decode(), torch.ones(1)),
    ):
        jit.load(choice)
        _builds._capture(choice)
    with mmap.mmap(-1, MARK.size) as memory:
        for _ in range(int(sys.argv[1])):
            print(json.dumps(kill_one(memory)), flush=True)  # noqa: T201 - its output


class _Decode:
    head_dim = 64


if __name__ == "__main__":
    main()

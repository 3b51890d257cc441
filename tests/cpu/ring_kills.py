"""Forks children that record into rings without end, and kills each at a random moment.

Started with a folder and a number of children. Every other child records natively, the others in
Python. Says at the end how many were whole; stops at the first ring that is not.
"""

import mmap
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from native_samples import native_functions

from kernlib import ring
from kernlib._registry import Api
from kernlib.config import Config, Level
from kernlib.logging import Recorder, RingSink, recorded

LONGEST = 0.03


def step_once(x, number):
    del number
    return x


def record_for_ever(folder, native, memory):
    """Record calls; the mark is the number of the last one that has returned."""
    config = Config(
        log_level=Level.ARGS, log_format="ring", log_dest=str(folder / "%p.ring"),
        ring_bytes=ring.SMALLEST_RING,
    )  # fmt: skip
    sink = RingSink(config, dict, lambda: native)
    step = recorded(step_once, Api("step", step_once), Recorder([sink]))
    x, number = torch.zeros(4, 8), 0
    while True:
        step(x, number)
        number += 1
        memory[0] = number  # one store: a kill leaves the former number or this one


def kill_one(folder, native, memory):
    """Fork, wait until the child is at work, kill it; return its pid and its last mark."""
    memory[0] = 0
    pid = os.fork()
    if pid == 0:
        record_for_ever(folder, native, memory)
    while not memory[0]:
        time.sleep(0.0002)
    time.sleep(random.uniform(0, LONGEST))  # noqa: S311 - a moment, no secret
    os.kill(pid, signal.SIGKILL)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    return pid, memory[0]


def check(path, done):
    """Every record before the last is there; the last call is the one after ``done`` calls."""
    found = ring.read_ring(path)
    assert (found.problems, found.damaged) == ((), 0), found
    ordinals = [record.ordinal for record in found.records]
    assert ordinals == list(range(found.overwritten, found.overwritten + len(ordinals)))
    # Two records a call: those of `done` calls, and up to two of the call that was under way.
    assert 2 * done <= ordinals[-1] + 1 + found.torn <= 2 * done + 2, (done, ordinals[-1])
    for record in found.records:
        assert record.call == record.ordinal // 2 + 1, record
        assert len(record.values) == (2 if record.kind is ring.Kind.CALL else 1), record
    running = found.unfinished()
    assert len(running) <= 1, running
    return bool(running)


def main():
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    native = native_functions()
    memory = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("q")
    running = 0
    for at in range(count):
        pid, done = kill_one(folder, native if at % 2 else None, memory)
        path = folder / f"{pid}.ring"
        running += check(path, done)
        path.unlink()
    sys.stdout.write(f"{count} rings whole, {running} with a call under way\n")


if __name__ == "__main__":
    main()

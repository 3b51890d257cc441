"""A process that has started CUDA forks; parent and child go on recording, each on its own."""

import os
import subprocess
import sys

import pytest
from fork_server import QUIET
from recording_samples import check_whole

from kernlib import dump

pytestmark = pytest.mark.requires("cuda", "nvcc", "gxx")

#: In the child CUDA cannot be used, and nothing of the recording may try to.
FORKS = """
import os, signal, torch
from kernlib import kernel_api, rms_norm

def norm(rows, device):
    rms_norm(torch.ones(rows, 64, device=device), torch.ones(64, device=device))

def fork_here():
    pid = os.fork()
    if pid == 0:
        signal.alarm(200)
        norm(2, "cpu")
        norm(3, "cpu")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0

@kernel_api
def fork_inside(x):
    fork_here()
    return x + 1

norm(4, "cuda")
fork_here()
assert fork_inside(torch.ones(5, device="cuda")).sum().item() == 10
norm(6, "cuda")
torch.cuda.synchronize()
"""


@pytest.mark.parametrize("sync", ["0", "1"])
def test_a_child_forked_after_cuda_was_started_records_what_it_runs_on_the_cpu(tmp_path, sync):
    variables = {
        "KERNLIB_LOG_LEVEL": "dump",
        "KERNLIB_LOG_DEST": str(tmp_path / "%p.log"),
        "KERNLIB_DUMP_DIR": str(tmp_path / "dumps"),
        "KERNLIB_SYNC": sync,
    }
    done = subprocess.run(
        [sys.executable, "-c", FORKS], env=os.environ | QUIET | variables,
        capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    found = {}
    for entry in dump.list_sessions(tmp_path / "dumps"):
        calls, problems = check_whole(entry.path)
        assert problems == []
        key = bool(entry.session.process.devices)
        states = [(c.api, c.status, c.device, c.views[0].shape[0]) for c in calls.values()]
        found.setdefault(key, []).append(states)
    child = [("rms_norm", "returned", "cpu", 2), ("rms_norm", "returned", "cpu", 3)]
    assert found[False] == [child] * 2, "the children say nothing of devices"
    assert found[True] == [
        [
            ("rms_norm", "returned", "cuda:0", 4),
            ("fork_inside", "returned", "cuda:0", 5),
            ("rms_norm", "returned", "cuda:0", 6),
        ]
    ]

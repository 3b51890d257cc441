"""Every process records into its own session, whatever it was made by and ends with."""

import os
import subprocess
import sys

import pytest
from fork_server import QUIET
from recording_samples import check_whole

from kernlib import dump

pytestmark = pytest.mark.requires("gxx")


@pytest.fixture
def variables(tmp_path):
    """Return what a process is told to record."""
    return {
        "KERNLIB_LOG_LEVEL": "dump",
        "KERNLIB_LOG_DEST": str(tmp_path / "%p.log"),
        "KERNLIB_DUMP_DIR": str(tmp_path / "dumps"),
    }


@pytest.fixture
def run(server, variables):
    """Return a function that runs a program at level dump and asserts that it ended well."""

    def start(program, **more):
        child = server.run(program, **(variables | more))
        assert (child.status, child.stderr) == (0, "")
        return child

    return start


def script(folder, text, *, command=(), **variables):
    """Run a script in an interpreter of its own; return what it wrote."""
    path = folder / "serve.py"
    path.write_text(text)
    done = subprocess.run(
        [sys.executable, *command, str(path)], env=os.environ | QUIET | variables, cwd=folder,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def sessions(folder):
    """Return the whole calls of each session, by the process's id; a second one follows it."""
    found = {}
    for entry in sorted(dump.list_sessions(folder / "dumps"), key=lambda entry: entry.path.name):
        calls, problems = check_whole(entry.path)
        assert problems == []
        found.setdefault(entry.session.process.pid, []).append(calls)
    return found


def facts(calls, *names):
    return [tuple(getattr(call, name) for name in names) for call in calls.values()]


NESTED = """
import os, torch
from kernlib import kernel_api, rms_norm

@kernel_api
def inner(x):
    return os.fork()

@kernel_api
def outer(x, record):
    pid = inner(x)
    if record or pid:
        rms_norm(torch.ones(x, 8), torch.ones(8))
    return pid

for record in (True, False):
    pid = outer(2, record)
    if pid == 0:
        if record:
            rms_norm(torch.ones(3, 8), torch.ones(8))
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_a_child_forked_inside_calls_leaves_them_to_its_parent(run, tmp_path):
    child = run(NESTED)
    found = sessions(tmp_path)
    (mine,) = found.pop(child.pid)
    one = [("outer", "returned", None), ("inner", "returned", 1), ("rms_norm", "returned", 1)]
    two = [("outer", "returned", None), ("inner", "returned", 4), ("rms_norm", "returned", 4)]
    assert facts(mine, "api", "status", "parent") == one + two
    ((forked,),) = found.values()
    assert facts(forked, "api", "status") == [("rms_norm", "returned")] * 2, (
        "the child that recorded nothing has no session"
    )


def test_a_call_in_a_child_forked_inside_a_call_has_no_parent(run, tmp_path):
    child = run("""
import os, torch
from kernlib import kernel_api, rms_norm

@kernel_api
def fork(x):
    if os.fork() == 0:
        rms_norm(torch.ones(x, 8), torch.ones(8))
        os._exit(0)
    assert os.wait()[1] == 0

fork(2)
""")
    found = sessions(tmp_path)
    assert facts(found.pop(child.pid)[0], "api", "parent") == [("fork", None)]
    ((forked,),) = found.values()
    assert facts(forked, "api", "parent") == [("rms_norm", None)]


SLOW_COMPILER = """#!/bin/sh
case "$*" in
  *" -c "*) touch {folder}/compiling; while [ ! -e {folder}/go ]; do sleep 0.02; done;;
esac
exec g++ "$@"
"""
LOCKED = """
import os, signal, threading, time, torch
from kernlib import rms_norm

def norm():
    return rms_norm(torch.ones(2, 8), torch.ones(8))

folder = os.environ["FOLDER"]
thread = threading.Thread(target=norm, daemon=True)
thread.start()
while not os.path.exists(folder + "/compiling"):
    time.sleep(0.01)
pid = os.fork()
if pid == 0:
    signal.alarm(100)
    open(folder + "/go", "w").close()
    norm()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0, "the child waited for a lock that nobody lets go of"
thread.join()
"""


def test_a_child_forked_while_another_thread_builds_a_kernel_does_not_wait_for_ever(run, tmp_path):
    compiler = tmp_path / "slow-g++"
    compiler.write_text(SLOW_COMPILER.format(folder=tmp_path))
    compiler.chmod(0o755)
    more = {"KERNLIB_CXX": compiler, "KERNLIB_WORKSPACE": tmp_path / "workspace"}
    child = run(LOCKED, KERNLIB_LOG_LEVEL="calls", FOLDER=tmp_path, **more)
    logs = {path.stem: path.read_text().splitlines() for path in tmp_path.glob("*.log")}
    assert len(logs.pop(str(child.pid))) == 1
    ((line,),) = logs.values()
    assert line.endswith("rms_norm")


SESSION_LOCK = """
import os, pathlib, signal, threading, torch
from kernlib._facts import session_facts
from kernlib._registry import Api
from kernlib.config import get_config
from kernlib.logging import DumpSink, Recorder, recorded

inside, go, first = threading.Event(), threading.Event(), os.getpid()

def facts():
    if os.getpid() == first:
        inside.set()
        go.wait()
    return session_facts(get_config())

def double(x):
    return x * 2

sink = DumpSink(get_config(), facts, lambda call: [])
call = recorded(double, Api("double", double), Recorder([sink]))
thread = threading.Thread(target=call, args=(torch.ones(2),), daemon=True)
thread.start()
inside.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(100)
    call(torch.ones(3))
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0, "the child waited for a lock that nobody lets go of"
go.set()
thread.join()
"""


def test_a_child_forked_while_another_thread_opens_the_session_opens_its_own(run, tmp_path):
    child = run(SESSION_LOCK)
    found = sessions(tmp_path)
    shapes = [[call.views[0].shape for call in found.pop(child.pid)[0].values()]]
    shapes += [[call.views[0].shape for call in calls.values()] for (calls,) in found.values()]
    assert shapes == [[(2,)], [(3,)]]


def test_threads_in_one_api_at_a_time_share_no_number_and_no_parent(run, tmp_path):
    """Each thread waits inside its call until all are in; each nested call is its own thread's."""
    child = run("""
import threading, torch
from kernlib import kernel_api, rms_norm
inside = threading.Barrier(6)

@kernel_api
def meet(rows):
    inside.wait()
    rms_norm(torch.ones(rows, 8), torch.ones(8))
    inside.wait()

@kernel_api
def start(x):
    threads = [threading.Thread(target=meet, args=(at,)) for at in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

start(0)
""")
    ((calls,),) = (sessions(tmp_path)[child.pid],)
    assert sorted(calls) == list(range(1, 14))
    outer = {call.sequence: call for call in calls.values() if call.api == "meet"}
    assert [call.parent for call in outer.values()] == [None] * 6, "a thread is no nested call"
    for call in calls.values():
        if call.api == "rms_norm":
            above = outer.pop(call.parent)
            assert above.arguments.args[0].value == call.views[0].shape[0]
            assert above.thread == call.thread
    assert outer == {}


EXEC = """
import os, sys, torch
from kernlib import kernel_api, rms_norm

@kernel_api
def become(x):
    os.execv(sys.executable, [sys.executable, sys.argv[0], "again"])

rms_norm(torch.ones(2, 8), torch.ones(8))
if "again" not in sys.argv:
    become(1)
"""


def test_a_process_that_becomes_another_program_begins_another_session(tmp_path, variables):
    script(tmp_path, EXEC, **variables)
    ((before, after),) = sessions(tmp_path).values()
    norm = ("rms_norm", "returned")
    assert facts(before, "api", "status") == [norm, ("become", "started")]
    assert facts(after, "api", "status") == [norm]


SERVED = """
import multiprocessing, sys, torch
from kernlib import rms_norm

def norm(rows):
    return rms_norm(torch.ones(rows, 8), torch.ones(8)).shape[0]

if __name__ == "__main__":
    norm(1)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["kernlib.ops"])
    workers = [context.Process(target=norm, args=(rows,)) for rows in (2, 3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    print(*(worker.pid for worker in workers))
"""


def test_the_workers_of_a_fork_server_record_into_sessions_of_their_own(tmp_path, variables):
    pids = [int(pid) for pid in script(tmp_path, SERVED, **variables).split()]
    found = sessions(tmp_path)
    shapes = {
        pid: [call.views[0].shape for call in calls.values()] for pid, (calls,) in found.items()
    }
    assert [shapes.pop(pid) for pid in pids] == [[(2, 8)], [(3, 8)]]
    assert list(shapes.values()) == [[(1, 8)]], "the server itself records nothing"


RANKS = """
import torch
import torch.distributed as distributed
from kernlib import rms_norm

distributed.init_process_group("gloo")
rank = distributed.get_rank()
x = torch.full((rank + 1, 8), 1.0)
total = torch.tensor([float(rank + 1)])
distributed.all_reduce(total)
assert total.item() == 3
rms_norm(x, torch.ones(8))
distributed.destroy_process_group()
"""


def test_every_rank_of_torchrun_has_a_session_that_names_it(tmp_path, variables):
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    script(tmp_path, RANKS, command=launch, **variables)
    found = {}
    for entry in dump.list_sessions(tmp_path / "dumps"):
        process = entry.session.process
        assert entry.path.name.endswith(f"-{process.pid}-r{process.rank}")
        calls, problems = check_whole(entry.path)
        assert problems == []
        found[process.rank] = [call.views[0].shape for call in calls.values()]
    assert found == {0: [(1, 8)], 1: [(2, 8)]}

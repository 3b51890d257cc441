"""Whatever ends a process, what it recorded can be read, and the suspect is named."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fork_server import QUIET
from recording_samples import arguments, check_whole

from kernlib import dump, jit

pytestmark = pytest.mark.requires("gxx")

BEFORE, INSIDE, DONE, AFTER = range(4)
UNFINISHED = "was being written when its process ended; its call never ran"
REMOVED = "has no call.json: it is being removed, or was not copied whole"
SETUP_CALLS = 2
CALLS_IN_A_ROUND = 3


@pytest.fixture
def crash(server, tmp_path):
    """Return a function that runs a program at level dump and returns its end and its session."""

    def run(program):
        child = server.run(
            program,
            KERNLIB_LOG_LEVEL="dump",
            KERNLIB_LOG_DEST=tmp_path / "calls.log",
            KERNLIB_DUMP_DIR=tmp_path / "dumps",
        )
        (entry,) = dump.list_sessions(tmp_path / "dumps")
        assert entry.session.process.pid == child.pid
        calls, problems = check_whole(entry.path)
        assert problems == []
        return child, entry.path, calls

    return run


def check_builds(session, call):
    """Assert that the sources and the record of every kernel of the call are in the session."""
    assert call.builds
    for build in call.builds:
        files = dump.read_build(session, build.key)
        record = jit.decode_record(files.record)
        assert jit.record_key(record) == build.key
        assert set(record.sources) <= set(files.sources)


FAULT = """
import torch
from kernlib import PagedDecode, rms_norm
int32 = torch.int32
rms_norm(torch.ones(2, 64), torch.ones(64))
decode = PagedDecode(4, 2, 64, 16)
indices = torch.tensor([0, 1, 2 ** 26, 3], dtype=int32)
decode.plan(torch.tensor([0, 2, 4], dtype=int32), indices, torch.tensor([16, 3], dtype=int32))
decode.run(torch.full((2, 4, 64), 0.5), torch.zeros(4, 2, 2, 16, 64))
raise AssertionError("not reached")
"""


def test_a_fault_in_a_kernel_leaves_its_call_started(crash):
    child, session, calls = crash(FAULT)
    assert child.status == -signal.SIGSEGV
    states = [(call.api, call.status) for call in calls.values()]
    assert states == [
        ("rms_norm", "returned"),
        ("PagedDecode.__init__", "returned"),
        ("PagedDecode.plan", "returned"),
        ("PagedDecode.run", "started"),
    ]
    suspect = calls[4]
    check_builds(session, suspect)
    sources = dump.read_build(session, suspect.builds[0].key).sources
    assert any(label.endswith("paged_decode_cpu.h") for label in sources)
    (folder,) = session.glob("000004-*")
    assert arguments(folder)["q"].tolist() == [[[0.5] * 64] * 4] * 2
    tensors = dump.rebuild(
        suspect.storages, dump.input_views(suspect, state=True), dump.read_inputs(folder, suspect)
    )
    assert dump.decode(suspect.receiver.state["kv_indices"], tensors)[2] == 2**26
    (last,) = (session.parent.parent / "calls.log").read_text().splitlines()[-1:]
    assert "kernlib call #4 PagedDecode.run q=float32[2,4,64]" in last


ENDS = {
    "abort": ("os.abort()", -signal.SIGABRT),
    "exit": ("os._exit(7)", 7),
    "signal": ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
}


@pytest.mark.parametrize(("end", "status"), ENDS.values(), ids=ENDS)
def test_an_end_inside_an_api_leaves_it_and_its_callers_started(crash, end, status):
    child, session, calls = crash(f"""
import os, signal, torch
from kernlib import kernel_api, rms_norm
from kernlib.ops._norm import norm_kernels

@kernel_api(kernels=norm_kernels)
def inner(x, *, last):
    y = rms_norm(x, torch.ones(8), out=x)
    if last:
        {end}
    return y

@kernel_api
def outer(x, last):
    return inner(x, last=last)

outer(torch.ones(2, 8), False)
outer(torch.ones(2, 8), True)
raise AssertionError("not reached")
""")
    assert child.status == status
    states = [(call.api, call.status, call.parent) for call in calls.values()]
    assert states == [
        ("outer", "returned", None), ("inner", "returned", 1), ("rms_norm", "returned", 2),
        ("outer", "started", None), ("inner", "started", 4), ("rms_norm", "returned", 5),
    ]  # fmt: skip
    check_builds(session, calls[5])


def killed(count, folder, share=50, **variables):
    """Kill so many recording children; return where each was, with its session's folder.

    So many of them ``share`` a dump folder, one after the other.
    """
    environment = {
        "KERNLIB_LOG_LEVEL": "dump",
        "KERNLIB_LOG_DEST": str(folder / "calls-%p.log"),
        "KERNLIB_DUMP_DIR": "dumps",  # of the child's working directory
        "KERNLIB_DUMP_MAX_CALLS": "100000",
        "KERNLIB_DUMP_MAX_PER_SHAPE": "0",
    }
    program = Path(__file__).with_name("recording_kills.py")
    done = subprocess.run(
        [sys.executable, str(program), str(count), str(share)], cwd=folder,
        env=os.environ | QUIET | environment | variables,
        capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    found = [entry for dumps in folder.glob("*/dumps") for entry in dump.list_sessions(dumps)]
    sessions = {entry.session.process.pid: entry for entry in found}
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    assert [end["status"] for end in ends] == [signal.SIGKILL] * count
    return [(end, sessions[end["pid"]].path if end["pid"] in sessions else None) for end in ends]


def check_end(end, calls):
    """Compare the calls of a killed child with where it was when it died."""
    outer = SETUP_CALLS + 1 + CALLS_IN_A_ROUND * end["at"]
    before = [call.status for number, call in calls.items() if number < outer]
    assert set(before) == {"returned"}
    status = calls[outer].status if outer in calls else None
    possible = {
        BEFORE: {None, "started"},
        INSIDE: {"started"},
        DONE: {"started", "returned"},
        AFTER: {"returned"},
    }
    assert status in possible[end["state"]]
    assert max(calls) < outer + CALLS_IN_A_ROUND
    return outer


def test_a_kill_at_any_moment_costs_no_call_but_the_one_being_written(tmp_path, kills):
    moments = set()
    for end, session in killed(kills, tmp_path):
        calls, problems = check_whole(session)
        assert problems in ([], [UNFINISHED])
        outer = check_end(end, calls)
        assert sorted(calls) == list(range(1, max(calls) + 1)), "no call is missing"
        if end["state"] == INSIDE:
            check_builds(session, calls[outer])
        moments.add(end["state"])
    assert INSIDE in moments, "the moments were no sample"


def test_a_kill_while_old_capsules_are_removed_costs_no_other(tmp_path, kills):
    """Each child also removes what those before it left, but never what they were at."""
    finished, folders = 0, max(kills // 100, 1)
    ends = killed(20 * folders, tmp_path, share=20, KERNLIB_DUMP_MAX_CALLS="5")
    for end, session in ends:
        if session is None:
            assert end["state"] != INSIDE, "the call it died in is kept"
            continue
        calls, problems = check_whole(session)
        assert set(problems) <= {UNFINISHED, REMOVED}
        running = [call for call in calls.values() if call.status == "started"]
        if end["state"] == INSIDE:
            outer = SETUP_CALLS + 1 + CALLS_IN_A_ROUND * end["at"]
            assert running[0].sequence == outer
            check_builds(session, calls[outer])
        if running:
            assert {1, 2} <= set(calls), "what set up the receivers of these calls stays"
        finished += sum(not call.setup for call in calls.values()) - len(running)
    assert any(end["state"] == INSIDE for end, _ in ends), "the moments were no sample"
    end, session = ends[-1]
    assert {1, 2} <= set(check_whole(session)[0]), "the set-up of a living receiver stays"
    check_end(end, check_whole(session)[0])
    # One call for each of those that were removed half, or claimed by a child that then died.
    assert finished <= (5 + 2) * folders

"""The variables that bound recording, in real processes: rules, the quota, one folder for all."""

import pytest
from recording_samples import check_whole

from kernlib import dump
from kernlib.replay.cli import main

WORKERS = 6
#: Workers that record at once, and stay alive until all have.
PROGRAM = """
import os, torch
from kernlib import kernel_api

@kernel_api
def hot(x):
    return x + 1

@kernel_api
def rare(x):
    return x * 2

gates = [os.pipe() for _ in range(2)]
def work():
    assert rare(torch.ones(3)).tolist() == [2] * 3
    for at in range(60):
        assert hot(torch.full((4,), float(at))).tolist() == [at + 1] * 4
    os.write(gates[0][1], b".")
    os.read(gates[1][0], 1)
    os._exit(0)

children = []
for _ in range({workers}):
    pid = os.fork()
    if not pid:
        work()
    children.append(pid)
for _ in children:
    os.read(gates[0][0], 1)
os.write(gates[1][1], b"." * len(children))
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
"""


@pytest.fixture
def run(server, tmp_path):
    """Return a function that runs a program at level dump, under further variables."""

    def start(program, **variables):
        child = server.run(
            program,
            KERNLIB_LOG_LEVEL="dump",
            KERNLIB_LOG_DEST=tmp_path / "%p.log",
            KERNLIB_DUMP_DIR=tmp_path / "dumps",
            **variables,
        )
        assert (child.status, child.stdout, child.stderr) == (0, "", "")

    return start


@pytest.fixture
def record(run, tmp_path):
    """Return a function that runs the workers under variables and returns calls by session."""

    def start(**variables):
        run(PROGRAM.format(workers=WORKERS), **variables)
        found = [check_whole(entry.path) for entry in dump.list_sessions(tmp_path / "dumps")]
        assert [problems for _, problems in found] == [[]] * WORKERS
        return [calls for calls, _ in found]

    return start


def test_all_processes_together_keep_to_the_budget_of_their_folder(record):
    sessions = record(KERNLIB_DUMP_MAX_CALLS=96)
    assert sum(map(len, sessions)) <= 96 * 9 // 8 + WORKERS
    for calls in sessions:
        assert max(calls) == 61, "everybody has its newest call"
        assert calls[1].api == "rare", "sixty calls of the hot one did not push it out"


def test_the_quota_leaves_the_newest_of_each_shape(record):
    for calls in record(KERNLIB_DUMP_MAX_PER_SHAPE=4):
        assert list(calls) == [1, 58, 59, 60, 61]


def test_rules_hold_for_lines_and_dumps_and_the_list_counts_what_they_skipped(
    run, tmp_path, capsys
):
    program = PROGRAM.partition("gates =")[0] + "for _ in range(61): hot(torch.ones(3))"
    run(program, KERNLIB_FROM_CALL=10, KERNLIB_EVERY=7, KERNLIB_FIRST_PER_SHAPE=5)
    (entry,) = dump.list_sessions(tmp_path / "dumps")
    calls, problems = check_whole(entry.path)
    assert (list(calls), problems) == ([10, 17, 24, 31, 38], [])
    (log,) = tmp_path.glob("*.log")
    assert len(log.read_text().splitlines()) == 2 * len(calls)
    assert main([str(tmp_path / "dumps"), "--list"]) == 0
    assert "\n  not here: 56 skipped by rules\n" in capsys.readouterr().out

"""``kernlib selftest`` plants faults on this machine's CPU and names them."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from kernlib._commands import main
from kernlib.selftest._driver import Settings, run_all
from kernlib.selftest._plan import plan_runs

pytestmark = pytest.mark.requires("gxx", "asan")

#: A fault that no plain run shows.
SOME = ("race",)


def selftest(*arguments):
    """Run the command; return the finished process."""
    return subprocess.run(
        [sys.executable, "-m", "kernlib._commands", "selftest", "--device", "cpu", *arguments],
        capture_output=True, text=True, check=False, timeout=1800,
    )  # fmt: skip


@pytest.fixture(scope="module")
def chosen(request):
    """Return the options that choose what is planted."""
    if request.config.getoption("--selftest") == "all":
        return []
    return ["--variant", "eager", *(word for name in SOME for word in ("--only", name))]


def test_every_fault_is_named_as_it_was_planted(chosen, tmp_path):
    done = selftest("--json", "--keep", str(tmp_path / "kept"), *chosen)
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    rows = told["rows"]
    assert {row["fault"] for row in rows} >= set(SOME)
    assert [row for row in rows if row["outcome"] == "missed"] == []
    assert {row["fault"] for row in rows if row["outcome"] != "named"} <= {"other_device"}
    assert done.returncode == 0
    assert told["versions"]["kernlib"]
    assert (tmp_path / "kept" / f"cpu-{SOME[0]}-eager" / "dumps").is_dir()


def test_where_nothing_applies_the_table_says_so_and_it_is_no_success(capsys):
    """No process is started for what a machine without two GPUs cannot show."""
    assert main(["selftest", "--device", "cpu", "--only", "other_device"]) == 3
    told = capsys.readouterr().out
    assert "not applicable, it needs two GPUs" in told
    assert "0 of 0 planted faults were named as planted; 1 not applicable here" in told
    assert max(map(len, told.splitlines())) <= 80
    assert "\x1b" not in told


def test_an_unknown_fault_is_a_usage_error(capsys):
    assert main(["selftest", "--device", "cpu", "--only", "nothing"]) == 2
    assert "no planted fault is called 'nothing'" in capsys.readouterr().err


def test_a_fault_that_is_not_named_as_planted_is_a_miss():
    """The same run under another expectation: the selftest can fail."""
    (run,) = plan_runs(["cpu"], ["wrong_device"])
    other = replace(run.fault, cpu=replace(run.expected, argument="x", verdicts=("passed",)))
    told = []
    (row,) = run_all([replace(run, fault=other)], 0, Settings(), told.append)
    assert told == [row]
    assert (row.outcome, row.verdict, row.arguments) == ("missed", "reproduced", ["bias"])
    assert [miss.partition(":")[0] for miss in row.misses] == [
        "verdict passed was expected, not reproduced",
        "argument x is wrong, blamed",
    ]


def test_a_recording_that_recorded_nothing_is_a_miss():
    """A child that cannot make its calls leaves no capsule; that is told, with what it said."""
    (run,) = plan_runs(["cpu"], ["wrong_device"])
    broken = replace(run, fault=replace(run.fault, name="no_such_fault"))
    (row,) = run_all([broken], 0, Settings(), lambda _: None)
    assert row.outcome == "missed"
    assert "KeyError: 'no_such_fault'" in row.misses[0]
    assert "it ended with status 1" in row.misses[0]

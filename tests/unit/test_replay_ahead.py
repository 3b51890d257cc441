"""A rung that is begun before its turn is neither lost nor run twice, nor left running."""

import sys
import threading
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

from kernlib.config import get_config
from kernlib.replay import _ahead, _run
from kernlib.replay._ahead import Ahead, affordable
from kernlib.replay._ladder import Outcome, Run
from kernlib.replay._protocol import Refused, Request
from kernlib.replay._run import ChildEnd, run_child
from kernlib.replay._rungs import line_rungs, rung_named
from kernlib.replay._tools import Tool
from kernlib.replay._verdict import Conclusion, Verdict

RECORDED, ADDRESS = rung_named("recorded", "cpu"), rung_named("address", "cpu")


def shown(rung, verdict=Verdict.REPRODUCED, *events):
    end = ChildEnd(events, None, 0, timed_out=False, seconds=1.0, log="")
    run = Run(Tool(""), end, Conclusion(verdict, "why"))
    return Outcome(rung, (run,), run)


@pytest.mark.parametrize(
    ("rung", "verdict", "events", "runs"),
    [
        (ADDRESS, Verdict.TIMED_OUT, (), 2),
        (ADDRESS, Verdict.NOT_REPLAYABLE, (), 2),
        (RECORDED, Verdict.NOT_REPLAYABLE, (), 2),
        (RECORDED, Verdict.NOT_REPLAYABLE, (Refused(["no data"]),), 1),
        (RECORDED, Verdict.TIMED_OUT, (), 1),  # a hang is a hang
        (ADDRESS, Verdict.BUILD_FAILED, (), 1),
    ],
)
def test_what_may_have_failed_for_want_of_room_is_run_once_more_alone(rung, verdict, events, runs):
    ran = []

    def run(asked):
        ran.append(asked)
        first = asked is rung and ran.count(rung) == 1
        return shown(asked, verdict, *events) if first else shown(asked)

    with closing(Ahead(run)) as ahead:
        ahead.start(ADDRESS)
        wanted = verdict if runs == 1 else Verdict.REPRODUCED
        assert ahead.outcome(rung).verdict is wanted
    assert ran.count(rung) == runs


def test_it_runs_beside_another_and_once():
    done, meet = [], threading.Barrier(2, timeout=20)

    def run(rung):
        meet.wait()  # neither ends before both have begun
        done.append(rung.name)
        return shown(rung)

    with closing(Ahead(run)) as ahead:
        ahead.start(ADDRESS)
        assert ahead.outcome(RECORDED).rung is RECORDED
        assert ahead.outcome(line_rungs(RECORDED, "cpu")[0]).rung is ADDRESS
    assert sorted(done) == ["address", "recorded"]


def test_one_like_it_on_other_memory_is_run_anew():
    fenced = line_rungs(rung_named("fence-end", "cpu"), "cpu")[0]
    ran = []
    with closing(Ahead(lambda rung: ran.append(rung.memory) or shown(rung))) as ahead:
        ahead.start(ADDRESS)
        ahead.outcome(fenced)
    assert sorted(ran) == ["fence-end", "plain"]


def test_its_error_is_raised_where_it_is_asked_for():
    def run(rung):
        raise RuntimeError(rung.name)

    with closing(Ahead(run)) as ahead:
        ahead.start(ADDRESS)
        with pytest.raises(RuntimeError, match="address"):
            ahead.outcome(ADDRESS)


def test_what_nobody_asks_for_is_stopped(tmp_path):
    """A real child that would run for a minute."""
    sleeper = Tool("", (sys.executable, "-c", "import time; time.sleep(60)"))

    def run(_rung):
        return run_child(Request("x", []), get_config(), sleeper, folder=tmp_path, timeout=60)

    begin = time.monotonic()
    with closing(Ahead(run)) as ahead:
        ahead.start(ADDRESS)
        while not _run._children:
            time.sleep(0.01)
    assert time.monotonic() - begin < 30
    assert _run._children == {}


def test_two_at_once_only_where_there_is_room(monkeypatch):
    def call(nbytes):
        return SimpleNamespace(storages=[SimpleNamespace(nbytes=nbytes)] * 2)

    monkeypatch.setattr(_ahead, "cpus", lambda: [0, 1])
    assert affordable(call(1 << 20))
    assert not affordable(call(1 << 30))
    monkeypatch.setattr(_ahead, "cpus", lambda: [0])
    assert not affordable(call(1 << 20))

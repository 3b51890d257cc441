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
from kernlib.replay._protocol import Request
from kernlib.replay._run import run_child
from kernlib.replay._rungs import line_rungs, rung_named
from kernlib.replay._tools import Tool

RECORDED, ADDRESS = rung_named("recorded", "cpu"), rung_named("address", "cpu")


def test_it_runs_beside_another_and_once():
    done, meet = [], threading.Barrier(2, timeout=20)

    def run(rung):
        meet.wait()  # neither ends before both have begun
        done.append(rung.name)
        return f"outcome of {rung.name}"

    with closing(Ahead(run)) as ahead:
        ahead.start(ADDRESS)
        assert ahead.outcome(RECORDED) == "outcome of recorded"
        assert ahead.outcome(line_rungs(RECORDED, "cpu")[0]) == "outcome of address"
    assert sorted(done) == ["address", "recorded"]


def test_one_like_it_on_other_memory_is_run_anew():
    fenced = line_rungs(rung_named("fence-end", "cpu"), "cpu")[0]
    ran = []
    with closing(Ahead(lambda rung: ran.append(rung.memory) or len(ran))) as ahead:
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

"""With KERNLIB_CHECK a call that breaks a precondition is refused before its body runs."""

import asyncio
import inspect
import logging

import pytest
import torch

from kernlib import dump
from kernlib._checks import Finding, Finite, InRange, Rank, SameShape, Size
from kernlib._registry import Api
from kernlib._runtime import build_recorder, guard_of
from kernlib.config import Config, Level, using
from kernlib.errors import InvalidInputError
from kernlib.logging import recorded
from kernlib.logging._process import Process
from kernlib.logging._settings import changed

ON = Config(check=True)
ROWS = torch.zeros(2, 3)


class Failing:
    """A check that is wrong itself."""

    def findings(self, values):
        return values["x"].nothing


def public(function, *checks, config=ON, kind="function"):
    """Return a function with its checks as it is under a configuration."""
    api = Api(function.__qualname__.rpartition("<locals>.")[2], function, checks=checks, kind=kind)
    return recorded(function, api, build_recorder(config))


class Ran:
    """Counts how often the body of an api ran."""

    def __init__(self, *checks, config=ON):
        self.times = 0

        def work(x, *, out=None, n=1):
            self.times += 1
            return x, out, n

        self.body = work
        self.call = public(work, *checks, config=config)


def test_a_broken_precondition_is_raised_and_nothing_runs():
    ran = Ran(Rank("x", 2), InRange(Size("n"), 1))
    assert ran.call(ROWS) == (ROWS, None, 1)
    with pytest.raises(InvalidInputError, match=r"^work: n = 0, but must be at least 1$") as raised:
        ran.call(ROWS, n=0)
    assert (raised.value.api, raised.value.argument) == ("work", "n")
    assert isinstance(raised.value, ValueError)
    assert ran.times == 1


def test_without_checks_or_switch_the_function_is_the_one_given():
    assert Ran().call.__code__ is Ran().body.__code__
    ran = Ran(config=ON)
    assert ran.call is ran.body, "an api without checks costs nothing"
    ran = Ran(Rank("x", 2), config=Config())
    assert ran.call is ran.body
    assert guard_of(Api("work", ran.body)) is None


def test_defaults_are_judged_and_none_is_not():
    ran = Ran(InRange(Size("n"), 2), SameShape("out", "x"))
    assert ran.call(ROWS, n=2) == (ROWS, None, 2)
    with pytest.raises(InvalidInputError, match="n = 1, but must be at least 2"):
        ran.call(ROWS)


def test_the_receivers_attributes_are_judged():
    class Holder:
        size = 3

        def work(self, n):
            return n

    check = InRange(Size("self.size"), 1, 2)
    work = public(Holder.work, check, kind="method")
    holder = Holder()
    with pytest.raises(InvalidInputError, match="size = 3, but must be at most 2"):
        work(holder, 5)
    holder.size = 2
    assert work(holder, 5) == 5


def test_arguments_that_do_not_fit_raise_what_they_always_did():
    ran = Ran(Rank("x", 2))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        ran.call()


def test_a_check_that_fails_is_told_once_and_the_others_and_the_call_go_on(caplog):
    ran = Ran(Failing(), Rank("x", 2))
    with caplog.at_level(logging.WARNING, logger="kernlib.recorder"):
        ran.call(ROWS)
        ran.call(ROWS)
        with pytest.raises(InvalidInputError, match="x has 1 dimensions, but 2 are needed"):
            ran.call(ROWS[0])
    assert ran.times == 2
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "a check of work failed, and the call goes on without it: AttributeError: "
    )


def test_nothing_is_read_while_a_graph_is_captured(monkeypatch, caplog):
    ran = Ran(Finite("x"))
    bad = torch.tensor([float("nan")])
    monkeypatch.setattr("kernlib.logging._guard.is_capturing", lambda: True)
    with caplog.at_level(logging.WARNING, logger="kernlib.recorder"):
        ran.call(bad)
        ran.call(bad)
    assert ran.times == 2
    (record,) = caplog.records
    assert record.getMessage().startswith("work is called while a CUDA graph is captured")
    monkeypatch.undo()
    with pytest.raises(InvalidInputError):
        ran.call(bad)


def test_bodies_that_run_in_steps_are_looked_at_before_their_first_step():
    async def later(n):
        return n

    def items(n):
        yield n

    async def items_later(n):
        yield n

    check = InRange(Size("n"), 1)
    later, items, items_later = (public(body, check) for body in (later, items, items_later))
    assert inspect.iscoroutinefunction(later)
    assert asyncio.run(later(2)) == 2
    assert list(items(3)) == [3]

    async def first(n):
        return [item async for item in items_later(n)]

    assert asyncio.run(first(4)) == [4]
    for call in (lambda: asyncio.run(later(0)), lambda: list(items(0)),
                 lambda: asyncio.run(first(0))):  # fmt: skip
        with pytest.raises(InvalidInputError, match="n = 0"):
            call()


@pytest.mark.parametrize("level", [Level.CALLS, Level.ARGS, Level.STATS, Level.DUMP])
def test_what_is_refused_is_recorded_as_raised(tmp_path, level):
    config = Config(check=True, log_level=level, log_dest=str(tmp_path / "log"),
                    dump_dir=tmp_path / "dumps")  # fmt: skip
    ran = Ran(Rank("x", 2), config=config)
    ran.call(ROWS)
    with pytest.raises(InvalidInputError):
        ran.call(ROWS[0])
    assert ran.times == 1
    text = (tmp_path / "log").read_text()
    assert text.count("InvalidInputError") == 1
    if level is Level.DUMP:
        (session,) = dump.list_sessions(tmp_path / "dumps")
        good, bad = dump.list_calls(session.path)
        assert (good.status, bad.status) == ("returned", "raised")
        call = dump.read_call(bad.path)
        assert call.exception.type == "InvalidInputError"
        assert call.exception.message == "work: x has 1 dimensions, but 2 are needed"
        assert call.qualname == ran.body.__qualname__
        assert session.session.process.controls["KERNLIB_CHECK"] == "1"


def test_checking_is_switched_in_a_running_process():
    process = Process()

    def work(n):
        return n

    code = work.__code__
    with using(Config()):
        process.declare(work, Api("work", work, checks=(InRange(Size("n"), 1),)), build_recorder)
        assert work.__code__ is code
        process.configure(changed(Config(), {"check": True}), "test")
        with pytest.raises(InvalidInputError):
            work(0)
        assert work(1) == 1
        process.configure(Config(), "test")
    assert work(0) == 0
    assert work.__code__ is code


def test_a_callable_without_code_is_looked_at_from_the_start():
    process = Process()
    with using(ON):
        api = Api("max", max, checks=(InRange(Size("n"), 1),))
        assert process.declare(max, api, build_recorder) is not max


def test_findings_of_a_check_are_the_first_of_all_that_are_raised():
    class Two:
        def findings(self, _values):
            return [Finding("a", "a is wrong"), Finding("b", "b is wrong")]

    with pytest.raises(InvalidInputError, match="work: a is wrong"):
        Ran(Two()).call(ROWS)

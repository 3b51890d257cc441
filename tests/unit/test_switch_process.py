"""Recording is switched in a running process for every api there is, and says so once."""

import functools
import gc
import io
import json
import logging
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from recording_samples import check_whole

from kernlib import dump
from kernlib._runtime import _api_of, build_recorder
from kernlib.config import Config, Level, using
from kernlib.errors import ConfigError, NotReplayableError
from kernlib.logging import disable, enable
from kernlib.logging._process import Process
from kernlib.logging._settings import changed
from kernlib.replay._chain import Step, chain_of

OFF = Config()


class Running:
    """A process of its own: its apis, and the lines that it has written."""

    def __init__(self, stream, environment):
        self.process = Process()
        self._stream = stream
        self.environment = environment

    def api(self, target=None, *, setup=False):
        if target is None:
            return lambda found: self.api(found, setup=setup)
        with using(self.environment):
            found = _api_of(target, type(target), setup=setup)
            return self.process.declare(target, found, build_recorder)

    def enable(self, level="args", **settings):
        self.process.configure(changed(self.environment, {"log_level": level, **settings}), "test")

    def lines(self):
        """Return what was written since the last time."""
        text = self._stream.getvalue()
        self._stream.seek(0)
        self._stream.truncate()
        return text.splitlines()


@pytest.fixture
def running(monkeypatch):
    """Return a function that makes a process whose lines can be read."""

    def make(environment=OFF):
        stream = io.StringIO()
        monkeypatch.setattr("sys.stderr", stream)
        return Running(stream, environment)

    return make


def double(x, *, scale=2):
    return x * scale


def test_an_api_that_was_declared_while_off_is_recorded_and_is_itself_again(running):
    here = running()

    def work(x):
        return x + 1

    code, alias = work.__code__, work
    assert here.api(work) is work
    assert work.__code__ is code
    here.enable("calls")
    assert alias(1) == 2
    assert [line.rpartition("kernlib ")[2] for line in here.lines()] == ["call #1 work"]
    here.process.switch_off()
    assert work.__code__ is code
    assert alias(1) == 2
    assert here.lines() == []


def test_an_api_that_was_declared_while_on_is_the_function_too(running):
    here = running(Config(log_level=Level.CALLS))

    def work(x):
        return x + 1

    code = work.__code__
    assert here.api(work) is work
    assert work(1) == 2
    assert len(here.lines()) == 1
    here.process.switch_off()
    assert work.__code__ is code
    here.enable("args")
    work(1)
    assert "x=1" in here.lines()[0]


def test_what_a_filter_leaves_out_runs_its_own_code(running):
    here = running()

    @here.api
    def kept(x):
        return x

    @here.api
    def left(x):
        return x

    codes = kept.__code__, left.__code__
    here.enable("calls", include="ke*")
    assert (kept.__code__ is codes[0], left.__code__ is codes[1]) == (False, True)
    here.enable("calls", exclude=["ke*"])
    assert (kept.__code__ is codes[0], left.__code__ is codes[1]) == (True, False)


def test_numbers_go_on_and_an_open_call_stays_the_parent(running):
    here = running()

    @here.api
    def inner():
        return 1

    @here.api
    def outer():
        here.enable("args")
        return inner()

    here.enable("calls")
    outer()
    texts = [line.rpartition("kernlib ")[2] for line in here.lines()]
    assert texts[:2] == ["call #1 outer", "call #2 inner parent=1"]
    assert len(texts) == 3, "the outer call ends at the level that it began with"


def test_every_kind_of_method_is_switched(running):
    here = running()

    class Holder:
        @here.api
        def __init__(self, x):
            self.x = x

        @here.api
        def method(self, x):
            return self.x, x

        @staticmethod
        @here.api
        def static(x):
            return x

        @classmethod
        @here.api
        def of_class(cls, x):
            return cls.__name__, x

    held = Holder(1).method
    here.enable("args")
    assert [held(2), Holder.static(3), Holder.of_class(4)] == [(1, 2), 3, ("Holder", 4)]
    Holder(5)
    starts = [line.rpartition("kernlib ")[2] for line in here.lines() if " call " in line]
    assert starts == [
        "call #1 Holder.method x=2",
        "call #2 Holder.static x=3",
        "call #3 Holder.of_class x=4",
        "call #4 Holder.__init__ x=5",
    ]


def test_what_is_no_function_can_be_recorded_from_the_start_only(running, caplog):
    @functools.lru_cache
    def cached(x):
        return x * 2

    off = running()
    assert off.api(cached) is cached
    with caplog.at_level(logging.WARNING, logger="kernlib.recorder"):
        off.enable("calls", include="other")
        off.enable("calls")
    assert cached(1) == 2
    assert off.lines() == []
    (record,) = caplog.records
    assert record.getMessage() == (
        "not recorded: cached; what is no Python function cannot be switched later, only recorded "
        "from the start, with KERNLIB_LOG_LEVEL set"
    )
    on = running(Config(log_level=Level.CALLS))
    public = on.api(cached)
    assert public(2) == 4
    assert len(on.lines()) == 1
    on.process.switch_off()
    assert public(3) == 6
    assert on.lines() == []


def test_a_function_that_is_declared_again_is_recorded_once(running):
    here = running(Config(log_level=Level.CALLS))

    def work():
        return 1

    code = work.__code__
    assert here.api(here.api(work)) is work
    work()
    assert len(here.lines()) == 1
    here.process.switch_off()
    assert work.__code__ is code


def test_functions_do_not_outlive_their_last_name(running):
    here = running(Config(log_level=Level.CALLS))
    for _ in range(3):
        here.api(lambda: 1)
    gc.collect()
    assert len(here.process._declared) == 0


def test_a_function_that_is_pickled_by_its_value_leaves_its_declaration_behind(running):
    def work():
        return 1

    running().api(work)
    (attribute,) = vars(work).values()
    assert pickle.loads(pickle.dumps(attribute)) is None  # noqa: S301 - its own


def test_a_change_is_told_once(running, caplog):
    here = running()
    here.api(double)
    with caplog.at_level(logging.INFO, logger="kernlib.recorder"):
        here.enable("args", include=["dou*"])
        here.process.switch_off()
        here.process.switch_off()
    assert [record.getMessage() for record in caplog.records] == [
        "test: recording is now KERNLIB_LOG_LEVEL=args KERNLIB_INCLUDE=dou*",
        "disable(): recording is now KERNLIB_LOG_LEVEL=off",
    ]


def test_each_session_is_closed_and_says_what_was_set(running, tmp_path):
    here = running()

    def work(x):
        return x + 1

    here.api(work)
    for at in (1, 2):
        here.enable("dump", dump_dir=tmp_path / str(at), dump_max_calls=2)
        for _ in range(at + 2):
            work(torch.ones(3))
    here.process.switch_off()
    for at in (1, 2):
        (entry,) = dump.list_sessions(tmp_path / str(at))
        calls, problems = check_whole(entry.path)
        session = json.loads((entry.path / "session.json").read_text())
        assert (len(calls), problems) == (2, [])
        assert sum(session["dropped"].values()) == at, "the last counts are there"
        assert session["process"]["controls"]["KERNLIB_DUMP_MAX_CALLS"] == "2"


def test_a_call_that_is_open_while_switched_is_completed_where_it_began(running, tmp_path):
    here = running()

    @here.api
    def work(x):
        here.process.switch_off()
        return x + 1

    here.enable("dump", dump_dir=tmp_path)
    work(torch.ones(3))
    (entry,) = dump.list_sessions(tmp_path)
    calls, problems = check_whole(entry.path)
    assert ([call.status for call in calls.values()], problems) == (["returned"], [])


def test_log_files_are_let_go(running, tmp_path):
    here = running()

    def work():
        return 1

    here.api(work)

    def switched(times):
        for at in range(times):
            here.enable("calls", log_dest=str(tmp_path / f"{at}.log"))
            work()
        here.process.switch_off()
        return len(list(Path("/proc/self/fd").iterdir()))

    assert switched(1) == switched(20)


def test_an_object_that_was_made_before_is_recorded_and_its_replay_says_what_it_lacks(
    running, tmp_path
):
    here = running()

    class Planner:
        @here.api
        def __init__(self, size):
            self.size = size

        @here.api(setup=True)
        def plan(self, indices):
            self.indices = indices

        @here.api
        def run(self, x):
            return x[self.indices[: self.size]]

    made = Planner(2)
    here.enable("dump", dump_dir=tmp_path)
    made.plan(torch.tensor([1, 0]))
    assert made.run(torch.arange(3.0)).tolist() == [1, 0]
    (session,) = dump.list_sessions(tmp_path)
    paths = {entry.sequence: entry.path for entry in dump.list_calls(session.path)}
    call = dump.read_call(paths[2])
    assert set(call.receiver.state) == {"size", "indices"}, "its state is there to look at"
    with pytest.raises(NotReplayableError, match="made before recording began"):
        chain_of(Step(paths[2], call))
    again = Planner(2)
    again.plan(torch.tensor([0, 1]))
    again.run(torch.arange(3.0))
    paths = {entry.sequence: entry.path for entry in dump.list_calls(session.path)}
    steps = chain_of(Step(paths[5], dump.read_call(paths[5])))
    assert [step.call.api for step in steps] == ["Planner.__init__", "Planner.plan", "Planner.run"]


@pytest.mark.parametrize(
    ("settings", "variable", "value"),
    [
        ({"level": "loud"}, "KERNLIB_LOG_LEVEL", "loud"),
        ({"level": 2}, "KERNLIB_LOG_LEVEL", "2"),
        ({"level": None}, "KERNLIB_LOG_LEVEL", "None"),
        ({"include": 3}, "KERNLIB_INCLUDE", "3"),
        ({"exclude": [1]}, "KERNLIB_EXCLUDE", "(1,)"),
        ({"dump_dir": 3}, "KERNLIB_DUMP_DIR", "3"),
        ({"dump_max_calls": 0}, "KERNLIB_DUMP_MAX_CALLS", "0"),
        ({"dump_max_bytes": "20 parrots"}, "KERNLIB_DUMP_MAX_BYTES", "20 parrots"),
        ({"sync": "yes"}, "KERNLIB_SYNC", "yes"),
    ],
)
def test_a_bad_value_is_the_error_that_the_environment_gives(settings, variable, value):
    with pytest.raises(ConfigError) as caught:
        enable(**settings)
    assert (caught.value.variable, caught.value.value) == (variable, value)
    assert caught.value.expected in str(caught.value)


@pytest.mark.parametrize(
    ("name", "told"),
    [("jit_mode", "is read once"), ("dump_maxcalls", "did you mean 'dump_max_calls'"),
     ("zzz", "there are check, dump_dir")],
)  # fmt: skip
def test_an_unknown_setting_is_told_with_those_there_are(name, told):
    with pytest.raises(TypeError, match=told):
        enable(**{name: 1})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"log_level": 3}, {"KERNLIB_LOG_LEVEL": "args"}),
        ({"log_level": Level.DUMP}, {"KERNLIB_LOG_LEVEL": "dump"}),
        ({"log_level": " Stats "}, {"KERNLIB_LOG_LEVEL": "stats"}),
        ({"include": ["a*", "b"]}, {"KERNLIB_INCLUDE": "a*,b"}),
        ({"include": "a*, b"}, {"KERNLIB_INCLUDE": "a*,b"}),
        ({"sync": True}, {"KERNLIB_SYNC": "1"}),
        ({"dump_max_bytes": 1500}, {"KERNLIB_DUMP_MAX_BYTES": "1500"}),
        ({"log_dest": ""}, {}),
    ],
)
def test_values_are_python_values_or_texts_as_in_the_environment(given, text):
    assert changed(Config(), given).to_env() == text


def test_what_is_not_given_is_as_the_environment_says():
    environment = Config(log_level=Level.DUMP, log_format="json", exclude=("a",))
    found = changed(environment, {"log_level": "args", "exclude": ()})
    assert found == Config(log_level=Level.ARGS, log_format="json")


PROGRAM = """
import sys
import threading
import kernlib.logging
heavy = {"torch", "kernlib._runtime", "kernlib.jit"} & set(sys.modules)
assert not heavy, heavy
kernlib.logging.disable()
kernlib.logging.enable("calls")

from kernlib import kernel_api

@kernel_api
def work(x):
    return x

work(1)
kernlib.logging.disable()
work(2)
kernlib.logging.disable()
kernlib.logging.enable(level=3, include="work", log_format="json")
work(3)
assert "kernlib-control" not in {thread.name for thread in threading.enumerate()}
"""


def test_it_is_switched_before_and_after_there_are_apis_and_loads_nothing_for_it():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second, third = done.stderr.splitlines()
    assert first.endswith("call #1 work")
    assert json.loads(second)["args"] == {"x": 3}
    assert json.loads(third)["event"] == "return"


FORKS = """
import os, threading
import kernlib.logging
from kernlib import kernel_api

@kernel_api
def work(x):
    return x + 1

def switch():
    while not done.is_set():
        kernlib.logging.enable("calls", log_dest=os.devnull)
        kernlib.logging.disable()

code, done = work.__code__, threading.Event()
thread = threading.Thread(target=switch)
thread.start()
for _ in range(40):
    child = os.fork()
    if child == 0:
        assert work(1) == 2
        kernlib.logging.enable("calls", log_dest=os.devnull)
        assert work(2) == 3
        kernlib.logging.disable()
        os._exit(work(3) == 4 and work.__code__ is code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
done.set()
thread.join()
"""


def test_a_child_that_is_forked_amid_a_switch_can_switch_too():
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


COMPILED = """
import torch
import kernlib.logging
from kernlib import kernel_api

@kernel_api
def double(x, *, scale=2):
    return x * scale

@torch.compile(backend="eager")
def model(x):
    return double(x) + 1

def same(x):
    return torch.equal(model(x), x * 2 + 1)

assert same(torch.ones(3))
kernlib.logging.enable("calls")
assert same(torch.ones(3)) and same(torch.ones(4))
assert torch.equal(torch.compile(double, backend="eager")(torch.ones(3)), torch.full((3,), 2.0))
kernlib.logging.disable()
assert same(torch.ones(3))
"""


def test_a_compiled_caller_is_recorded_as_soon_as_it_is_switched():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMPILED],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "kernlib call" in line]
    assert len(lines) == 3, done.stderr


def test_disable_without_enable_does_nothing():
    disable()
    disable()


def test_threads_may_switch_at_once(running):
    here = running()

    def work():
        return 1

    code = work.__code__
    here.api(work)

    def switch(at):
        for _ in range(20):
            here.enable("calls", log_dest="stderr", include=f"other{at}" if at % 2 else "work")
            work()

    threads = [threading.Thread(target=switch, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    here.process.switch_off()
    assert work.__code__ is code

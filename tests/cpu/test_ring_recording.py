"""What goes into a ring is what a log line says, whoever writes it; and it outlives its process."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest
import torch
from native_samples import (
    DTYPES,
    OTHER_VALUES,
    PLAIN_VALUES,
    Opaque,
    Pages,
    X,
    attend,
    native_functions,
)

from kernlib import ring
from kernlib._registry import Api
from kernlib._runtime import build_recorder
from kernlib.config import Config, Level
from kernlib.logging import RingSink, recorded

pytestmark = pytest.mark.requires("gxx")


@pytest.fixture(scope="module")
def native():
    return native_functions()


class Recordings:
    """The same calls into a ring by the native recorder, by Python, and as JSON lines."""

    def __init__(self, folder, native, level=Level.ARGS):
        self.folder = folder
        facts = {"pid": os.getpid()}
        names = {"native": lambda: native, "python": lambda: None}
        config = Config(log_level=level, log_format="ring", ring_bytes=1 << 20)
        self.sinks = {
            name: RingSink(config.replace(log_dest=str(folder / name)), lambda: facts, functions)
            for name, functions in names.items()
        }
        self.lines = folder / "lines"
        self.json = Config(log_level=level, log_format="json", log_dest=str(self.lines))

    def call(self, function, api, times, *args, **kwargs):
        from kernlib.logging import Recorder

        recorders = [Recorder([sink]) for sink in self.sinks.values()]
        for recorder in [*recorders, build_recorder(self.json)]:
            public = recorded(function, api, recorder)
            for _ in range(times):
                try:
                    public(*args, **kwargs)
                except ValueError:
                    continue

    def records(self):
        return {name: ring.read_ring(sink.path).records for name, sink in self.sinks.items()}

    def events(self):
        """Return what each has recorded, times left out."""
        found = {
            name: msgspec.json.decode(msgspec.json.encode([record.event() for record in records]))
            for name, records in self.records().items()
        }
        found["json"] = [json.loads(line) for line in self.lines.read_text().splitlines()]
        for events in found.values():
            for event in events:
                event.pop("microseconds", None)
                assert event.pop("timestamp").endswith("Z")
        return found


@pytest.fixture
def recordings(tmp_path, native):
    return Recordings(tmp_path, native)


def check_alike(recordings):
    events = recordings.events()
    assert events["native"] == events["json"]
    assert events["python"] == events["json"]
    return events["json"]


@pytest.mark.parametrize("name", [*PLAIN_VALUES, *OTHER_VALUES])
def test_a_value_is_told_alike_by_all(recordings, name):
    value = {**PLAIN_VALUES, **OTHER_VALUES}[name]
    recordings.call(attend, Api("attend", attend), 2, value, give=value)
    assert len(check_alike(recordings)) == 4


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_dtype_is_told_alike_by_all(recordings, dtype):
    tensor = torch.zeros(64, dtype=torch.uint8).view(dtype)
    recordings.call(attend, Api("attend", attend), 2, tensor)
    assert str(dtype).removeprefix("torch.") in str(check_alike(recordings))


def test_plain_values_take_the_short_way(recordings, monkeypatch):
    """Were they described in Python, the tests above would compare Python with itself."""
    described = []
    recordings.call(attend, Api("attend", attend), 1, X)  # the native recorder takes over
    monkeypatch.setattr(RingSink, "started", lambda _, call: described.append(call.args))
    for value in PLAIN_VALUES.values():
        recordings.call(attend, Api("attend", attend), 1, value)
    by_python = len(PLAIN_VALUES)  # the sink without a native recorder
    assert len(described) == by_python
    for value in OTHER_VALUES.values():
        recordings.call(attend, Api("attend", attend), 1, value)
    assert len(described) == by_python + 2 * len(OTHER_VALUES)


def test_pointers_threads_and_parents_are_those_of_python(recordings):
    inner = recorded_pair(recordings)
    for name, records in recordings.records().items():
        outer_call, inner_call = (r for r in records if r.kind is ring.Kind.CALL)
        assert inner_call.parent == outer_call.call, name
        assert outer_call.values["x"].pointer == X.data_ptr(), name
        assert {r.thread for r in records} == {inner}, name


def recorded_pair(recordings):
    import threading

    from kernlib.logging import Recorder

    for sink in recordings.sinks.values():
        recorder = Recorder([sink])
        warm = recorded(attend, Api("attend", attend), recorder)
        inner = recorded(attend, Api("inner", attend), recorder)

        def outer(x, inner=inner):
            return inner(x)

        recorded(outer, Api("outer", outer), recorder)(X)
        del warm
    return threading.get_native_id()


@pytest.mark.parametrize("level", [Level.CALLS, Level.ARGS])
def test_methods_exceptions_and_every_way_of_calling(tmp_path, native, level):
    recordings = Recordings(tmp_path, native, level)
    method = Api("Pages.attend", Pages.attend, kind="method")
    for _ in range(2):
        recordings.call(Pages.attend, method, 1, Pages(), X, 3, scale=0.5)
        recordings.call(attend, Api("attend", attend), 1, x=X, y=1)
        recordings.call(attend, Api("attend", attend), 1, X, fail="page 7 of 4\nand more")
    events = recordings.events()
    ends = [event for event in events["native"] if event["event"] == "return"]
    assert len(ends) == 4
    if level is Level.CALLS:  # lines tell of starts and exceptions alone, a ring of every end
        for name in ("native", "python"):
            events[name] = [event for event in events[name] if event["event"] != "return"]
    assert events["native"] == events["json"]
    assert events["python"] == events["json"]


def test_a_way_of_calling_that_python_describes_stays_with_it(recordings):
    """Else each call would be tried natively first, for nothing."""
    api = Api("attend", attend)
    recordings.call(attend, api, 40, X, Opaque())
    recordings.call(attend, api, 2, X)
    check_alike(recordings)


def test_nothing_waits_for_the_native_recorder_and_nothing_is_lost_when_it_comes(tmp_path, native):
    from kernlib.logging import Recorder

    here = []
    config = Config(log_level=Level.ARGS, log_format="ring", log_dest=str(tmp_path / "ring"))
    sink = RingSink(config, dict, lambda: native if here else None)
    public = recorded(attend, Api("attend", attend), Recorder([sink]))
    for number in range(20):
        if number == 10:
            here.append(True)
        public(X, number)
    found = ring.read_ring(sink.path)
    assert sink.native is not None
    calls = [record.call for record in found.records if record.kind is ring.Kind.CALL]
    assert calls == list(range(1, 21))
    assert [record.ordinal for record in found.records] == list(range(40))
    assert (found.damaged, found.torn) == (0, False)


def test_the_ring_goes_around_natively(tmp_path, native):
    from kernlib.logging import Recorder

    config = Config(log_level=Level.ARGS, log_format="ring", log_dest=str(tmp_path / "ring"),
                    ring_bytes=ring.SMALLEST_RING)  # fmt: skip
    sink = RingSink(config, dict, lambda: native)
    public = recorded(attend, Api("attend", attend), Recorder([sink]))
    for number in range(3000):
        public(X, number)
    found = ring.read_ring(sink.path)
    assert found.records[-1].ordinal == 5999
    assert found.overwritten == 6000 - len(found.records) > 0
    assert (found.damaged, found.torn) == (0, False)


def test_a_recorder_that_was_let_go_gives_its_memory_back(tmp_path, native):
    """Each switch of a running process makes a new ring."""
    import gc

    from kernlib.logging import Recorder

    def mapped():
        return sum(
            str(tmp_path) in line for line in Path("/proc/self/maps").read_text().splitlines()
        )

    for number in range(3):
        config = Config(
            log_level=Level.ARGS, log_format="ring", log_dest=str(tmp_path / f"{number}.ring"),
            ring_bytes=ring.SMALLEST_RING,
        )  # fmt: skip
        sink = RingSink(config, dict, lambda: native)
        public = recorded(attend, Api("attend", attend), Recorder([sink]))
        public(X)
        public(X)
        assert mapped() > 0
        del sink, public
        gc.collect()
        assert mapped() == 0


def stream(x):
    yield x
    yield x


@pytest.mark.parametrize("written", ["native", "python"])
def test_a_generator_is_told_to_wait_and_to_go_on(recordings, written):
    from kernlib.logging import Recorder

    sink = recordings.sinks[written]
    recorder = Recorder([sink])
    recorded(attend, Api("attend", attend), recorder)(X)
    running = recorded(stream, Api("stream", stream), recorder)(X)
    next(running)
    (waiting,) = ring.read_ring(sink.path).waiting()
    assert (waiting.api, ring.read_ring(sink.path).unfinished()) == ("stream", ())
    assert list(running) == [X]
    kinds = [record.kind.name for record in ring.read_ring(sink.path).records]
    assert kinds == ["CALL", "RETURN", "CALL", "SUSPEND", "RESUME", "SUSPEND", "RESUME", "RETURN"]
    assert ring.read_ring(sink.path).waiting() == ()


def test_the_folder_of_a_ring_does_not_change_with_the_process(tmp_path, native, monkeypatch):
    from kernlib.logging import Recorder

    monkeypatch.chdir(tmp_path)
    here = []
    config = Config(log_level=Level.ARGS, log_format="ring", log_dest="calls.ring")
    sink = RingSink(config, dict, lambda: native if here else None)
    public = recorded(attend, Api("attend", attend), Recorder([sink]))
    public(X)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    here.append(True)
    public(X)
    public(X)
    assert sink.native is not None
    assert sink.path == tmp_path / "calls.ring"
    assert len(ring.read_ring(sink.path).records) == 6


PROGRAM = textwrap.dedent(
    """
    import os, signal, sys, time
    import torch
    from kernlib import kernel_api

    @kernel_api
    def step(x, number):
        if number == int(sys.argv[1]):
            sys.stdout.write("there\\n")
            sys.stdout.flush()
            {end}
        return x

    x = torch.zeros(4, 8)
    step(x, -1)
    begin = time.monotonic()
    while not native() and time.monotonic() - begin < 60:
        step(x, -1)
        time.sleep(0.01)
    for number in range(100_000):
        step(x, number)
    """
)
NATIVE = textwrap.dedent(
    """
    def native():
        from kernlib.logging import process
        return process.recorder.sinks_for(step.__kernlib_api__.api)[0].native is not None
    """
)


def run_program(tmp_path, end, number, level="args", **environment):
    script = tmp_path / "program.py"
    script.write_text(NATIVE + PROGRAM.replace("{end}", end))
    recording = {
        "KERNLIB_LOG_LEVEL": level, "KERNLIB_LOG_FORMAT": "ring",
        "KERNLIB_LOG_DEST": str(tmp_path / "%p.ring"),
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, str(script), str(number)],
        env={**os.environ, **recording, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_killed_process_leaves_its_last_call_as_one_that_was_running(tmp_path, kind):
    end = f"os.kill(os.getpid(), {int(kind)})"
    done = run_program(tmp_path, end, 7_000)
    assert done.returncode == -kind, done.stderr
    (path,) = tmp_path.glob("*.ring")
    found = ring.read_ring(path)
    (running,) = found.unfinished()
    assert running.values["number"] == 7_000
    assert found.records[-1] == running
    assert (found.damaged, found.torn, found.problems) == (0, False, ())
    assert found.facts["argv"] == [str(tmp_path / "program.py"), "7000"]
    shown = ring_show(path, "--last", "3")
    assert f"running now or when the process died: #{running.call} step" in shown.stdout


def ring_show(*arguments):
    command = [sys.executable, "-m", "kernlib._commands", "ring", "show", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_record_before_a_kill_is_there(tmp_path, kills):
    """At random moments, of both writers."""
    script = Path(__file__).with_name("ring_kills.py")
    search = os.pathsep.join([str(script.parents[1]), *sys.path])
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(kills)],
        env={**os.environ, "PYTHONPATH": search, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = re.fullmatch(r"(\d+) rings whole, (\d+) with a call under way\n", done.stdout)
    assert int(told[1]) == kills
    assert int(told[2]) > 0, "no kill met a call: the test has become too slow to show anything"


def test_a_forked_child_has_a_ring_of_its_own(tmp_path):
    done = run_program(tmp_path, "(pid := os.fork()) and os.waitpid(pid, 0)", 500)
    assert done.returncode == 0, done.stderr
    rings = [ring.read_ring(path) for path in tmp_path.glob("*.ring")]
    assert len(rings) == 2
    for found in rings:
        numbers = [r.values["number"] for r in found.records if r.kind is ring.Kind.CALL]
        assert numbers[-1] == 99_999
        assert (found.damaged, found.torn) == (0, False)
        assert len({record.thread for record in found.records}) == 1
    assert {found.records[-1].thread for found in rings} == {found.facts["pid"] for found in rings}


def test_without_a_compiler_python_writes_the_ring(tmp_path):
    end = "os.kill(os.getpid(), 9)"
    script_environment = {"KERNLIB_CXX": "/nowhere/g++", "KERNLIB_WORKSPACE": str(tmp_path / "ws")}
    program = PROGRAM.replace("not native() and time.monotonic() - begin < 60", "False")
    script = tmp_path / "program.py"
    script.write_text(program.replace("{end}", end))
    recording = {
        "KERNLIB_LOG_LEVEL": "args", "KERNLIB_LOG_FORMAT": "ring",
        "KERNLIB_LOG_DEST": str(tmp_path / "%p.ring"), **script_environment,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(script), "50"], env={**os.environ, **recording},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert "g++" not in done.stderr
    (path,) = tmp_path.glob("*.ring")
    assert ring.read_ring(path).unfinished()[0].values["number"] == 50


def test_a_disk_without_room_costs_one_line_and_no_result(tmp_path):
    """The limit of the file size stands in for the disk's: the ring is larger than both."""
    end = "print('result', float(x.sum()))"
    script = tmp_path / "program.py"
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))\n"
    program = PROGRAM.replace("not native() and time.monotonic() - begin < 60", "False")
    program = program.replace("100_000", "100").replace("import torch\n", "import torch\n" + limit)
    script.write_text("import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
                      + program.replace("{end}", end))  # fmt: skip
    recording = {
        "KERNLIB_LOG_LEVEL": "args", "KERNLIB_LOG_FORMAT": "ring",
        "KERNLIB_LOG_DEST": str(tmp_path / "%p.ring"),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(script), "50"], env={**os.environ, **recording},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "result 0.0" in done.stdout
    assert len([line for line in done.stderr.splitlines() if "could not record" in line]) == 1
    assert not list(tmp_path.glob("*.ring"))


def test_following_a_living_process_shows_what_it_adds(tmp_path, native):
    from kernlib.logging import Recorder

    config = Config(log_level=Level.ARGS, log_format="ring", log_dest=str(tmp_path / "ring"))
    sink = RingSink(config, dict, lambda: native)
    public = recorded(attend, Api("attend", attend), Recorder([sink]))
    public(X, 1)
    command = [sys.executable, "-m", "kernlib._commands", "ring", "show", "--follow", "--json"]
    with subprocess.Popen(
        [*command, str(sink.path)], stdout=subprocess.PIPE, text=True
    ) as follower:
        lines = [json.loads(follower.stdout.readline()) for _ in range(2)]
        public(X, 2)
        lines += [json.loads(follower.stdout.readline()) for _ in range(2)]
        follower.send_signal(signal.SIGINT)
    assert [(line["event"], line["call"]) for line in lines] == [
        ("call", 1), ("return", 1), ("call", 2), ("return", 2),
    ]  # fmt: skip
    assert lines[2]["args"]["args[1]"] == 2
    assert int(lines[2]["pointers"]["x"], 16) == X.data_ptr()

"""Fenced memory finds at full speed what plain memory hides, and says whose memory was left."""

import signal
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import replay_runs as runs

from kernlib import jit
from kernlib.config import Mode, get_config
from kernlib.replay._address import explain
from kernlib.replay._crash import fault_of_crash
from kernlib.replay._locate import locate
from kernlib.replay._protocol import Compared, Noted, Placed, Request, Stage, Trampled, read_events
from kernlib.replay._run import run_child
from kernlib.replay._tools import Tool

PACKAGES = ["faultlib", "fencelib"]
pytestmark = pytest.mark.requires("gxx")

#: Each leaves a tensor by little; recorded, all of them return.
CALLS = """
import fencelib
faultlib.take_rows(floats(16, 4), ints(4, 2, 16))
faultlib.look_back(floats(16), ints(1, *[0] * 15))
faultlib.put(floats(17), ints(3, 17), floats(2))
fencelib.spill(floats(4, 4), 68)
fencelib.spill(floats(3), 1, 15)
fencelib.spill(floats(3), 0)
faultlib.take_rows(floats(16, 4), ints(4, 2, 15))
table = faultlib.Table(4)
table.plan(ints(1, 0), 2.0)
table.run(floats(16, 4))
"""


#: A replaying child, as a forked one: what importing torch takes is spared.
CHILD = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from kernlib.replay._worker import main
main(Path({folder!r}))
"""


def what_is_told(events, fault):
    """Return the events of a child by kind, and what they make of its fault."""
    placed = [event for event in events if isinstance(event, Placed)]
    return SimpleNamespace(
        fault=fault,
        stage=[event.name for event in events if isinstance(event, Stage)][-1],
        placed={view.path: place for place in placed for view in place.views},
        target=explain(fault, placed) if fault else None,
        source=locate(fault, jit.generated_dir(get_config())) if fault else None,
        trampled=[event for event in events if isinstance(event, Trampled)],
        compared=[event for event in events if isinstance(event, Compared)],
        notes=[event.text for event in events if isinstance(event, Noted)],
    )


@pytest.fixture(scope="module")
def capsules(tmp_path_factory):
    dumps = tmp_path_factory.mktemp("dumps")
    done = runs.record(CALLS, dumps)
    assert done.returncode == 0, done.stderr
    return sorted(dumps.glob("*/0*"))


@pytest.fixture(scope="module")
def child(server, capsules, tmp_path_factory):
    """Return a function that runs one of CALLS, by its place there, on such memory."""

    def run(place, memory, mode=Mode.RELEASE):
        folder = tmp_path_factory.mktemp("run")
        config = get_config().replace(jit_mode=mode)
        request = Request(str(capsules[place]), PACKAGES, memory=memory)
        (folder / "request.json").write_bytes(msgspec.json.encode(request))
        program = CHILD.format(tests=str(runs.TESTS), folder=str(folder))
        done = server.run(program, **config.to_env())
        fault = fault_of_crash(folder, jit.artifacts_dir(config))
        ran = what_is_told(read_events(folder / "events.jsonl"), fault)
        ran.status, ran.log = done.status, done.stderr
        return ran

    return run


def finished(ran):
    return ran.fault is None and (ran.stage, ran.status) == ("done", 0)


def output_name():
    """Return what the tensor that fencelib makes is to be called."""
    lines = (runs.TESTS / "fencelib.py").read_text(encoding="utf-8").splitlines()
    (line,) = [at for at, text in enumerate(lines, 1) if text.endswith("# FAULT is overrun")]
    return f"out (empty_like at tests/fencelib.py:{line})"


def test_a_plain_run_does_not_see_an_element_too_far_but_tells_where_things_lie(child):
    ran = child(0, "plain")
    assert finished(ran), ran.log
    assert sorted(ran.placed) == ["pages", "pool"]
    pool = ran.placed["pool"]
    assert (pool.nbytes, pool.before, pool.after, pool.guard) == (256, 0, 0, 0)
    assert pool.address % 64 == 0


@pytest.mark.parametrize(
    ("place", "memory", "marker", "text", "access"),
    [
        (0, "fence-end", "read-past-pool",
         "the first byte past the end of pool (row 16 of 16)", "read"),
        (1, "fence-start", "negative-index",
         "4 bytes before the start of x (element -1 of 16)", "read"),
    ],
    ids=["end", "start"],
)  # fmt: skip
def test_a_fence_names_argument_distance_and_line(child, place, memory, marker, text, access):
    """Without a sanitizer: a debug build, since an optimiser folds a read into its use."""
    ran = child(place, memory, Mode.DEBUG)
    assert ran.status == -signal.SIGSEGV
    assert (ran.fault.kind, ran.fault.access) == ("SIGSEGV", access)
    assert (ran.target.text, ran.target.certain) == (text, True)
    assert (ran.source.line, ran.source.text) == runs.fault_line(marker)
    assert (ran.source.file, ran.source.certain) == (runs.ELEMENTS, True)


def test_line_tables_alone_name_the_inline_chain_of_the_recorded_code(child):
    """The machine code of a release build: the line is that of the function with the fault."""
    ran = child(0, "fence-end", Mode.LINEINFO)
    assert ran.target.argument == "pool"
    first, second = ran.fault.frames[:2]
    assert first.function.startswith("faultlib::TakeRows::operator()")
    assert first.file.endswith(runs.ELEMENTS)
    assert abs(first.line - runs.fault_line("read-past-pool")[0]) <= 1
    assert second.file.endswith("csrc/faults/faults_cpu.cc")


def test_a_write_into_padding_is_told_though_nothing_faults(child):
    """68 bytes keep their alignment of 64, so 60 lie between them and the fence."""
    ran = child(2, "fence-end")
    assert finished(ran), ran.log
    assert ran.placed["out"].after == 60
    assert ran.trampled == [Trampled("out", "after", 0, 4)]
    assert any("and their fence (out 60, slots 48, values 56): read" in text for text in ran.notes)


def test_what_the_api_allocates_itself_is_fenced_and_named_by_its_line(child):
    name = output_name()
    ran = child(3, "fence-end")
    assert ran.target.argument == name
    assert ran.target.text == f"the first byte past the end of {name} (row 4 of 4)"
    assert ran.fault.access == "write"
    # No kernel is in the stack: the innermost line that there is, Python's, is a guess.
    assert (Path(ran.source.file).name, ran.source.certain) == ("fencelib.py", False)
    assert ran.source.text.startswith("ctypes.memset")
    beside = child(4, "fence-end")
    assert beside.trampled == [Trampled(name, "after", 3, 1)]


def test_what_the_api_leaves_unwritten_reads_as_nan(child):
    ran = child(5, "fence-start")
    assert finished(ran), ran.log
    (result,) = ran.compared
    assert "nan" in result.detail
    assert ran.placed[output_name()].before == 0


@pytest.mark.parametrize("memory", ["fence-end", "fence-start"])
def test_a_sound_chain_gives_the_recorded_bits_on_fenced_memory(child, memory):
    ran = child(9, memory)
    assert finished(ran), ran.log
    assert ran.trampled == []
    assert [row.identical for row in ran.compared] == [True]


def test_the_parent_of_a_child_takes_its_signal_for_the_fault(capsules, tmp_path, monkeypatch):
    """The same through the real process, whose end the operating system tells."""
    monkeypatch.setenv("PYTHONPATH", runs.environment(runs.TESTS, {})["PYTHONPATH"])
    request = Request(str(capsules[0]), PACKAGES, memory="fence-end")
    end = run_child(request, get_config(), Tool(""), folder=tmp_path, timeout=120)
    assert end.exit_status == -signal.SIGSEGV
    ran = what_is_told(end.events, end.fault)
    assert ran.target.argument == "pool"
    assert ran.fault.frames[0].function.startswith("faultlib::")

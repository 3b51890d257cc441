"""What a report takes from its rungs: whose memory, whose line, and how sure that is."""

import msgspec
import pytest

from kernlib.replay._attempts import parts_of, target_of
from kernlib.replay._ladder import Outcome, Run
from kernlib.replay._protocol import Placed, PlacedView, Stage
from kernlib.replay._report import CallReport, SourceLine
from kernlib.replay._run import ChildEnd
from kernlib.replay._rungs import rung_named
from kernlib.replay._sanitizers import Fault
from kernlib.replay._tools import Tool
from kernlib.replay._verdict import Conclusion, Verdict

VIEW = PlacedView("rows", "float32", 4, (4,), (1,))
EARLIER = Placed(0, "cpu", 0x7000_0000_0000, 16, (VIEW,), guard=1 << 16)
TARGET = msgspec.structs.replace(EARLIER, address=0x7800_0000_0000)
REPORT = CallReport("reproduced", 10, "why", "session", 5, "norm", "", "capsule")


def ended(*events, address=None):
    fault = Fault("SIGSEGV", "SIGSEGV: a read", "", address=address)
    return ChildEnd(events, fault, -11, timed_out=False, seconds=1.0, log="")


def outcome(name, verdict, line=None, *, certain=True):
    source = SourceLine(f"{name}.h", line, "f", "x", [], certain) if line else None
    run = Run(Tool(name), ended(), Conclusion(verdict, "why"), source, (f"f at {name}.h",))
    return Outcome(rung_named(name, "cpu"), (run,), run, 1)


EVENTS = (Stage("build", 3), EARLIER, Stage("run", 3), Stage("rebuild", 5), TARGET, Stage("run", 5))


@pytest.mark.parametrize(
    ("address", "text", "argument"),
    [
        (TARGET.address + 16, "the first byte past the end of rows (element 4 of 4)", "rows"),
        (
            EARLIER.address + 16,
            "the first byte past the end of rows of call 3 (element 4 of 4)",
            "rows of call 3",
        ),
        (EARLIER.address + 4, "inside rows of call 3[1]", "rows of call 3"),
    ],
)
def test_memory_of_an_earlier_call_is_told_as_that_calls(address, text, argument):
    target = target_of(ended(*EVENTS, address=address), Tool(""), 5)
    assert (target.text, target.argument) == (text, argument)


def test_without_a_fault_no_argument_is_blamed():
    end = ChildEnd(EVENTS, None, 0, timed_out=False, seconds=1.0, log="")
    assert target_of(end, Tool(""), 5) is None


def told(decided, *others):
    return parts_of(REPORT, [decided, *others], decided)


def test_the_line_of_a_rung_that_failed_in_the_same_way_is_certain():
    report = told(
        outcome("recorded", Verdict.REPRODUCED), outcome("address", Verdict.REPRODUCED, 7)
    )
    assert (report.source.file, report.source.line, report.source.certain) == ("address.h", 7, True)
    assert report.stack == ["f at address.h"]


def test_the_line_of_a_rung_that_failed_in_another_way_is_a_guess():
    report = told(
        outcome("recorded", Verdict.REPRODUCED), outcome("address", Verdict.DIFFERENT_FAULT, 7)
    )
    assert (report.source.line, report.source.certain) == (7, False)


def test_a_line_of_the_same_failure_comes_before_a_nearer_rungs_of_another():
    report = told(
        outcome("recorded", Verdict.REPRODUCED),
        outcome("address", Verdict.DIFFERENT_FAULT, 7),
        outcome("debug", Verdict.REPRODUCED, 9),
    )
    assert (report.source.file, report.source.line, report.source.certain) == ("debug.h", 9, True)


def test_a_guessed_line_stays_one_unless_another_rung_is_certain():
    guessing = outcome("recorded", Verdict.REPRODUCED, 3, certain=False)
    assert not told(guessing).source.certain
    report = told(guessing, outcome("debug", Verdict.REPRODUCED, 9))
    assert (report.source.line, report.source.certain) == (9, True)
    assert told(outcome("recorded", Verdict.REPRODUCED)).source is None

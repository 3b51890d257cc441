"""The ladder's order, when it ends, what it concludes and how it reads."""

import json
from pathlib import Path

import msgspec
import pytest

from kernlib.config import Mode
from kernlib.errors import SelectionError
from kernlib.replay import _report
from kernlib.replay._ladder import Outcome, Run, climb, deciding, overall
from kernlib.replay._report import (
    Attempt,
    CallReport,
    Finding,
    Judgement,
    Report,
    SourceLine,
    schema_json,
)
from kernlib.replay._run import ChildEnd
from kernlib.replay._rungs import as_asked, ladder_of, line_rungs, rung_named, single
from kernlib.replay._table import live_table, row_text
from kernlib.replay._text import render_text
from kernlib.replay._tools import Tool
from kernlib.replay._verdict import Conclusion, RecordedEnd, Verdict

CRASHED, RETURNED = RecordedEnd("started"), RecordedEnd("returned")
LINE = SourceLine("include/kernlib/norm.cuh", 7, "norm", "x = p[i];", [(7, "x = p[i];")])


def outcome(rung, verdict, *, line=False, reason="why"):
    if verdict is None:
        return Outcome(rung, not_run="no such tool")
    end = ChildEnd((), None, 0, timed_out=False, seconds=1.5, log="")
    run = Run(Tool(""), end, Conclusion(verdict, reason), LINE if line else None)
    return Outcome(rung, (run,), run, int(verdict is Verdict.REPRODUCED))


def climbed(recorded, shown, where="cpu", lines=("address",)):
    """Climb where each rung shows what ``shown`` says, else nothing; return names and verdicts."""
    quiet = Verdict.PASSED if recorded is RETURNED else Verdict.NOT_REPRODUCED

    def run(rung):
        verdict, line = shown.get(rung.name, (quiet, False))
        return outcome(rung, verdict, line=line)

    def named(found):
        if found.has_line:
            return []
        return [rung_named(name, where) for name in lines]

    return list(climb(ladder_of(where), recorded, run, named))


def names(outcomes):
    return [each.rung.name for each in outcomes]


def test_the_rungs_are_in_their_order():
    assert [rung.name for rung in ladder_of("cuda")] == [
        "recorded", "blocking", "fence-end", "fence-start", "previous", "poison",
        "memcheck", "racecheck", "initcheck", "synccheck", "lineinfo", "debug",
    ]  # fmt: skip
    assert [rung.name for rung in ladder_of("cpu")] == [
        "recorded", "fence-end", "fence-start", "previous", "poison",
        "address", "undefined", "thread", "lineinfo", "debug",
    ]  # fmt: skip


def test_a_rung_of_another_device_is_refused_by_name():
    with pytest.raises(SelectionError, match=r"on cpu has no rung 'blocking'.*fence-end"):
        rung_named("blocking", "cpu")


def test_a_rung_that_is_no_sanitizers_runs_the_recorded_code():
    for where in ("cpu", "cuda"):
        other = {rung.name for rung in ladder_of(where) if "other code" in rung.about}
        assert "debug" in other
        kept = [rung for rung in ladder_of(where) if rung.name not in other]
        assert {rung.mode for rung in kept} == {None, Mode.LINEINFO}


def test_the_first_that_fails_as_recorded_ends_it_when_it_names_the_line():
    shown = {"fence-end": (Verdict.REPRODUCED, True)}
    outcomes = climbed(CRASHED, shown)
    assert names(outcomes) == ["recorded", "fence-end"]
    assert overall(outcomes, CRASHED).verdict is Verdict.REPRODUCED


def test_without_a_line_the_rung_that_names_one_follows():
    shown = {"recorded": (Verdict.REPRODUCED, False), "address": (Verdict.REPRODUCED, True)}
    outcomes = climbed(CRASHED, shown, lines=("address", "debug"))
    assert names(outcomes) == ["recorded", "address"]
    assert deciding(outcomes, CRASHED).rung.name == "recorded"


def test_the_rung_that_names_the_line_runs_on_the_same_memory():
    found = rung_named("fence-start", "cuda")
    chosen = line_rungs(found, "cuda")
    assert [(rung.name, rung.memory) for rung in chosen] == [
        ("memcheck", "fence-start"),
        ("lineinfo", "fence-start"),
        ("debug", "fence-start"),
    ]


def test_calls_before_it_and_scratch_hold_for_every_rung():
    asked = as_asked(ladder_of("cpu"), previous=2, scratch="zeroed")
    assert {rung.previous for rung in asked} == {2}
    assert {rung.name for rung in asked if rung.scratch != "zeroed"} == {"poison"}
    assert as_asked(ladder_of("cuda")) == list(ladder_of("cuda"))


def test_a_crash_that_never_comes_back_is_not_reproduced():
    outcomes = climbed(CRASHED, {"thread": (None, False)})
    assert names(outcomes) == [rung.name for rung in ladder_of("cpu")]
    conclusion = overall(outcomes, CRASHED)
    assert conclusion.verdict is Verdict.NOT_REPRODUCED
    assert "none of 8 rungs failed as recorded" in conclusion.reason  # without two not run


def test_what_another_build_already_checks_is_not_run_and_said():
    outcomes = {each.rung.name: each for each in climbed(CRASHED, {})}
    assert "address" in outcomes["undefined"].not_run
    without = {each.rung.name: each for each in climbed(CRASHED, {"address": (None, False)})}
    assert without["undefined"].telling is not None


@pytest.mark.parametrize(
    "verdict", [Verdict.BUILD_FAILED, Verdict.NOT_REPLAYABLE, Verdict.TIMED_OUT]
)
def test_where_the_recorded_build_cannot_run_nothing_else_is_tried(verdict):
    outcomes = climbed(CRASHED, {"recorded": (verdict, False)})
    assert names(outcomes) == ["recorded"]
    assert overall(outcomes, CRASHED).verdict is verdict


def test_a_build_that_fails_later_is_one_rungs_result():
    shown = {"address": (Verdict.BUILD_FAILED, False), "debug": (Verdict.REPRODUCED, True)}
    outcomes = climbed(CRASHED, shown)
    assert names(outcomes)[-1] == "debug"
    assert overall(outcomes, CRASHED).verdict is Verdict.REPRODUCED


def test_another_fault_counts_where_the_recorded_one_stays_away():
    conclusion = overall(climbed(CRASHED, {"thread": (Verdict.DIFFERENT_FAULT, True)}), CRASHED)
    assert conclusion.verdict is Verdict.DIFFERENT_FAULT
    assert conclusion.reason == "rung thread: why"


def test_any_fault_of_a_call_that_returned_ends_its_ladder():
    outcomes = climbed(RETURNED, {"fence-end": (Verdict.SILENT_CORRUPTION, True)})
    assert names(outcomes) == ["recorded", "fence-end"]
    assert overall(outcomes, RETURNED).verdict is Verdict.SILENT_CORRUPTION
    assert overall(climbed(RETURNED, {}), RETURNED).verdict is Verdict.PASSED


def test_one_mode_is_one_run_with_its_tool():
    assert single(None, "cuda").name == "recorded"
    assert (single(Mode.LINEINFO, "cuda").tool, single(Mode.DEBUG, "cpu").tool) == (
        "memcheck",
        "address",
    )


def attempts():
    rung = Attempt("recorded", "", "release", "", "cpu", "not_reproduced", "wide " * 40, 12.3, 0, 3)
    missing = Attempt("memcheck", "", "lineinfo", "", "cpu", "", "compute-sanitizer was not found")
    failed = replace_struct(rung, rung="debug", verdict="build_failed", reason="a\nb.h:3: error: x")
    lined = replace_struct(rung, rung="address", verdict="reproduced", source=LINE, hits=2)
    return [rung, missing, failed, lined]


def replace_struct(struct, **changes):
    from msgspec.structs import replace as changed

    return changed(struct, **changes)


def test_a_row_says_what_was_shown_how_often_and_how_long():
    first, missing, failed, lined = map(row_text, attempts())
    assert first[2:] == ("0 of 3", "12.3 s")
    assert missing == ("memcheck", "not run: compute-sanitizer was not found", "", "")
    assert failed[1] == "build failed: b.h:3: error: x"
    assert lined[1:3] == ("reproduced, at norm.cuh:7", "2 of 3")


def test_in_a_pipe_each_rung_that_ended_is_a_line_on_stderr(capsys):
    with live_table(lambda text: text.replace("w", "v")) as tell:
        for attempt in attempts():
            tell(attempt.rung, None)
            tell(attempt.rung, attempt)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert (out, len(lines)) == ("", 4)
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("recorded     not reproduced: vide")
    assert lines[0].endswith("0 of 3  12.3 s")


def test_the_text_fits_a_terminal():
    call = CallReport(
        "not_reproduced", 12, "word " * 60, "session", 7, "norm", "recorded " * 30, "capsule",
        attempts=attempts(), source=LINE, fault="fault " * 40, where="block (0,0,0)",
        machine="NVIDIA H200, " * 12, machine_differences=["driver 1 was recorded, here is 2"],
        notes=["note " * 50],
    )  # fmt: skip
    lines = render_text(Report("not_reproduced", 12, [call])).splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert any(line.startswith("  rungs       recorded    not reproduced") for line in lines)
    assert any("not run: compute-sanitizer was not found" in line for line in lines)
    assert any(line.startswith("  here        NVIDIA H200") for line in lines)


def test_where_nothing_differs_the_text_says_what_the_machine_is():
    call = CallReport("passed", 0, "", "s", 1, "norm", "it returned", "c", machine="torch 2.13")
    assert "  here        same machine kind: torch 2.13\n" in render_text(
        Report("passed", 0, [call])
    )


def test_bad_input_is_told_with_how_sure_that_is_and_who_wrote_it():
    sure = Judgement("bad input", "certain", "bad input (certain: 1 of 3 is broken)")
    finding = Finding("pages", "pages[1] = 16, but the pool has 16 rows", "pages was written by 2")
    call = CallReport(
        "reproduced", 10, "", "s", 7, "norm", "", "c", diagnosis=sure, findings=[finding]
    )
    text = render_text(Report("reproduced", 10, [call]))
    assert "  diagnosis   bad input (certain: 1 of 3 is broken)\n" in text
    assert "  argument    pages[1] = 16, but the pool has 16 rows\n" in text
    assert "\n              pages was written by 2\n" in text
    sound = msgspec.structs.replace(call, verdict="passed", exit_status=0, findings=[])
    assert "diagnosis" not in render_text(Report("passed", 0, [sound]))


def test_the_schema_that_is_checked_in_is_that_of_the_report():
    path = Path(_report.__file__).with_name("report.schema.json")
    assert path.read_text(encoding="utf-8") == schema_json()
    schema = json.loads(schema_json())
    assert schema["$defs"]["Report"]["properties"]["schema"]["default"] == 2

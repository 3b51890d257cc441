"""What a replay saw is held against what was planted; the table tells both in 80 columns."""

from dataclasses import replace

import pytest

from kernlib.errors import SelectionError
from kernlib.selftest._driver import Row
from kernlib.selftest._faults import FAULTS, planted_line
from kernlib.selftest._judge import Observed, judge
from kernlib.selftest._plan import Run, plan_runs
from kernlib.selftest._table import notes, rich_table, summary, table_text

BY_NAME = {fault.name: fault for fault in FAULTS}
PLANTED = planted_line("off_by_one", "cpu")
OFF_BY_ONE = Run(BY_NAME["off_by_one"], "eager", "cpu")
SEEN = Observed(
    calls=(2,),
    api="selftest_off_by_one",
    verdict="different_fault",
    reason="SIGSEGV",
    rung="fence-end",
    arguments=("x",),
    file=PLANTED.file,
    line=PLANTED.line,
)
SOUND = Observed((1,), "selftest_off_by_one", "passed", "1 tensors agree", "fence-end")


def test_a_fault_that_was_named_as_planted_has_no_misses():
    assert judge(OFF_BY_ONE, SEEN, SOUND) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"calls": (1,)}, "call 2 of selftest_off_by_one was planted, named: 1"),
        ({"calls": (1, 2)}, "named: 1, 2"),
        ({"calls": ()}, "named: none"),
        ({"api": "rms_norm"}, "(rms_norm)"),
        ({"verdict": "passed"}, "not passed: SIGSEGV"),
        ({"rung": "poison"}, "fence-end or address was expected to see it, not poison"),
        ({"rung": ""}, "not no rung"),
        ({"arguments": ()}, "argument x is wrong, blamed: none"),
        ({"arguments": ("x", "out")}, "argument x is wrong, blamed: x, out"),
        ({"line": PLANTED.line + 1}, f"named: {PLANTED.file}:{PLANTED.line + 1}"),
        ({"file": "include/kernlib/norm.h"}, f"{PLANTED.file}:{PLANTED.line} is wrong"),
        ({"line": 0}, "named: no line"),
        ({"certain": False}, "a guess"),
    ],
)
def test_whatever_is_not_as_planted_is_a_miss(change, told):
    (miss,) = judge(OFF_BY_ONE, replace(SEEN, **change), SOUND)
    assert told in miss


@pytest.mark.parametrize("change", [{"verdict": "mismatch"}, {"arguments": ("x",)}])
def test_a_sound_call_that_is_blamed_is_a_miss(change):
    (miss,) = judge(OFF_BY_ONE, SEEN, replace(SOUND, **change))
    assert miss.startswith("a sound call is blamed too")


def test_an_argument_may_not_be_blamed_where_the_kernel_is_wrong():
    run = Run(BY_NAME["race"], "eager", "cpu")
    planted = planted_line("race", "cpu")
    seen = replace(
        SEEN, api="selftest_race", rung="thread", arguments=(), file=planted.file, line=planted.line
    )
    assert judge(run, seen, None) == []
    assert judge(run, replace(seen, arguments=("x",)), None) == ["no argument is wrong, blamed: x"]


def test_a_line_is_asked_for_only_where_a_tool_can_see_one():
    run = Run(BY_NAME["wrong_device"], "eager", "cpu")
    seen = Observed((2,), "selftest_wrong_device", "reproduced", "refused", "recorded", ("bias",))
    assert judge(run, seen, None) == []


def test_the_runs_of_a_fault_are_its_variants():
    chosen = plan_runs(["cpu", "cuda"], ["off_by_one"])
    assert [(run.backend, run.variant) for run in chosen] == [
        ("cpu", "eager"), ("cpu", "worker"),
        ("cuda", "eager"), ("cuda", "graph"), ("cuda", "streams"), ("cuda", "worker"),
    ]  # fmt: skip
    assert [run.variant for run in plan_runs(["cuda"], ["off_by_one"], ["graph"])] == ["graph"]
    assert {run.fault.name for run in plan_runs(["cpu"])} == set(BY_NAME)


@pytest.mark.parametrize(("only", "how"), [(["nothing"], []), ([], ["nothing"])])
def test_an_unknown_fault_or_way_is_refused_with_those_known(only, how):
    with pytest.raises(SelectionError, match=r"nothing.*There are (read_out|eager)"):
        plan_runs(["cpu"], only, how)


@pytest.mark.parametrize(
    ("fault", "backend", "devices", "told"),
    [
        ("off_by_one", "cpu", 0, ""),
        ("off_by_one", "cuda", 0, "needs a GPU"),
        ("off_by_one", "cuda", 1, ""),
        ("other_device", "cpu", 2, "needs two GPUs"),
        ("other_device", "cuda", 1, "needs two GPUs"),
        ("other_device", "cuda", 2, ""),
    ],
)
def test_what_a_machine_lacks_is_said(fault, backend, devices, told):
    assert Run(BY_NAME[fault], "eager", backend).obstacle(devices) == told


def row(name, outcome, **facts):
    return Row(name, BY_NAME[name].wrong, "cpu", "eager", outcome, **facts)


NAMED = row(
    "off_by_one", "named", verdict="different_fault", rung="fence-end", arguments=["x"], line=48
)
MISSED = row("race", "missed", verdict="passed", rung="recorded", misses=["no line " * 20])
ABSENT = row("other_device", "not_applicable", why_not="needs two GPUs")


def test_the_table_tells_what_was_seen_and_what_was_missed():
    assert table_text([NAMED, MISSED, ABSENT]).splitlines() == [
        "on cpu:",
        "fault         how    verdict          seen by    argument  line",
        "off_by_one    eager  different_fault  fence-end  x         48    ok",
        "race          eager  passed           recorded   -         -     MISS",
        "other_device  eager  -                -          -         -     n/a",
        "",
        "- race (cpu, eager): no line no line no line no line no line no line no line no",
        "  line no line no line no line no line no line no line no line no line no line",
        "  no line no line no line",
        "- other_device (cpu, eager): not applicable, it needs two GPUs",
        "1 of 2 planted faults were named as planted; 1 not applicable here",
    ]


def test_what_is_not_applicable_never_counts_as_named():
    assert summary([ABSENT]) == (
        "0 of 0 planted faults were named as planted; 1 not applicable here"
    )
    assert summary([NAMED]) == "1 of 1 planted faults were named as planted"


def test_the_widest_table_fits_a_terminal():
    widest = [
        replaced(run, verdict="silent_corruption", rung="fence-start")
        for run in plan_runs(["cuda"])
    ]
    assert max(len(line) for line in table_text(widest).splitlines()) <= 80


def replaced(run, **facts):
    argument = run.expected.argument
    return Row(
        run.fault.name, run.fault.wrong, run.backend, run.variant, "missed", line=148,
        arguments=[argument] if argument else [], **facts,
    )  # fmt: skip


def test_a_terminal_gets_the_same_cells():
    table = rich_table([NAMED, MISSED], "cpu")
    assert [list(column.cells) for column in table.columns][:2] == [
        ["off_by_one", "race"], ["eager", "eager"],
    ]  # fmt: skip
    assert notes([NAMED]) == []

"""Verdicts: a crash that does not come back is never a pass."""

import pytest
from msgspec.structs import replace

from kernlib.replay import _run
from kernlib.replay._protocol import (
    BuildFailed,
    Compared,
    Raised,
    Refused,
    Stage,
    Trampled,
)
from kernlib.replay._run import ChildEnd, is_device_error
from kernlib.replay._sanitizers import Fault
from kernlib.replay._verdict import RecordedEnd, Verdict, conclude

CALL = 7
SEGV = Fault("SIGSEGV", "the process was ended by SIGSEGV", "operating system")
CRASHED = RecordedEnd("started")
RAISED = RecordedEnd("raised", "ValueError", "q has 3 heads, but kv_cache has 4")
RETURNED = RecordedEnd("returned")
DEVICE = RecordedEnd("started", device_error="CUDA error: an illegal memory access")


def end(*events, fault=None, status=0, timed_out=False, log="", stage="done", call=CALL):
    stages = (Stage("importing"), Stage(stage, call, "rms_norm")) if stage else ()
    return ChildEnd((*stages, *events), fault, status, timed_out, 1.5, log)


def compared(*, matches=True, identical=True):
    return Compared("result", "float32", matches, identical, "detail", "rtol")


def verdict(recorded, child):
    return conclude(recorded, child, CALL).verdict


def test_a_recorded_death_that_faults_again_is_reproduced():
    assert verdict(CRASHED, end(fault=SEGV, status=-11, stage="running")) is Verdict.REPRODUCED
    assert verdict(DEVICE, end(fault=SEGV, status=86, stage="running")) is Verdict.REPRODUCED


@pytest.mark.parametrize("recorded", [CRASHED, DEVICE])
def test_a_recorded_death_that_returns_is_not_reproduced_and_never_passed(recorded):
    conclusion = conclude(recorded, end(compared()), CALL)
    assert conclusion.verdict is Verdict.NOT_REPRODUCED
    assert "no proof" in conclusion.reason


def test_a_recorded_death_that_raises_is_a_different_fault():
    child = end(Raised("ValueError", "bad", ""), stage="running", status=1)
    assert verdict(CRASHED, child) is Verdict.DIFFERENT_FAULT


def test_a_recorded_death_and_a_child_that_ends_without_a_word_is_a_different_fault():
    assert verdict(CRASHED, end(stage="running", status=1)) is Verdict.DIFFERENT_FAULT


def test_the_same_exception_is_reproduced_and_another_text_is_not():
    same = end(Raised("ValueError", "q has 3 heads, but kv_cache has 4\nmore", ""))
    assert verdict(RAISED, same) is Verdict.REPRODUCED
    other = end(Raised("ValueError", "something else", ""))
    assert verdict(RAISED, other) is Verdict.DIFFERENT_FAULT
    assert verdict(RAISED, end(fault=SEGV, status=-11)) is Verdict.DIFFERENT_FAULT
    assert verdict(RAISED, end()) is Verdict.NOT_REPRODUCED


def test_a_recorded_device_exception_counts_as_a_crash():
    recorded = RecordedEnd("raised", "AcceleratorError", "CUDA error: misaligned address")
    assert verdict(recorded, end(fault=SEGV, status=86, stage="running")) is Verdict.REPRODUCED
    assert verdict(recorded, end()) is Verdict.NOT_REPRODUCED


@pytest.mark.parametrize(
    ("text", "faulted"),
    [
        ("an illegal memory access was encountered (error 700)", True),
        ("misaligned address (error 716)", True),
        ("invalid configuration argument (error 9)", False),
        ("no kernel image is available for execution on the device (error 209)", False),
    ],
)
def test_a_launch_that_finds_the_device_in_error_counts_as_a_crash_a_refused_one_does_not(
    text, faulted
):
    said = f"take_rows on cuda:0: {text}"
    assert is_device_error(f"RuntimeError: {said}") is faulted
    assert RecordedEnd("raised", "RuntimeError", said).crashed is faulted


@pytest.mark.parametrize(
    "text",
    ["out of memory", "no kernel image is available for execution on the device",
     "CUDA-capable device(s) is/are busy or unavailable", "invalid configuration argument"],
)  # fmt: skip
def test_a_full_or_another_device_reproduces_no_crash(text):
    said = f"CUDA error: {text}\nnoise"
    assert not is_device_error(f"AcceleratorError: {said}")
    ended = end(Raised("AcceleratorError", said, ""), stage="running", status=1)
    assert verdict(CRASHED, ended) is Verdict.DIFFERENT_FAULT


@pytest.mark.parametrize(
    "fault",
    [
        Fault("SIGKILL", "the process was ended by SIGKILL", "operating system"),
        Fault("out", "out of memory: allocator is trying", "AddressSanitizer"),
        Fault("requested", "requested allocation size 0x1 exceeds", "AddressSanitizer"),
        Fault("undefined-behaviour", "signed integer overflow: 2 + 2", "UBSan"),
        Fault("undefined-behaviour", "applying zero offset to null pointer", "UBSan"),
        Fault("undefined-behaviour", "load of misaligned address 0x11", "UBSan"),
    ],
)
def test_an_end_that_the_call_did_not_make_reproduces_no_crash(fault):
    assert verdict(CRASHED, end(fault=fault, status=-9, stage="running")) is Verdict.DIFFERENT_FAULT


def test_undefined_behaviour_that_ends_a_process_is_the_crash():
    null = Fault("undefined-behaviour", "load of null pointer of type 'const float'", "UBSan")
    assert verdict(CRASHED, end(fault=null, status=86, stage="running")) is Verdict.REPRODUCED


def test_a_fault_after_the_call_has_returned_is_another_one():
    assert verdict(CRASHED, end(fault=SEGV, status=-11, stage="comparing")) is (
        Verdict.DIFFERENT_FAULT
    )


def test_what_a_call_before_it_did_is_not_laid_to_the_call():
    before = [Stage("running", CALL - 1, "append"), Trampled("out", "after", 0, 4)]
    conclusion = conclude(RETURNED, end(*before, Stage("running", CALL, "norm")), CALL)
    assert conclusion.verdict is Verdict.DIFFERENT_FAULT
    assert f"call {CALL - 1} (append), which ran before it, wrote 4 bytes" in conclusion.reason
    refused = end(Raised("InvalidInputError", "bad", ""), stage="running", call=CALL - 1)
    assert verdict(RETURNED, refused) is Verdict.DIFFERENT_FAULT


def test_a_recorded_return_passes_only_with_agreeing_results():
    assert verdict(RETURNED, end(compared())) is Verdict.PASSED
    assert verdict(RETURNED, end(compared(), compared(matches=False))) is Verdict.MISMATCH
    assert verdict(RETURNED, end(fault=SEGV, status=-11)) is Verdict.DIFFERENT_FAULT
    assert verdict(RETURNED, end(Raised("E", "", ""))) is Verdict.DIFFERENT_FAULT
    assert verdict(RETURNED, end(status=86)) is Verdict.DIFFERENT_FAULT
    assert "bit for bit" in conclude(RETURNED, end(compared()), CALL).reason
    assert "tolerance" in conclude(RETURNED, end(compared(identical=False)), CALL).reason


@pytest.mark.parametrize("recorded", [CRASHED, RETURNED])
def test_padding_that_was_written_to_is_silent_corruption(recorded):
    conclusion = conclude(recorded, end(Trampled("out", "after", 0, 4), compared()), CALL)
    assert conclusion.verdict is Verdict.SILENT_CORRUPTION
    assert "wrote 4 bytes after out" in conclusion.reason


def test_an_input_that_the_recording_left_alone_is_silent_corruption_when_changed():
    changed = replace(compared(matches=False), name="q", unchanged=True)
    conclusion = conclude(RETURNED, end(changed), CALL)
    assert conclusion.verdict is Verdict.SILENT_CORRUPTION
    assert conclusion.reason.startswith("it changed q, which the recorded call left")


@pytest.mark.parametrize("tool", ["ThreadSanitizer", "racecheck", "initcheck", "synccheck"])
def test_a_finding_that_is_no_crash_does_not_reproduce_one(tool):
    found = Fault("data race", "data race: write of 4 bytes", tool)
    conclusion = conclude(CRASHED, end(fault=found, status=86), CALL)
    assert conclusion.verdict is Verdict.DIFFERENT_FAULT
    assert "data race" in conclusion.reason


def test_arguments_that_the_api_refused_are_invalid_input():
    raised = Raised("InvalidInputError", "norm: x has 3 rows", "")
    assert verdict(CRASHED, end(raised, stage="running", status=1)) is Verdict.INVALID_INPUT


def test_a_time_out_names_the_stage():
    conclusion = conclude(CRASHED, end(timed_out=True, status=None, stage="running"), CALL)
    assert conclusion.verdict is Verdict.TIMED_OUT
    assert "running" in conclusion.reason


def test_refusals_and_failed_builds_come_first():
    assert verdict(CRASHED, end(Refused(["no such api"]), fault=SEGV)) is Verdict.NOT_REPLAYABLE
    assert verdict(CRASHED, end(BuildFailed("x"), fault=SEGV)) is Verdict.BUILD_FAILED


@pytest.mark.parametrize("stage", ["importing", "rebuilding", "building", None])
def test_a_child_that_dies_before_the_call_says_nothing_about_the_call(stage):
    child = end(fault=SEGV, status=-11, stage=stage, log="\nImportError: no torch\n")
    conclusion = conclude(CRASHED, child, CALL)
    assert conclusion.verdict is Verdict.NOT_REPLAYABLE
    assert "ImportError: no torch" in conclusion.reason


def test_a_fault_in_an_earlier_call_of_the_chain_is_told_apart():
    conclusion = conclude(CRASHED, end(fault=SEGV, status=-11, stage="running", call=2), CALL)
    assert conclusion.verdict is Verdict.DIFFERENT_FAULT
    assert "call 2 (rms_norm)" in conclusion.reason


def test_exit_statuses_are_the_documented_ones():
    assert {v.word: v.exit_status for v in Verdict} == {
        "passed": 0, "mismatch": 1, "not_replayable": 3, "build_failed": 4, "reproduced": 10,
        "different_fault": 11, "not_reproduced": 12, "timed_out": 13, "silent_corruption": 14,
        "invalid_input": 15,
    }  # fmt: skip


def test_of_a_log_without_end_the_head_and_the_tail_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(_run, "_LOG_BYTES", 64)
    monkeypatch.setattr(_run, "_LINE_BYTES", 40)
    log = tmp_path / "child.log"
    log.write_text("first\n" + "x" * 500 + "\nlast\n")
    lines = _run._read_log(log).splitlines()
    assert (lines[0], lines[-1]) == ("first", "last")
    assert max(map(len, lines)) <= 40
    log.write_text("short\n")
    assert _run._read_log(log) == "short\n"
    log.write_text("a" * 50 + "\n" + "b" * 5)
    assert _run._read_log(log) == "a" * 40 + "\n" + "b" * 5

"""What a replay concludes; one of a closed set."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernlib.replay._protocol import BuildFailed, Compared, Refused, Stage, Trampled
from kernlib.replay._run import is_device_error

if TYPE_CHECKING:
    from kernlib.dump import Call
    from kernlib.replay._protocol import Event
    from kernlib.replay._run import ChildEnd
    from kernlib.replay._sanitizers import Fault

__all__ = ["Conclusion", "RecordedEnd", "Verdict", "conclude"]


class Verdict(enum.Enum):
    """The outcomes of a replay, with the exit status of ``kernlib-replay``."""

    PASSED = "passed", 0
    MISMATCH = "mismatch", 1
    NOT_REPLAYABLE = "not_replayable", 3
    BUILD_FAILED = "build_failed", 4
    REPRODUCED = "reproduced", 10
    DIFFERENT_FAULT = "different_fault", 11
    NOT_REPRODUCED = "not_reproduced", 12
    TIMED_OUT = "timed_out", 13
    SILENT_CORRUPTION = "silent_corruption", 14
    INVALID_INPUT = "invalid_input", 15

    def __init__(self, word: str, exit_status: int) -> None:
        self.word = word
        self.exit_status = exit_status


@dataclass(frozen=True, slots=True)
class RecordedEnd:
    """How the recorded call ended: its status, exception and device error."""

    status: str
    exception_type: str = ""
    exception_message: str = ""
    device_error: str = ""

    @classmethod
    def of(cls, call: Call) -> RecordedEnd:
        """Return how a recorded call ended."""
        exception = call.exception
        return cls(
            call.status,
            exception.type if exception else "",
            exception.message if exception else "",
            call.device_error or "",
        )

    @property
    def crashed(self) -> bool:
        """Whether the process died or the device faulted during the call."""
        return self.status == "started" or bool(self.device_error) or self._device_exception

    @property
    def _device_exception(self) -> bool:
        return is_device_error(f"{self.exception_type}: {self.exception_message}")


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A verdict and the sentence that explains it."""

    verdict: Verdict
    reason: str


def _first(events: tuple[Event, ...], kind: type) -> Event | None:
    return next((event for event in events if isinstance(event, kind)), None)


def conclude(recorded: RecordedEnd, end: ChildEnd, call: int) -> Conclusion:
    """Compare how a child ended with how call number ``call`` was recorded to have ended."""
    refused, failed = _first(end.events, Refused), _first(end.events, BuildFailed)
    if isinstance(refused, Refused):
        return Conclusion(Verdict.NOT_REPLAYABLE, "; ".join(refused.reasons))
    if isinstance(failed, BuildFailed):
        return Conclusion(Verdict.BUILD_FAILED, failed.message)
    stage = end.stage
    where = f"while {stage.name}" if stage else "before it began"
    if end.timed_out:
        return Conclusion(
            Verdict.TIMED_OUT, f"the child was stopped after {end.seconds:.0f} s, {where}"
        )
    if stage is None or stage.name not in {"running", "comparing", "done"}:
        return Conclusion(
            Verdict.NOT_REPLAYABLE,
            f"the child ended {where} (exit status {end.exit_status}): {_last_line(end.log)}",
        )
    return _after_running(recorded, end, stage, call)


def _after_running(recorded: RecordedEnd, end: ChildEnd, stage: Stage, call: int) -> Conclusion:
    if stage.call != call:
        return _fault_elsewhere(end, stage.call, stage.api)
    if end.raised is not None and end.raised.type == "InvalidInputError":
        return Conclusion(Verdict.INVALID_INPUT, _head(end.raised.message))
    if (corrupted := _corruption_before(end, call)) is not None:
        return corrupted
    if recorded.crashed:
        return _after_crash(end)
    if recorded.status == "raised":
        return _after_exception(recorded, end)
    return _after_return(end)


def _last_line(log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it wrote nothing"


def _fault_elsewhere(end: ChildEnd, call: int, api: str) -> Conclusion:
    what = end.fault.text if end.fault else _last_line(end.log)
    return Conclusion(
        Verdict.DIFFERENT_FAULT,
        f"the fault came already in call {call} ({api}), on which this one relies: {what}",
    )


def _unexplained(end: ChildEnd) -> str | None:
    """Return a sentence if the child ended without saying that it was done."""
    if end.stage is not None and end.stage.name == "done" and end.exit_status == 0:
        return None
    return f"the child ended with status {end.exit_status}: {_last_line(end.log)}"


#: Tools that see what may one day crash: a finding of theirs is no crash.
_FORESEEING = ("ThreadSanitizer", "racecheck", "initcheck", "synccheck")
#: Of undefined behaviour, what reads or writes where it must not, or ends a process. On x86 most
#: misaligned accesses, and arithmetic on a null pointer, do neither.
_FATAL = re.compile(
    r"(?:load of|store to|member access within) null pointer"
    r"|out of bounds|insufficient space|division by zero"
)
#: Ends that come from outside, or from too little memory: of the machine, not of the call.
_OUTSIDE = {"SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "out", "requested",
            "allocation-size-too-big", "out-of-memory", "rss-limit-exceeded"}  # fmt: skip


def _is_a_crash(fault: Fault) -> bool:
    """Return whether a fault is one that ends a process, by the process's own doing."""
    if fault.tool == "UBSan":
        return bool(_FATAL.search(fault.text))
    return fault.tool not in _FORESEEING and fault.kind not in _OUTSIDE


def _after_crash(end: ChildEnd) -> Conclusion:
    if end.fault is not None and not _is_a_crash(end.fault):
        text = f"recorded was the death of the process, found was: {end.fault.text}"
        return Conclusion(Verdict.DIFFERENT_FAULT, text)
    if end.fault is not None and end.stage is not None and end.stage.name == "comparing":
        text = f"replayed, the call returned; the fault came afterwards: {end.fault.text}"
        return Conclusion(Verdict.DIFFERENT_FAULT, text)
    if end.fault is not None:
        return Conclusion(Verdict.REPRODUCED, end.fault.text)
    if end.raised is not None:
        return Conclusion(
            Verdict.DIFFERENT_FAULT,
            "recorded was the death of the process, replayed an exception: "
            f"{end.raised.type}: {_head(end.raised.message)}",
        )
    if (problem := _unexplained(end)) is not None:
        return Conclusion(Verdict.DIFFERENT_FAULT, problem)
    if (corrupted := _corruption(end)) is not None:
        return corrupted
    return Conclusion(
        Verdict.NOT_REPRODUCED,
        "the recorded call did not end; replayed, it returned. This is no proof that it is right",
    )


def _corruption_before(end: ChildEnd, call: int) -> Conclusion | None:
    """Return a conclusion if a call that ran before the target wrote where it should not have."""
    stage = None
    for event in end.events:
        if isinstance(event, Stage):
            stage = event
        elif isinstance(event, Trampled) and stage is not None and stage.call != call:
            text = (
                f"call {stage.call} ({stage.api}), which ran before it, wrote {event.nbytes} bytes "
                f"{event.where} {event.argument}"
            )
            return Conclusion(Verdict.DIFFERENT_FAULT, text)
    return None


def _corruption(end: ChildEnd) -> Conclusion | None:
    """Return a conclusion if the call returned and wrote where it should not have."""
    for event in end.events:
        if isinstance(event, Trampled):
            text = (
                f"it returned, but wrote {event.nbytes} bytes {event.where} {event.argument}, "
                f"from {event.offset} bytes away on"
            )
            return Conclusion(Verdict.SILENT_CORRUPTION, text)
        if isinstance(event, Compared) and event.unchanged:
            text = f"it changed {event.name}, which the recorded call left as it was"
            return Conclusion(Verdict.SILENT_CORRUPTION, f"{text}: {event.detail}")
    return None


def _head(text: str) -> str:
    return text.splitlines()[0] if text else ""


def _after_exception(recorded: RecordedEnd, end: ChildEnd) -> Conclusion:
    if end.fault is not None:
        return Conclusion(Verdict.DIFFERENT_FAULT, end.fault.text)
    if end.raised is None:
        if (problem := _unexplained(end)) is not None:
            return Conclusion(Verdict.DIFFERENT_FAULT, problem)
        return Conclusion(
            Verdict.NOT_REPRODUCED, f"recorded was {recorded.exception_type}; replayed, it returned"
        )
    same_type = end.raised.type == recorded.exception_type
    same_text = _head(end.raised.message) == _head(recorded.exception_message)
    text = f"{end.raised.type}: {_head(end.raised.message)}"
    if same_type and same_text:
        return Conclusion(Verdict.REPRODUCED, text)
    wanted = f"{recorded.exception_type}: {_head(recorded.exception_message)}"
    return Conclusion(Verdict.DIFFERENT_FAULT, f"recorded was {wanted}; replayed {text}")


def _after_return(end: ChildEnd) -> Conclusion:
    if end.fault is not None:
        return Conclusion(
            Verdict.DIFFERENT_FAULT, f"recorded, the call returned; replayed: {end.fault.text}"
        )
    if end.raised is not None:
        return Conclusion(
            Verdict.DIFFERENT_FAULT,
            f"recorded, the call returned; replayed {end.raised.type}: {_head(end.raised.message)}",
        )
    if (problem := _unexplained(end)) is not None:
        return Conclusion(Verdict.DIFFERENT_FAULT, problem)
    if (corrupted := _corruption(end)) is not None:
        return corrupted
    compared = [event for event in end.events if isinstance(event, Compared)]
    wrong = [event for event in compared if not event.matches]
    if wrong:
        return Conclusion(Verdict.MISMATCH, f"{wrong[0].name}: {wrong[0].detail}")
    if not compared:
        return Conclusion(Verdict.PASSED, "returned; the recording holds no result to compare")
    same = all(event.identical for event in compared)
    how = "bit for bit" if same else "within tolerance"
    return Conclusion(Verdict.PASSED, f"{len(compared)} tensors agree {how}")

"""Answers "bad input or kernel bug?" without running anything."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Literal

import msgspec

from kernlib import dump
from kernlib._checks import evaluate, label
from kernlib.errors import CapsuleError, NotReplayableError, RegistryError
from kernlib.replay._apis import api_of, import_apis
from kernlib.replay._chain import Step, session_of
from kernlib.replay._recorded import RecordedValues, named_nodes
from kernlib.replay._writers import Written, last_writer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kernlib._checks import Outcome
    from kernlib._registry import Api
    from kernlib.dump import Call

__all__ = [
    "Broken",
    "Diagnosis",
    "Precondition",
    "Written",
    "diagnose",
    "diagnoses_json",
    "diagnosis_text",
    "judge_step",
]

SCHEMA = 1
_WIDTH = 80
_NAMED = 3

Answer = Literal["bad input", "kernel bug suspected", "unknown"]
Confidence = Literal["certain", "moderate", "low", "none"]


class Broken(msgspec.Struct, frozen=True):
    """An argument that breaks a declared precondition."""

    argument: str
    message: str
    origin: Written | None = None


class Precondition(msgspec.Struct, frozen=True):
    """One declared precondition, and what came of it; ``reason`` says why it is unknown."""

    check: str
    state: Literal["broken", "held", "unknown"]
    reason: str = ""


class Diagnosis(msgspec.Struct, frozen=True):
    """What the recorded arguments say: an answer, how sure it is, and what it rests on."""

    call: int
    api: str
    capsule: str
    answer: Answer
    confidence: Confidence
    text: str
    findings: list[Broken] = []
    preconditions: list[Precondition] = []
    problem: str = ""

    @property
    def exit_status(self) -> int:
        """15 for a broken precondition, 3 where nothing could be looked at, else 0."""
        if self.findings:
            return 15
        return 3 if self.problem else 0


def diagnose(capsule: Path, packages: Sequence[str] = ()) -> Diagnosis:
    """Evaluate what the api of a recorded call declares on the recorded arguments.

    Needs no device and no compiler. ``packages`` are imported so that their apis are known.
    """
    try:
        call = dump.read_call(capsule)
    except CapsuleError as error:
        return Diagnosis(
            0, "", str(capsule), "unknown", "none", f"unknown ({error})", problem=str(error)
        )
    step = Step(capsule, call)
    try:
        import_apis(call, packages)
        api = api_of(step, packages)
    except (RegistryError, NotReplayableError) as error:
        return _concluded(step, "unknown", "none", str(error), problem=str(error))
    return judge_step(api, step)


def judge_step(api: Api, step: Step) -> Diagnosis:
    """Evaluate what an api declares on the arguments of one of its recorded calls."""
    outcomes = evaluate(api.checks, RecordedValues(api, step))
    findings = [
        Broken(found.argument, found.message, _origin(api, step, found.argument))
        for outcome in outcomes
        for found in outcome.findings
    ]
    rows = [Precondition(label(one.check), one.state, one.reason) for one in outcomes]
    answer, confidence, reason = _judge(step.call, outcomes)
    done = _concluded(step, answer, confidence, reason)
    return msgspec.structs.replace(done, findings=findings, preconditions=rows)


def _concluded(
    step: Step, answer: Answer, confidence: Confidence, reason: str, *, problem: str = ""
) -> Diagnosis:
    sure = f"{confidence}: " if confidence != "none" else ""
    return Diagnosis(
        step.call.sequence, step.call.api, str(step.path), answer, confidence,
        f"{answer} ({sure}{reason})", problem=problem,
    )  # fmt: skip


def _judge(call: Call, outcomes: list[Outcome]) -> tuple[Answer, Confidence, str]:
    count = len(outcomes)
    broken = sum(outcome.state == "broken" for outcome in outcomes)
    unknown = [outcome for outcome in outcomes if outcome.state == "unknown"]
    held = count - broken - len(unknown)
    if not count:
        return "unknown", "none", f"no preconditions are declared for {call.api}"
    open_text = f"; {_unknown_text(unknown)}" if unknown else ""
    if broken:
        verb = "is" if broken == 1 else "are"
        return "bad input", "certain", (
            f"{broken} of {_declared(count)} {verb} broken{open_text}"
        )  # fmt: skip
    if not held:
        return "unknown", "none", _unknown_text(unknown)
    holds = f"{held} of {_declared(count)} hold"
    if held == count:
        holds = (
            f"all {_declared(count)} hold" if count > 1 else "the one declared precondition holds"
        )
    if call.status in {"returned", "closed"} and not call.device_error:
        return "unknown", "none", f"the call returned, and {holds}{open_text}"
    return "kernel bug suspected", "low" if unknown else "moderate", f"{holds}{open_text}"


def _declared(count: int) -> str:
    return f"{count} declared precondition{'s' if count > 1 else ''}"


def _unknown_text(unknown: list[Outcome]) -> str:
    reasons = list(dict.fromkeys(outcome.reason for outcome in unknown))
    more = f"; {len(reasons) - _NAMED} more reasons" if len(reasons) > _NAMED else ""
    return f"{len(unknown)} could not be evaluated: {'; '.join(reasons[:_NAMED])}{more}"


def _origin(api: Api, step: Step, argument: str) -> Written | None:
    """Return which recorded call wrote an argument that is a tensor."""
    node = named_nodes(api, step.call).get(argument)
    if not isinstance(node, dump.TensorNode):
        return None
    try:
        view = step.call.views[node.view]
        return last_writer(step, argument, view, session_of(step.path))
    except (CapsuleError, OSError) as error:
        return Written(argument, f"where it comes from is not known: {error}")


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """Return a diagnosis as text of at most 80 columns; paths are not broken."""
    lines = [f"{diagnosis.answer.upper()}: call {diagnosis.call}, {diagnosis.api}", ""]
    lines += _row("because", diagnosis.text)
    for found in diagnosis.findings:
        lines += _row("argument", found.message)
        if found.origin is not None:
            lines += _row("", found.origin.text)
    open_rows = [row for row in diagnosis.preconditions if row.state == "unknown"]
    for at, row in enumerate(open_rows):
        lines += _row("" if at else "not judged", f"{row.check}: {row.reason}")
    lines += [f"  {'capsule':<12}{diagnosis.capsule}"]
    return "\n".join(lines) + "\n"


def diagnoses_json(found: Sequence[Diagnosis]) -> str:
    """Return diagnoses as JSON, with the exit status that they stand for together."""
    status = max((diagnosis.exit_status for diagnosis in found), default=0)
    document = {"schema": SCHEMA, "exit_status": status, "calls": found}
    return msgspec.json.format(msgspec.json.encode(document)).decode() + "\n"


def _row(name: str, text: str) -> list[str]:
    first = f"  {name:<12}"
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=" " * len(first),
        break_long_words=False, break_on_hyphens=False,
    ) or [first]  # fmt: skip

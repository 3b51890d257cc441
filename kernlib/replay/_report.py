"""The report of a replay, as data and text."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Argument",
    "Attempt",
    "BuildLine",
    "CallReport",
    "Report",
    "SourceLine",
    "render_text",
]

SCHEMA = 1
_WIDTH = 80
_LABEL = 12
_FAULTS = 10  # exit statuses from here on speak of a fault


class Argument(msgspec.Struct, frozen=True):
    """A recorded argument in one line."""

    name: str
    text: str


class SourceLine(msgspec.Struct, frozen=True):
    """The faulting line: where it is, its text and what stands around it."""

    file: str
    line: int
    function: str
    text: str
    around: list[tuple[int, str]] = []
    certain: bool = True


class BuildLine(msgspec.Struct, frozen=True):
    """A kernel the replay loaded, and what keeps it from the recorded one."""

    uri: str
    target: str
    mode: str
    key: str
    library: str
    size: int
    sha256: str
    recorded_key: str | None
    is_recorded: bool
    same_sources_and_flags: bool
    differences: list[str]
    machine_code: str | None = None


class Attempt(msgspec.Struct, frozen=True):
    """One child process: how it was run and what it showed."""

    mode: str
    tool: str
    device: str
    verdict: str
    reason: str
    seconds: float
    log: str = ""


class CallReport(msgspec.Struct, frozen=True):
    """Everything the replay found out about one call."""

    verdict: str
    exit_status: int
    reason: str
    session: str
    call: int
    api: str
    recorded: str
    capsule: str
    caller: str = ""
    arguments: list[Argument] = []
    attempts: list[Attempt] = []
    source: SourceLine | None = None
    where: str = ""
    findings: list[Argument] = []
    builds: list[BuildLine] = []
    comparisons: list[Argument] = []
    machine_differences: list[str] = []
    notes: list[str] = []
    next: list[str] = []


class Report(msgspec.Struct, frozen=True):
    """The whole report; ``schema`` grows when a field changes its meaning."""

    verdict: str
    exit_status: int
    calls: list[CallReport]
    schema: int = SCHEMA


def _row(label: str, text: str) -> list[str]:
    indent = " " * (_LABEL + 2)
    lines: list[str] = []
    for part in text.splitlines() or [""]:
        lines += textwrap.wrap(
            part, _WIDTH, initial_indent=indent, subsequent_indent=indent,
            break_long_words=False, break_on_hyphens=False,
        ) or [indent]  # fmt: skip
    lines[0] = f"  {label:<{_LABEL}}{lines[0][_LABEL + 2 :]}"
    return lines


def _rows(label: str, texts: Iterable[str]) -> list[str]:
    lines: list[str] = []
    for text in texts:
        lines += _row(label, text)
        label = ""
    return lines


def _source(source: SourceLine) -> list[str]:
    guess = "" if source.certain else " (a guess: the innermost frame with a line)"
    lines = _row("line", f"{source.file}:{source.line} in {source.function}{guess}")
    width = max((len(str(number)) for number, _ in source.around), default=1)
    for number, text in source.around:
        mark = ">" if number == source.line else " "
        lines.append(f"    {mark} {number:>{width}} | {text}"[:_WIDTH].rstrip())
    return lines


def _build(build: BuildLine) -> list[str]:
    lines = _row("built", f"{build.uri} for {build.target}, {build.mode}")
    digest = f"{build.size} bytes, sha256 {build.sha256[:16]}..."
    lines += _row("", f"key {build.key}\n{build.library}\n{digest}")
    if build.is_recorded:
        lines += _row("", "this is the recorded build: same build record, same key")
    elif build.same_sources_and_flags:
        code = "" if build.machine_code else ", but other code"
        lines += _row(
            "",
            f"differs from the recorded build (key {build.recorded_key}) by its mode alone: "
            f"same sources, flags and compilers{code}",
        )
        lines += _row("", f"machine code: {build.machine_code}") if build.machine_code else []
    elif build.recorded_key or build.differences:
        lines += _rows("", [f"not the recorded build: {text}" for text in build.differences])
    else:
        lines += _row("", "the capsule names no build to compare it with")
    return lines


def _call_text(call: CallReport) -> list[str]:
    lines = [f"{call.verdict.upper()}: call {call.call}, {call.api}", ""]
    lines += _row("because", call.reason)
    lines += _row("recorded", call.recorded)
    if call.caller:
        lines += _row("called from", call.caller)
    if call.source is not None:
        lines += _source(call.source)
    if call.where:
        lines += _row("at", call.where)
    lines += _rows("argument", [finding.text for finding in call.findings])
    if call.attempts and call.exit_status >= _FAULTS and not call.findings:
        lines += _row("argument", "no declared precondition is broken; a kernel bug is possible")
    lines += _rows("called with", [f"{row.name} = {row.text}" for row in call.arguments])
    for attempt in call.attempts:
        tool = f", {attempt.tool} in front" if attempt.tool else ""
        text = (
            f"{attempt.mode} build on {attempt.device}{tool}: {attempt.verdict} "
            f"in {attempt.seconds:.1f} s"
        )
        lines += _row(
            "run", text if attempt.verdict == call.verdict else f"{text}: {attempt.reason}"
        )
    for build in call.builds:
        lines += _build(build)
    lines += _rows("compared", [f"{row.name}: {row.text}" for row in call.comparisons])
    lines += _rows("differs", call.machine_differences)
    lines += _rows("note", call.notes)
    lines += _row("capsule", call.capsule)
    lines += [f"  {'next':<{_LABEL}}{call.next[0]}"] if call.next else []
    lines += [f"  {'':<{_LABEL}}{command}" for command in call.next[1:]]
    return lines


def render_text(report: Report) -> str:
    """Return the report as text; commands and paths are never broken over lines."""
    lines: list[str] = []
    for call in report.calls:
        lines += _call_text(call)
        lines.append("")
    if len(report.calls) > 1:
        counts: dict[str, int] = {}
        for call in report.calls:
            counts[call.verdict] = counts.get(call.verdict, 0) + 1
        summary = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
        lines.append(f"{len(report.calls)} calls: {summary}")
    return "\n".join(lines).rstrip() + "\n"

"""The report of a replay, as text."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from kernlib.replay._table import row_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kernlib.replay._report import (
        Attempt,
        BuildLine,
        CallReport,
        Finding,
        Report,
        SourceLine,
    )

__all__ = ["render_text"]

_WIDTH = 80
_LABEL = 12
_RUNG = 12
_FRAMES = 2  # of those that called the faulting one; JSON holds them all
_FAULTS = 10  # exit statuses from here on speak of a fault


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


def _findings(findings: Iterable[Finding]) -> Iterator[str]:
    for finding in findings:
        yield finding.text
        if finding.origin:
            yield finding.origin


def _source(source: SourceLine) -> list[str]:
    guess = "" if source.certain else " (a guess: the nearest line that is known)"
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


def _attempts(call: CallReport) -> list[str]:
    """Return the runs: one in a sentence, several as a table."""
    if len(call.attempts) == 1 and call.attempts[0].verdict and call.attempts[0].times == 1:
        return _only(call, call.attempts[0])
    lines = []
    label = "rungs"
    for attempt in call.attempts:
        name, shown, times, seconds = row_text(attempt)
        end = f" ({times}, {seconds})" if times else ""
        indent = " " * (_LABEL + 2 + _RUNG)
        first = f"  {label:<{_LABEL}}{name:<{_RUNG}}"
        lines += textwrap.wrap(
            f"{shown}{end}", _WIDTH, initial_indent=first, subsequent_indent=indent,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        label = ""
    return lines


def _only(call: CallReport, attempt: Attempt) -> list[str]:
    tool = f", {attempt.tool} in front" if attempt.tool else ""
    text = (
        f"{attempt.rung}: {attempt.mode} build on {attempt.device}{tool}: {attempt.verdict} "
        f"in {attempt.seconds:.1f} s"
    )
    return _row("run", text if attempt.verdict == call.verdict else f"{text}: {attempt.reason}")


def _call_text(call: CallReport) -> list[str]:
    lines = [f"{call.verdict.upper()}: call {call.call}, {call.api}", ""]
    lines += _row("because", call.reason)
    lines += _row("recorded", call.recorded)
    if call.caller:
        lines += _row("called from", call.caller)
    if call.source is not None:
        lines += _source(call.source)
    lines += _rows("called by", call.stack[1 : 1 + _FRAMES])
    if call.fault and call.fault != call.reason:
        lines += _row("fault", call.fault)
    if call.where:
        lines += _row("at", call.where)
    if call.target is not None:
        lines += _row("address", call.target.text)
    if call.diagnosis is not None and (call.exit_status >= _FAULTS or call.findings):
        lines += _row("diagnosis", call.diagnosis.text)
    lines += _rows("argument", _findings(call.findings))
    lines += _rows("called with", [f"{row.name} = {row.text}" for row in call.arguments])
    lines += _attempts(call)
    for build in call.builds:
        lines += _build(build)
    lines += _rows("compared", [f"{row.name}: {row.text}" for row in call.comparisons])
    lines += _rows("differs", call.machine_differences)
    if call.machine:
        same = "" if call.machine_differences else "same machine kind: "
        lines += _row("here", f"{same}{call.machine}")
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

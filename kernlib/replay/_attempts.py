"""From what rungs showed to the parts of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernlib.replay._address import explain
from kernlib.replay._protocol import Built, Compared, Diagnosed, Found, Here, Noted, Placed, Stage
from kernlib.replay._report import (
    Argument,
    Attempt,
    BuildLine,
    CallReport,
    Finding,
    Judgement,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernlib.replay._address import Target
    from kernlib.replay._ladder import Outcome, Run
    from kernlib.replay._protocol import Event
    from kernlib.replay._run import ChildEnd
    from kernlib.replay._tools import Tool

__all__ = ["attempt_of", "here_of", "parts_of", "target_of"]

_LOG_TAIL = 4000


def _of(run: Run | None, kind: type) -> Iterator[Event]:
    return (event for event in (run.end.events if run else ()) if isinstance(event, kind))


def target_of(end: ChildEnd, tool: Tool, call: int) -> Target | None:
    """Return which argument of call number ``call`` the address of a child's fault belongs to.

    Memory of calls that ran before it is told as theirs.
    """
    if end.fault is None:
        return None
    placed, stage = [], None
    for event in end.events:
        if isinstance(event, Stage):
            stage = event
        elif isinstance(event, Placed):
            other = stage is not None and stage.call != call
            placed.append(_named(event, f" of call {stage.call}") if stage and other else event)
    return explain(end.fault, placed, tool.padding)


def _named(placed: Placed, whose: str) -> Placed:
    import msgspec

    replace = msgspec.structs.replace
    views = tuple(replace(view, path=view.path + whose) for view in placed.views)
    return replace(placed, views=views)


def attempt_of(outcome: Outcome, device: str, mode: str) -> Attempt:
    """Return a rung as the report holds it; ``mode`` is how its kernels were built."""
    rung, run = outcome.rung, outcome.telling
    if run is None:
        return Attempt(rung.name, rung.about, mode, "", device, "", outcome.not_run)
    conclusion = run.conclusion
    return Attempt(
        rung.name, rung.about, mode, run.tool.name, device, conclusion.verdict.word,
        conclusion.reason, round(outcome.seconds, 3), outcome.hits, len(outcome.runs),
        run.source, run.target, run.end.log[-_LOG_TAIL:],
    )  # fmt: skip


def here_of(outcomes: Sequence[Outcome]) -> Here | None:
    """Return what the children said of the machine they ran on."""
    runs = [run for outcome in outcomes for run in outcome.runs]
    return next((e for run in runs for e in _of(run, Here) if isinstance(e, Here)), None)


def parts_of(report: CallReport, outcomes: Sequence[Outcome], decided: Outcome) -> CallReport:
    """Return the report with what its runs told of arguments, lines, builds and results.

    The deciding rung comes first; what it does not tell, such as the line, is from a later one.
    """
    import msgspec

    told = [decided, *(one for one in outcomes if one is not decided and one.has_line)]
    runs = [one.telling for one in told if one.telling is not None]
    same = [run for run in runs if run.conclusion.verdict is decided.verdict and run.source]
    lined = next((run for run in same if run.source and run.source.certain), None)
    lined = lined or next(iter(same), None) or next((run for run in runs if run.source), None)
    source = lined.source if lined else None
    if source is not None and lined not in same:  # the line of something else
        source = msgspec.structs.replace(source, certain=False)
    aimed = next((run for run in runs if run.target and run.target.certain), None)
    aimed = aimed or next((run for run in runs if run.target), None) or lined
    builds = [e for run in runs for e in _of(run, Built) if isinstance(e, Built)]
    unique = {build.key: build for build in builds}
    notes = [e.text for run in runs for e in _of(run, Noted) if isinstance(e, Noted)]
    notes += [run.tool.missing for run in runs if run.tool.missing]
    notes += [run.end.fault.note for run in runs if run.end.fault and run.end.fault.note]
    fault = lined.end.fault if lined else (runs[0].end.fault if runs else None)
    every = [run for one in outcomes for run in one.runs[:1]]
    found = [e for run in every for e in _of(run, Found) if isinstance(e, Found)]
    judged = [e for run in every for e in _of(run, Diagnosed) if isinstance(e, Diagnosed)]
    compared = [e for run in runs[:1] for e in _of(run, Compared) if isinstance(e, Compared)]
    return msgspec.structs.replace(
        report,
        source=source,
        stack=list(lined.stack) if lined else [],
        fault=fault.text if fault else "",
        where=fault.thread if fault else "",
        target=aimed.target if aimed else None,
        diagnosis=next((Judgement(e.answer, e.confidence, e.text) for e in judged), None),
        findings=[Finding(event.argument, event.message, event.origin) for event in found],
        builds=[_build_line(event) for event in unique.values()],
        comparisons=[Argument(event.name, _comparison(event)) for event in compared],
        notes=list(dict.fromkeys([*report.notes, *notes])),
    )


def _comparison(event: Compared) -> str:
    how = "agrees" if event.matches else "DIFFERS"
    tolerance = f" ({event.tolerance})" if event.tolerance else ""
    return f"{event.dtype} {how}: {event.detail}{tolerance}".strip()


def _build_line(event: Built) -> BuildLine:
    return BuildLine(
        event.uri,
        event.target,
        event.mode,
        event.key,
        event.library,
        event.size,
        event.sha256,
        event.recorded_key,
        is_recorded=event.recorded_key is not None and event.key == event.recorded_key,
        same_sources_and_flags=event.recorded_key is not None
        and event.same_record_key == event.recorded_key,
        differences=event.differences,
        machine_code=event.machine_code,
    )

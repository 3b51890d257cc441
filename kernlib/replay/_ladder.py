"""Tries rungs until one shows what was recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernlib.replay._verdict import Conclusion, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kernlib.replay._address import Target
    from kernlib.replay._report import SourceLine
    from kernlib.replay._run import ChildEnd
    from kernlib.replay._rungs import Rung
    from kernlib.replay._tools import Tool
    from kernlib.replay._verdict import RecordedEnd

__all__ = ["Outcome", "Run", "climb", "deciding", "overall", "shows"]

#: Ends of the recorded build after which no other rung can show anything.
_HOPELESS = {Verdict.NOT_REPLAYABLE, Verdict.BUILD_FAILED, Verdict.TIMED_OUT}
#: What a ladder that did not show the recorded end says, the most telling first.
_PRECEDENCE = (
    Verdict.SILENT_CORRUPTION,
    Verdict.DIFFERENT_FAULT,
    Verdict.MISMATCH,
    Verdict.TIMED_OUT,
    Verdict.NOT_REPRODUCED,
    Verdict.PASSED,
    Verdict.INVALID_INPUT,
    Verdict.BUILD_FAILED,
    Verdict.NOT_REPLAYABLE,
)


@dataclass(frozen=True, slots=True)
class Run:
    """One finished child: what stood in front of it, how it ended, what is concluded."""

    tool: Tool
    end: ChildEnd
    conclusion: Conclusion
    source: SourceLine | None = None
    stack: tuple[str, ...] = ()
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a rung showed; ``telling`` is the run that speaks for it, None if it was not run."""

    rung: Rung
    runs: tuple[Run, ...] = ()
    telling: Run | None = None
    hits: int = 0
    not_run: str = ""

    @property
    def verdict(self) -> Verdict | None:
        """The verdict of the telling run."""
        return self.telling.conclusion.verdict if self.telling is not None else None

    @property
    def has_line(self) -> bool:
        """Whether it names a line of kernel source for certain."""
        source = self.telling.source if self.telling is not None else None
        return source is not None and source.certain

    @property
    def has_target(self) -> bool:
        """Whether it says for certain whose the fault's address is."""
        target = self.telling.target if self.telling is not None else None
        return target is not None and target.certain

    @property
    def seconds(self) -> float:
        """How long its children took, all together."""
        return sum(run.end.seconds for run in self.runs)


def shows(recorded: RecordedEnd, verdict: Verdict | None) -> bool:
    """Return whether a verdict ends the search: the recorded failure, or any of a sound call's."""
    if recorded.crashed or recorded.status == "raised":
        return verdict is Verdict.REPRODUCED
    return verdict in {Verdict.SILENT_CORRUPTION, Verdict.DIFFERENT_FAULT, Verdict.MISMATCH}


def climb(
    rungs: Sequence[Rung],
    recorded: RecordedEnd,
    run: Callable[[Rung], Outcome],
    lines: Callable[[Outcome], Sequence[Rung]],
) -> Iterator[Outcome]:
    """Yield what each rung shows, up to the first that shows the end that is looked for.

    Then the rungs that ``lines`` gives for that outcome follow until one names the line.
    """
    seen: dict[str, Outcome] = {}
    for rung in rungs:
        if rung.name == "undefined" and _ran(seen.get("address")):
            yield Outcome(rung, not_run="the build of rung address holds its checks too")
            continue
        outcome = seen[rung.name] = run(rung)
        yield outcome
        if shows(recorded, outcome.verdict):
            if outcome.verdict is not Verdict.MISMATCH:
                yield from _to_the_line(lines(outcome), run, outcome.verdict)
            return
        if rung.as_recorded and outcome.verdict in _HOPELESS:
            return


def _ran(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.verdict not in {None, *_HOPELESS}


def _to_the_line(
    rungs: Sequence[Rung], run: Callable[[Rung], Outcome], verdict: Verdict | None
) -> Iterator[Outcome]:
    for rung in rungs:
        outcome = run(rung)
        yield outcome
        if outcome.has_line and outcome.verdict is verdict:
            return


def deciding(outcomes: Sequence[Outcome], recorded: RecordedEnd) -> Outcome:
    """Return the outcome that the report's verdict is from.

    That is the first that shows the end that is looked for, else the most telling.
    """
    for outcome in outcomes:
        if shows(recorded, outcome.verdict):
            return outcome
    ran = [outcome for outcome in outcomes if outcome.telling is not None] or list(outcomes)
    order = {verdict: at for at, verdict in enumerate(_PRECEDENCE)}
    return min(ran, key=lambda one: order.get(one.verdict, len(order)) if one.verdict else 99)


def overall(outcomes: Sequence[Outcome], recorded: RecordedEnd) -> Conclusion:
    """Return the verdict of all rungs together."""
    outcome = deciding(outcomes, recorded)
    if outcome.telling is None:
        return Conclusion(Verdict.NOT_REPLAYABLE, outcome.not_run)
    conclusion = outcome.telling.conclusion
    if len(outcomes) == 1 or shows(recorded, conclusion.verdict):
        return conclusion
    ran = sum(one.telling is not None for one in outcomes)
    if conclusion.verdict is Verdict.NOT_REPRODUCED and ran > 1:
        text = f"none of {ran} rungs failed as recorded. This is no proof that it is right"
        return Conclusion(conclusion.verdict, text)
    if conclusion.verdict is Verdict.DIFFERENT_FAULT:
        text = f"rung {outcome.rung.name}: {conclusion.reason}"
        return Conclusion(conclusion.verdict, text)
    return conclusion

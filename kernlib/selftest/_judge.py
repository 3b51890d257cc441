"""Holds what a replay said against what was planted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernlib.selftest._faults import planted_line

if TYPE_CHECKING:
    from kernlib.selftest._plan import Run

__all__ = ["Observed", "judge"]


@dataclass(frozen=True)
class Observed:
    """What a replay said of the call that it took for the culprit.

    ``rung`` is what showed the fault. ``arguments`` are those it blames: by a declared check, by
    the fault's address, or by the api's own refusal. ``line`` is where the fault is, ``certain``
    if it is no guess.
    """

    calls: tuple[int, ...]
    api: str
    verdict: str
    reason: str
    rung: str = ""
    arguments: tuple[str, ...] = ()
    file: str = ""
    line: int = 0
    certain: bool = True

    @property
    def place(self) -> str:
        """The file's name and the line, or a dash."""
        return f"{self.file.rpartition('/')[2]}:{self.line}" if self.line else "-"


def judge(run: Run, seen: Observed, control: Observed | None) -> list[str]:
    """Return what was not named as planted; nothing if all was.

    ``control`` is the sound call before the planted one, on the rung that saw the fault.
    """
    wanted = run.expected
    misses = []
    if seen.calls != (run.call,) or seen.api != run.fault.api:
        told = ", ".join(map(str, seen.calls)) or "none"
        misses.append(f"call {run.call} of {run.fault.api} was planted, named: {told} ({seen.api})")
    if seen.verdict not in wanted.verdicts:
        verdicts = " or ".join(wanted.verdicts)
        misses.append(f"verdict {verdicts} was expected, not {seen.verdict}: {seen.reason}")
    if seen.rung not in wanted.rungs:
        rungs = " or ".join(wanted.rungs)
        misses.append(f"{rungs} was expected to see it, not {seen.rung or 'no rung'}")
    misses += _argument_misses(wanted.argument, seen)
    misses += _line_misses(run, seen)
    if control is not None and (control.verdict != "passed" or control.arguments):
        misses.append(f"a sound call is blamed too: {control.verdict}, {control.reason}")
    return misses


def _argument_misses(wanted: str | None, seen: Observed) -> list[str]:
    blamed = ", ".join(seen.arguments) or "none"
    if wanted is None:
        return [f"no argument is wrong, blamed: {blamed}"] if seen.arguments else []
    if set(seen.arguments) != {wanted}:
        return [f"argument {wanted} is wrong, blamed: {blamed}"]
    return []


def _line_misses(run: Run, seen: Observed) -> list[str]:
    if not run.expected.line:
        return []
    planted = planted_line(run.fault.name, run.backend)
    if planted is None:
        return [f"the sources have no single line that is marked {run.fault.name}"]
    if (seen.file, seen.line, seen.certain) == (planted.file, planted.line, True):
        return []
    guess = "" if seen.certain else ", a guess"
    where = f"{seen.file}:{seen.line}{guess}" if seen.line else "no line"
    return [f"{planted.file}:{planted.line} is wrong, named: {where}"]

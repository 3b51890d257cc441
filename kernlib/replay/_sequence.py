"""Which recorded calls run in one child."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernlib import dump
from kernlib.errors import CapsuleError, NotReplayableError, RegistryError
from kernlib.replay._chain import Step, chain_of, session_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernlib.dump import CallEntry

__all__ = ["sequence_of"]


def sequence_of(
    target: Step, previous: int, obstacles: Callable[[Step], list[str]]
) -> tuple[list[Step], list[str]]:
    """Return the steps in recorded order, the target last, and why calls are left out.

    Those are the ``previous`` recorded calls before it, and what the target and each of them rely
    on. A call made inside another one of them is made again by that one.

    Raises NotReplayableError if what the target relies on is not among the recorded calls.
    """
    chosen = {step.call.sequence: step for step in chain_of(target)}
    notes: list[str] = []
    for entry in _before(target, previous):
        text = f"call {entry.sequence} ({entry.api})"
        try:
            step = Step(entry.path, dump.read_call(entry.path))
            steps = chain_of(step)
            problems = [problem for one in steps for problem in obstacles(one)]
        except NotReplayableError as error:
            problems = list(error.reasons)
        except (CapsuleError, RegistryError) as error:
            problems = [str(error)]
        if problems:
            notes.append(f"{text} does not run before it: {'; '.join(problems)}")
        else:
            chosen.update({one.call.sequence: one for one in steps})
    del chosen[target.call.sequence]
    if previous and not chosen:
        notes.append("no recorded call before it can run: it runs alone")
    return [*(chosen[number] for number in sorted(chosen)), target], notes


def _before(target: Step, count: int) -> list[CallEntry]:
    """Return the last calls that ended before the target began, outermost ones only."""
    if not count:
        return []
    number = target.call.sequence
    entries = dump.list_calls(session_of(target.path))
    ended = [e for e in entries if e.sequence < number and e.status == "returned"]
    numbers = {entry.sequence for entry in ended}
    return [entry for entry in ended if entry.parent not in numbers][-count:]

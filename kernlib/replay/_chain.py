"""Which earlier calls a recorded call relies on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernlib import dump
from kernlib.errors import CapsuleError, NotReplayableError

if TYPE_CHECKING:
    from pathlib import Path

    from kernlib.dump import Call, CallEntry

__all__ = ["Step", "chain_of", "session_of"]


class Step:
    """A call of the chain: its capsule folder and what was recorded."""

    def __init__(self, path: Path, call: Call) -> None:
        self.path = path
        self.call = call

    @property
    def text(self) -> str:
        """The number and the name of the call."""
        return f"call {self.call.sequence} ({self.call.api})"


def session_of(capsule: Path) -> Path:
    """Return the session folder of a capsule."""
    return capsule.absolute().parent


def chain_of(target: Step) -> list[Step]:
    """Return the set-up calls of the target's receivers, oldest first, then the target.

    Of every set-up method the last call that returned before the target counts.

    Raises NotReplayableError if the making of a receiver is not among the recorded calls.
    """
    wanted = receivers_of(target.call)
    if not wanted:
        return [target]
    setups = _setups_before(target)
    chosen: dict[int, Step] = {}
    pending = sorted(wanted)
    seen: set[int] = set()
    while pending:
        number = pending.pop()
        if number in seen:
            continue
        seen.add(number)
        if number == target.call.sequence and _makes(target.call):
            continue
        steps = _last_of_each(number, setups)
        if number not in steps or not _makes(steps[number].call):
            raise NotReplayableError(target.text, [_unmade(target, number)])
        chosen.update(steps)
        for step in steps.values():
            pending += sorted(receivers_of(step.call) - seen)
    return [chosen[sequence] for sequence in sorted(chosen)] + [target]


def _makes(call: Call) -> bool:
    """Return whether a call makes its receiver, so that the call can be run on a bare one.

    An object that was unpickled or copied goes by the number of whatever was called on it first.
    """
    return call.api.endswith(".__init__")


def _unmade(target: Step, number: int) -> str:
    receiver = target.call.receiver
    owner = receiver.class_name if receiver and receiver.id == number else "an object"
    return (
        f"the making of {owner}, known since call {number}, is not among the recorded calls: it "
        "was made before recording began, not by a recorded __init__, or its capsule was dropped"
    )


def receivers_of(call: Call) -> set[int]:
    """Return the numbers of the objects a call needs: its receiver, and those among arguments."""
    found = {node.id for node in dump.call_nodes(call) if isinstance(node, dump.ReceiverNode)}
    if call.receiver is not None:
        found.add(call.receiver.id)
    return found


def _setups_before(target: Step) -> list[Step]:
    entries: list[CallEntry] = dump.list_calls(session_of(target.path))
    steps = []
    for entry in entries:
        if not entry.setup or entry.sequence >= target.call.sequence:
            continue
        try:
            call = dump.read_call(entry.path)
        except CapsuleError:
            continue  # a torn set-up call counts as absent, and its absence is reported
        if call.status == "returned":
            steps.append(Step(entry.path, call))
    return steps


def _last_of_each(number: int, setups: list[Step]) -> dict[int, Step]:
    """Return, by sequence number, the making of a receiver and the last call of each method."""
    own = [step for step in setups if step.call.receiver and step.call.receiver.id == number]
    inside = {step.call.sequence for step in own}
    last: dict[str, Step] = {}
    for step in own:
        if step.call.parent not in inside:  # an outer set-up call makes this one again
            last[step.call.api] = step
    return {step.call.sequence: step for step in last.values()}

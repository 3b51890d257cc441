"""Runs a rung before it is asked for."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from kernlib._facts import cpus
from kernlib.replay._protocol import Refused
from kernlib.replay._run import stop_child
from kernlib.replay._verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from kernlib.dump import Call
    from kernlib.replay._ladder import Outcome
    from kernlib.replay._rungs import Rung

__all__ = ["Ahead", "affordable"]

#: Two children hold a call's tensors at once.
_MOST_BYTES = 1 << 30


def affordable(call: Call) -> bool:
    """Return whether a second child can run beside the first without being in its way."""
    held = sum(storage.nbytes for storage in call.storages)
    return len(cpus()) > 1 and held <= _MOST_BYTES


def _is_spoilt(shown: Outcome, *, beside: bool) -> bool:
    """Return whether a rung may have ended as it did for want of room or time."""
    if shown.telling is None or any(isinstance(e, Refused) for e in shown.telling.end.events):
        return False
    late = beside and shown.verdict is Verdict.TIMED_OUT
    return late or shown.verdict is Verdict.NOT_REPLAYABLE


class Ahead:
    """Runs rungs, one of them beside the others: it is done, or nearly, when its turn comes.

    It is to be closed: then what still runs and was not asked for is stopped.
    """

    def __init__(self, run: Callable[[Rung], Outcome]) -> None:
        self._run = run
        self._pool = ThreadPoolExecutor(1)
        self._begun: dict[Rung, Future[Outcome]] = {}
        self._thread = 0

    def start(self, rung: Rung) -> None:
        """Begin with a rung."""
        self._begun[rung] = self._pool.submit(self._work, rung)

    def _work(self, rung: Rung) -> Outcome:
        self._thread = threading.get_ident()
        return self._run(rung)

    def outcome(self, rung: Rung) -> Outcome:
        """Return what a rung showed; it is run now unless it was begun with.

        One that did not come to its end beside another is run once more, alone.
        """
        begun = self._begun.get(rung)
        shown = self._run(rung) if begun is None else begun.result()
        if self._begun and _is_spoilt(shown, beside=begun is not None):
            self.close()
            self._begun.clear()
            return self._run(rung)
        return shown

    def close(self) -> None:
        """Stop what nobody has asked for."""
        for begun in self._begun.values():
            while not begun.done():
                stop_child(self._thread)
                wait([begun], 0.05)
        self._pool.shutdown()

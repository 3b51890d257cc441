"""Statistics that a device has yet to write."""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from kernlib.logging._destination import call_in_forked_children
from kernlib.logging._recorder import attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernlib.logging._call import Call

__all__ = ["Awaited", "AwaitedStatistics", "Group", "Measured"]

_logger = logging.getLogger("kernlib.recorder")
_SHORTEST_WAIT, _LONGEST_WAIT = 0.02, 1.0
_AT_EXIT = 0.5
_NEVER_CAME = "the device did not get to it"

#: Of which values of a call: a key of its log line.
Group: TypeAlias = Literal["args", "outputs"]
Statistics: TypeAlias = dict[str, float | int] | str


class Awaited(Protocol):
    """Statistics under way."""

    def poll(self) -> Statistics | None:
        """Return them once they are there, which may be asked no more then; until then None."""


Measured: TypeAlias = Statistics | Awaited


Tell: TypeAlias = "Callable[[str, int, Group, dict[str, Any]], None]"


@dataclass(slots=True, eq=False)
class _Waiting:
    tell: Tell
    api: str
    call: int
    group: Group
    awaited: dict[str, Awaited]
    found: dict[str, Statistics]

    def poll(self) -> bool:
        """Take what has come; true once nothing is missing."""
        for name in [*self.awaited]:
            if (found := self.awaited[name].poll()) is not None:
                self.found[name] = found
                del self.awaited[name]
        return not self.awaited


class AwaitedStatistics:
    """Tells the statistics of a call's tensors once the device has written them.

    ``tell`` gets the api's name, the call's number, what they are of, and the statistics by name.
    A thread looks for them while there are any to come; no device is ever waited for. What has not
    come by the end of the process is told as such: that far the device did not get.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = weakref.WeakMethod(tell)  # held by what waits, and then by nothing
        self._waiting: deque[_Waiting] = deque()
        self._lock = threading.Lock()
        self._settling = threading.Lock()
        self._looking = False
        self._failed = False
        call_in_forked_children(weakref.WeakMethod(self._forked))

    def add(self, call: Call, group: Group, awaited: Mapping[str, Awaited]) -> None:
        """Tell of these tensors of a call later."""
        if (tell := self._tell()) is None:
            return
        waiting = _Waiting(tell, call.api.name, call.sequence, group, dict(awaited), {})
        with self._lock:
            self._waiting.append(waiting)
            start, self._looking = not self._looking, True
        if start:
            threading.Thread(target=self._look, name="kernlib-awaited", daemon=True).start()
            atexit.unregister(self._end)
            atexit.register(self._end)

    def settle(self) -> bool:
        """Tell what has come; true if anything had."""
        with self._settling:  # what has come may be taken once
            with self._lock:
                waiting = [*self._waiting]
            arrived = [one for one in waiting if one.poll()]
            with self._lock:
                for one in arrived:
                    self._waiting.remove(one)
            for one in arrived:
                self._told(one)
        return bool(arrived)

    def _look(self) -> None:
        wait = _SHORTEST_WAIT
        while True:
            time.sleep(wait)
            wait = _SHORTEST_WAIT if self.settle() else min(2 * wait, _LONGEST_WAIT)
            with self._lock:
                if not self._waiting:
                    self._looking = False
                    return

    def _told(self, one: _Waiting) -> None:
        error = attempt(one.tell, one.api, one.call, one.group, one.found)
        if error is not None and not self._failed:
            self._failed = True
            _logger.warning(
                "the statistics of call %d (%s) could not be told: %s: %s (told once)",
                one.call, one.api, type(error).__name__, error,
            )  # fmt: skip

    def _end(self) -> None:
        """Give the device a moment at the end of the process, then say what is missing."""
        deadline = time.monotonic() + _AT_EXIT
        while self.settle() or (self._waiting and time.monotonic() < deadline):
            time.sleep(_SHORTEST_WAIT)
        with self._settling, self._lock:
            missing = [*self._waiting]
            self._waiting.clear()
        for one in missing:
            one.found |= dict.fromkeys(one.awaited, _NEVER_CAME)
            self._told(one)

    def _forked(self) -> None:
        """Let a forked child wait for nothing: the device is its parent's."""
        self._lock, self._settling = threading.Lock(), threading.Lock()
        self._waiting = deque()
        self._looking = False

"""Hands calls to the sinks and contains their failures."""

from __future__ import annotations

import inspect
import itertools
import logging
import os
import sys
import time
import weakref
from contextvars import ContextVar
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

from kernlib.logging._call import Call, Outer, SteppedCall
from kernlib.logging._stepped import Steps, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextvars import Token

    from kernlib.logging._call import RecordedApi, Sink
    from kernlib.logging._guard import Guard
    from kernlib.logging._rules import CallRules

__all__ = ["Recorder"]

_logger = logging.getLogger("kernlib.recorder")


def is_capturing() -> bool:
    """Return whether the current CUDA stream records a graph; never initialises CUDA."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        return bool(torch.cuda.is_current_stream_capturing())
    except RuntimeError:  # a lost device answers nothing; the application will hear of it itself
        return False


def _wait_for_device() -> None:
    """Wait for the current CUDA device, if this process uses one and may wait now."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized() and not is_capturing():
        torch.cuda.synchronize()


def attempt(step: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - the step's own
    """Return what a step of recording returns, or the exception that it raised."""
    try:
        return step(*arguments)
    # The one broad handler of the package: recording must never take the application down.
    except Exception as error:  # noqa: BLE001
        return error


def _forget_outer(reference: weakref.ref[Recorder]) -> None:
    """Let the calls of a forked child have no parent: what runs there runs in another session."""
    recorder = reference()
    if recorder is not None:
        recorder.current.set(None)


class Recorder:
    """Numbers calls, knows their nesting, and hands them to the sinks.

    ``current`` is the innermost call that runs in a context, or its number where nothing else
    was kept; ``failures`` counts, by sink and reason, what a sink could not record. ``guards``
    makes what refuses calls of an api, None where nothing does.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        *,
        sync: bool = False,
        rules: CallRules | None = None,
        guards: Callable[[RecordedApi], Guard | None] | None = None,
    ) -> None:
        self._sinks = tuple(sinks)
        self._guards = guards
        self._rules = rules
        self._sync = sync
        self.numbers = itertools.count(1)
        self.current: ContextVar[Call | int | None] = ContextVar("kernlib_call", default=None)
        self.failures: dict[tuple[str, str], int] = {}
        os.register_at_fork(after_in_child=partial(_forget_outer, weakref.ref(self)))

    def sinks_for(self, api: RecordedApi) -> tuple[Sink, ...]:
        """Return the sinks that want calls of this api; none: the api need not be wrapped."""
        return tuple(sink for sink in self._sinks if sink.wants(api))

    def guard_for(self, api: RecordedApi) -> Guard | None:
        """Return what looks at the arguments of an api's calls before they run, if anything."""
        return self._guards(api) if self._guards is not None else None

    def takes(self, api: RecordedApi) -> bool:
        """Return whether calls of this api are recorded or looked at."""
        return bool(self.sinks_for(api)) or self.guard_for(api) is not None

    def entry(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return what a call of the function is to become, by what its code makes of calls."""
        flags = function.__code__.co_flags if isinstance(function, FunctionType) else 0
        if flags & inspect.CO_ASYNC_GENERATOR:
            return self.stream
        return self.steps if flags & (inspect.CO_COROUTINE | inspect.CO_GENERATOR) else self.run

    def run(
        self,
        sinks: tuple[Sink, ...],
        api: RecordedApi,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:  # noqa: ANN401 - whatever the api returns
        """Call the api with its start and its end recorded; its exceptions pass unchanged."""
        number = next(self.numbers)
        if self._rules is not None and not self._rules.admit(number, api, args, kwargs):
            return api.function(*args, **kwargs)
        call = Call(api, args, kwargs, number, self.outer(), capturing=is_capturing())
        return self.run_call(sinks, call)

    @property
    def bare(self) -> bool:
        """Whether every call is recorded and nothing is done but that."""
        return self._rules is None and not self._sync

    def outer(self) -> Call | Outer | None:
        """Return the innermost call that runs in this context."""
        call = self.current.get()
        return Outer(call) if call.__class__ is int else call  # type: ignore[return-value]

    def run_call(self, sinks: tuple[Sink, ...], call: Call) -> Any:  # noqa: ANN401 - see run
        """Run a call that has its number."""
        for sink in sinks:
            self._guarded(sink, sink.started, call)
        token = self.current.set(call)
        begin = time.perf_counter()
        try:
            result = call.api.function(*call.args, **call.kwargs)
            if self._sync:
                _wait_for_device()
        except BaseException as error:
            self._leave(call, token, begin)
            for sink in sinks:
                self._guarded(sink, sink.raised, call, error)
            call.forget()
            raise
        self._leave(call, token, begin)
        for sink in sinks:
            self._guarded(sink, sink.returned, call, result)
        call.forget()
        return result

    def steps(
        self,
        sinks: tuple[Sink, ...],
        api: RecordedApi,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:  # noqa: ANN401 - a skipped call is the body itself
        """Return a call of a generator (``yield from`` it) or of a coroutine (``await`` it)."""
        call = self._stepped(api, args, kwargs)
        return Steps(self, sinks, call) if call is not None else api.function(*args, **kwargs)

    def stream(
        self,
        sinks: tuple[Sink, ...],
        api: RecordedApi,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:  # noqa: ANN401 - a skipped call is the body itself
        """Return a call of an asynchronous generator."""
        call = self._stepped(api, args, kwargs)
        return Stream(self, sinks, call) if call is not None else api.function(*args, **kwargs)

    def tell(self, sinks: Iterable[Sink], event: str, *facts: object) -> None:
        """Hand an event of a call to sinks by the name of their method."""
        for sink in sinks:
            self._guarded(sink, getattr(sink, event), *facts)

    def settle(self) -> None:
        """Wait for the device where faults are to show in the call that made them."""
        if self._sync:
            _wait_for_device()

    def _stepped(
        self, api: RecordedApi, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> SteppedCall | None:
        """Return a new call of a body that runs in steps; None if the rules skip it."""
        number = next(self.numbers)
        if self._rules is not None and not self._rules.admit(number, api, args, kwargs):
            return None
        return SteppedCall(api, args, kwargs, number, self.outer(), capturing=is_capturing())

    def _leave(self, call: Call, token: Token[Call | int | None], begin: float) -> None:
        call.seconds = time.perf_counter() - begin
        token.var.reset(token)

    def _guarded(self, sink: Sink, step: Callable[..., None], *arguments: object) -> None:
        error = attempt(step, *arguments)
        if error is not None:
            self._count(sink, error)

    def _count(self, sink: Sink, error: Exception) -> None:
        key = (type(sink).__name__, type(error).__name__)
        sink.failed()
        self.failures[key] = self.failures.get(key, 0) + 1
        if self.failures[key] == 1:
            _logger.warning(
                "%s could not record a call and goes on without it: %s: %s "
                "(told once; further failures are counted)",
                *key,
                error,
            )

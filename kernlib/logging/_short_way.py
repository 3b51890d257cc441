"""The short way of a call, by the native recorder."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from kernlib.config import Level
from kernlib.logging._call import BOUND, Call, Sink
from kernlib.logging._recorder import attempt, is_capturing

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernlib.logging._call import RecordedApi
    from kernlib.logging._recorder import Recorder

__all__ = ["NativeRecorder", "NativeTarget", "short_way"]

#: A way of calling an api whose values the native recorder refused so often is left to Python.
_PATIENCE = 16
_MOST_WAYS = 1000
_LEFT_TO_PYTHON = -1


class NativeRecorder(NamedTuple):
    """The functions of the native recorder."""

    map_ring: Callable[..., int]
    unmap_ring: Callable[..., None]
    started: Callable[..., int]
    ended: Callable[..., int]
    append: Callable[..., None]
    add_lines: Callable[..., int]
    line_started: Callable[..., int]
    line_ended: Callable[..., int]
    add_site: Callable[..., int]


class NativeTarget(NamedTuple):
    """Where the native recorder writes: a number it gave out, and what writes there.

    ``owner`` is what must live until the last one who writes there has written.
    """

    number: int
    started: Callable[..., int]
    ended: Callable[..., int] | None
    add_site: Callable[..., int]
    owner: object


@runtime_checkable
class _NativeSink(Sink, Protocol):
    """A sink whose work the native recorder can do; ``native`` is None until it does."""

    level: Level
    native: NativeTarget | None


class _Sites:
    """The ways in which an api has been called, and what each is to the native recorder.

    A way is how many arguments stand in their places and which are named. Its number is negative
    where Python has to describe the values.
    """

    def __init__(self, api: RecordedApi, *, with_values: bool) -> None:
        self._api = api
        self._with_values = with_values
        self._numbers: dict[object, int] = {}
        self._refused: dict[object, int] = {}
        self.get = self._numbers.get

    def add(self, way: object, call: Call, add_site: Callable[[bytes, bytes], int]) -> int:
        """Register a way of calling and return its number, a negative one if there are too many."""
        if len(self._numbers) >= _MOST_WAYS:
            return _LEFT_TO_PYTHON
        names = [call.api.name, *call.named()] if self._with_values else [call.api.name]
        results = [call.api.name, "result"] if self._with_values else [call.api.name]
        joined = ("\0".join(texts).encode(errors="replace") for texts in (names, results))
        self._numbers[way] = number = add_site(*joined)
        return number

    def refuse(self, way: object) -> None:
        """Count that a call of this way had a value without a plain form."""
        self._refused[way] = count = self._refused.get(way, 0) + 1
        if count >= _PATIENCE:
            self._numbers[way] = _LEFT_TO_PYTHON


def short_way(
    recorder: Recorder, sinks: tuple[Sink, ...], api: RecordedApi
) -> Callable[[tuple[Any, ...], dict[str, Any]], Any] | None:
    """Return what a call is to become where the native recorder can do all that its sinks do.

    None where it cannot: there are several sinks, statistics, rules, or waiting for the device.
    """
    (sink, *others) = sinks
    if others or not isinstance(sink, _NativeSink) or sink.level > Level.ARGS or not recorder.bare:
        return None
    return _ShortWay(recorder, sink, api).enter


class _ShortWay:
    """Two native calls around the api.

    Until the native recorder is there, and for values without a plain form, calls go the
    long way, through the sink.
    """

    def __init__(self, recorder: Recorder, sink: _NativeSink, api: RecordedApi) -> None:
        self._recorder = recorder
        self._sink = sink
        self._sinks: tuple[Sink, ...] = (sink,)
        self._api = api
        self._function = api.function
        self._with_values = sink.level >= Level.ARGS
        self._sites = _Sites(api, with_values=self._with_values)
        self._values: Callable[..., tuple[Any, ...]] = _no_values
        if self._with_values:
            self._values = _bound_values if api.kind in BOUND else _values

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - the api's own
        """Call the api with its start and its end recorded; its exceptions pass unchanged."""
        native, recorder = self._sink.native, self._recorder
        way: object = (len(args), *kwargs) if kwargs else len(args)
        site: Any = self._sites.get(way)
        if site is None and native is not None:
            site = attempt(self._sites.add, way, self._call(args, kwargs), native.add_site)
        if native is None or site.__class__ is not int or site == _LEFT_TO_PYTHON:
            return recorder.run(self._sinks, self._api, args, kwargs)
        number, current, capturing = next(recorder.numbers), recorder.current, is_capturing()
        outer: Any = current.get() or 0
        if outer.__class__ is not int:
            outer = outer.sequence
        values = self._values(args, kwargs)
        moment = attempt(native.started, native.number, site, number, outer, capturing, *values)
        if moment.__class__ is not int or not moment:
            self._sites.refuse(way)
            call = self._call(args, kwargs, number, capturing=capturing)
            return recorder.run_call(self._sinks, call)
        token = current.set(number)
        try:
            result = self._function(*args, **kwargs)
        except BaseException as error:
            current.reset(token)
            self._tell("raised", self._call(args, kwargs, number), moment, error)
            raise
        current.reset(token)
        if native.ended is None:
            return result
        outcome = (result,) if self._with_values else ()
        if attempt(native.ended, native.number, site, number, moment, *outcome) != 1:
            self._tell("returned", self._call(args, kwargs, number), moment, result)
        return result

    def _call(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        number: int = 0,
        *,
        capturing: bool = False,
    ) -> Call:
        return Call(self._api, args, kwargs, number, self._recorder.outer(), capturing=capturing)

    def _tell(self, event: str, call: Call, moment: int, outcome: object) -> None:
        """Let Python describe the end of a call that began at a moment of the monotonic clock."""
        call.seconds = (time.monotonic_ns() - moment) / 1e9
        call.capturing = is_capturing()
        self._recorder.tell(self._sinks, event, call, outcome)


def _no_values(_args: tuple[Any, ...], _kwargs: dict[str, Any]) -> tuple[Any, ...]:
    return ()


def _values(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    return (*args, *kwargs.values()) if kwargs else args


def _bound_values(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    return (*args[1:], *kwargs.values())

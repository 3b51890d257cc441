"""Puts a recorder around a function."""

from __future__ import annotations

import dataclasses
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kernlib.logging._short_way import short_way
from kernlib.logging._switch import Switch, clone, forwarding

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernlib.logging._call import RecordedApi
    from kernlib.logging._guard import Guard
    from kernlib.logging._recorder import Recorder
    from kernlib.logging._switch import Enter

__all__ = ["connect", "recorded"]

Function = TypeVar("Function", bound="Callable[..., Any]")


def recorded(function: Function, api: RecordedApi, recorder: Recorder | None) -> Function:
    """Return a function that records what it hands to ``function``, which itself stays as it is.

    With no recorder, or none of its sinks wanting the api, that is the function object itself:
    what is not recorded costs nothing.
    """
    plain = isinstance(function, FunctionType)
    public = clone(cast("FunctionType", function)) if plain else forwarding(function)
    switched = connect(Switch(public, function), api, recorder)
    return cast("Function", public) if switched else function


def connect(switch: Switch, api: RecordedApi, recorder: Recorder | None) -> bool:
    """Let the calls of a function be recorded and its arguments be looked at.

    It runs on its own if no sink wants them and nothing guards it.
    """
    sinks = recorder.sinks_for(api) if recorder is not None else ()
    guard = recorder.guard_for(api) if recorder is not None else None
    if recorder is None or not (sinks or guard):
        switch.restore()
        return False
    switch.divert(_entry(switch.body, api, recorder, guard) if sinks else _guarded(switch, guard))
    return True


def _guarded(switch: Switch, guard: Guard | None) -> Enter:
    """Return what a call becomes that is not recorded, only looked at."""
    body, look = switch.body, cast("Guard", guard).look

    def enter(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - the api's own
        look(args, kwargs)
        return body(*args, **kwargs)

    return enter


def _entry(
    body: Callable[..., Any], api: RecordedApi, recorder: Recorder, guard: Guard | None
) -> Enter:
    """Return what a call becomes; the api handed on is the one whose function is the body.

    What a guard refuses is recorded as raised by the body.
    """
    sinks = recorder.sinks_for(api)
    function = guard.around(body) if guard is not None else body
    running = dataclasses.replace(cast("Any", api), function=function)
    entry = recorder.entry(body)
    short = short_way(recorder, sinks, running) if entry == recorder.run else None
    return short or partial(entry, sinks, running)

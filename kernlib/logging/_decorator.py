"""Puts a recorder around a function."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernlib.logging._call import RecordedApi
    from kernlib.logging._recorder import Recorder

__all__ = ["recorded"]

Function = TypeVar("Function", bound="Callable[..., Any]")


def recorded(function: Function, api: RecordedApi, recorder: Recorder | None) -> Function:
    """Return ``function`` with its calls recorded.

    With no recorder, or none of its sinks wanting the api, that is the function object itself:
    what is not recorded costs nothing.
    """
    sinks = recorder.sinks_for(api) if recorder is not None else ()
    if recorder is None or not sinks:
        return function

    run = recorder.run

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the api's own types
        return run(sinks, api, args, kwargs)

    return cast("Function", wrapper)

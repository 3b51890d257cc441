"""Exchanges the code of a function while the process runs.

A function object may be held anywhere: imported by name, bound to objects, put into partials and
defaults. Only what it runs can be changed for all of them, and that is its code object.
"""

from __future__ import annotations

import functools
import inspect
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    Enter = Callable[[tuple[Any, ...], dict[str, Any]], Any]

__all__ = ["Switch", "clone", "forwarding"]


class _Thrown:
    """Keeps what is thrown into a generator where it waits, so that it can be thrown on."""

    error: BaseException | None = None

    def __enter__(self) -> None:
        self.error = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object
                 ) -> bool:  # fmt: skip
        self.error = error
        return kind is not None and not issubclass(kind, GeneratorExit)


# Code for functions of any module: no globals, no closure, so what it needs are constants. The
# texts stand in the places of a callable and of the class above.


def _plain(*_args: Any, **_kwargs: Any) -> Any:  # noqa: ANN401 - any function's
    enter: Any = "kernlib: enter"
    return enter(_args, _kwargs)


def _generator(*_args: Any, **_kwargs: Any) -> Generator[Any, Any, Any]:  # noqa: ANN401 - any function's
    enter: Any = "kernlib: enter"
    return (yield from enter(_args, _kwargs))


async def _coroutine(*_args: Any, **_kwargs: Any) -> Any:  # noqa: ANN401 - any function's
    enter: Any = "kernlib: enter"
    return await enter(_args, _kwargs)


async def _async_generator(*_args: Any, **_kwargs: Any) -> AsyncGenerator[Any, Any]:  # noqa: ANN401 - any function's
    enter: Any = "kernlib: enter"
    kind: Any = "kernlib: thrown"
    thrown, inner, sent = kind(), enter(_args, _kwargs), None
    try:
        while True:
            if thrown.error is None:
                item = await inner.asend(sent)
            else:
                item = await inner.athrow(thrown.error)
            with thrown:
                sent = yield item
    except GeneratorExit:
        await inner.aclose()
        raise
    except StopAsyncIteration:
        return


#: What a caller gets from a function depends on these flags of its code, so they have to stay.
_TEMPLATES = (
    (inspect.CO_ASYNC_GENERATOR, _async_generator.__code__),
    (inspect.CO_COROUTINE, _coroutine.__code__),
    (inspect.CO_GENERATOR, _generator.__code__),
)
_HIDDEN = ("__wrapped__", "__signature__")


def _handing_over(code: CodeType, enter: Enter) -> CodeType:
    """Return code that calls ``enter`` and can be put into any function that has ``code``."""
    found = (template for flag, template in _TEMPLATES if code.co_flags & flag)
    template = next(found, _plain.__code__)
    values = {"kernlib: enter": enter, "kernlib: thrown": _Thrown}
    return template.replace(
        co_name=code.co_name,
        co_freevars=code.co_freevars,  # the function's closure fits no other number
        co_consts=tuple(
            values.get(const, const) if isinstance(const, str) else const
            for const in template.co_consts
        ),
        co_flags=template.co_flags | (code.co_flags & inspect.CO_ITERABLE_COROUTINE),
    )


def clone(function: FunctionType) -> FunctionType:
    """Return a function of its own that runs the same code with the same defaults and closure."""
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(copy, function)
    del copy.__dict__["__wrapped__"]
    copy.__dict__.update(function.__dict__)
    return copy


def forwarding(target: Callable[..., Any]) -> FunctionType:
    """Return a function that only calls ``target``, which has no code to exchange."""

    @functools.wraps(target)
    def forward(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the target's own types
        return target(*args, **kwargs)

    return cast("FunctionType", forward)


class Switch:
    """One function that can hand its calls over, and be as it was again.

    Its code is exchanged in one step: a thread that is inside the function finishes what it has
    begun. ``body`` runs what the function runs when it hands nothing over; a clone by default.
    """

    def __init__(self, function: FunctionType, body: Callable[..., Any] | None = None) -> None:
        self.function = function
        self._given = body
        self._body = body
        self._code: CodeType | None = None
        self._ours: CodeType | None = None
        self._before: dict[str, Any] = {}

    @property
    def body(self) -> Callable[..., Any]:
        """Runs the function's own code, whatever the function itself does at present."""
        if self._body is None:
            self._body = clone(self.function)
        return self._body

    def divert(self, enter: Enter) -> None:
        """Let every call, by whatever name it is made, be ``enter(args, kwargs)``."""
        body, names = self.body, self.function.__dict__
        if self._code is None:
            self._code = self.function.__code__
            self._before = {name: names[name] for name in _HIDDEN if name in names}
            names["__signature__"] = _signature(body)
            names["__wrapped__"] = body
        self._ours = self.function.__code__ = _handing_over(self._code, enter)

    def restore(self) -> None:
        """Give the function its own code back, unless another tool has exchanged it since."""
        self._body = self._given
        if self._code is None:
            return
        if self.function.__code__ is self._ours:
            self.function.__code__ = self._code
        for name in _HIDDEN:
            self.function.__dict__.pop(name, None)
        self.function.__dict__.update(self._before)
        self._code = self._ours = None


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return what the function tells of its parameters; None, for Python to ask, if nothing."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None

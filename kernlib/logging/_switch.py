"""Exchanges the code of a function while the process runs.

A function object may be held anywhere: imported by name, bound to objects, put into partials and
defaults. Only what it runs can be changed for all of them, and that is its code object.
"""

from __future__ import annotations

import functools
import inspect
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Callable

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


# Code for functions of any module: what it needs comes in as defaults of the function that it is
# put into, since its globals and its closure are the function's own. Constants would do as well,
# but torch.compile knows of no constants that are callables.


def _plain(*_args: Any, _kernlib_enter: Any, **_kwargs: Any) -> Any:  # noqa: ANN401
    return _kernlib_enter(_args, _kwargs)


def _generator(*_args: Any, _kernlib_enter: Any, **_kwargs: Any) -> Any:  # noqa: ANN401
    return (yield from _kernlib_enter(_args, _kwargs))


async def _coroutine(*_args: Any, _kernlib_enter: Any, **_kwargs: Any) -> Any:  # noqa: ANN401
    return await _kernlib_enter(_args, _kwargs)


async def _async_generator(
    *_args: Any,  # noqa: ANN401
    _kernlib_enter: Any,  # noqa: ANN401
    _kernlib_thrown: Any,  # noqa: ANN401
    **_kwargs: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    thrown, inner, sent = _kernlib_thrown(), _kernlib_enter(_args, _kwargs), None
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
#: Keeps torch.compile from tracing the recorder: it calls the function as it is.
_DISABLE = "_torchdynamo_disable"
_NAMES = ("__wrapped__", "__signature__", _DISABLE)


def _handing_over(code: CodeType) -> CodeType:
    """Return code that calls what it is given and can be put into any function with ``code``."""
    found = (template for flag, template in _TEMPLATES if code.co_flags & flag)
    template = next(found, _plain.__code__)
    return template.replace(
        co_name=code.co_name,
        co_freevars=code.co_freevars,  # the function's closure fits no other number
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


class _Own(NamedTuple):
    """What a function had before, to be given back."""

    code: CodeType
    kwdefaults: dict[str, Any] | None
    named: dict[str, Any]


class Switch:
    """One function that can hand its calls over, and be as it was again.

    Its code is exchanged in one step: a thread that is inside the function finishes what it has
    begun. ``body`` runs what the function runs when it hands nothing over; a clone by default.
    """

    def __init__(self, function: FunctionType, body: Callable[..., Any] | None = None) -> None:
        self.function = function
        self._given = body
        self._body = body
        self._own: _Own | None = None

    @property
    def body(self) -> Callable[..., Any]:
        """Runs the function's own code, whatever the function itself does at present."""
        if self._body is None:
            self._body = clone(self.function)
        return self._body

    def divert(self, enter: Enter) -> None:
        """Let every call, by whatever name it is made, be ``enter(args, kwargs)``."""
        function, body, names = self.function, self.body, self.function.__dict__
        own = self._own
        if own is None:
            named = {name: names[name] for name in _NAMES if name in names}
            own = self._own = _Own(function.__code__, function.__kwdefaults__, named)
            names |= {"__wrapped__": body, "__signature__": _signature(body), _DISABLE: True}
        # The defaults come first and leave last: own code takes no notice of what it never names.
        given = {"_kernlib_enter": enter, "_kernlib_thrown": _Thrown}
        function.__kwdefaults__ = {**(own.kwdefaults or {}), **given}
        if function.__code__ is own.code:
            function.__code__ = _handing_over(own.code)

    def restore(self) -> None:
        """Give the function its own code back, unless another tool has exchanged it since."""
        function, own = self.function, self._own
        self._body, self._own = self._given, None
        if own is None:
            return
        if function.__code__.co_filename == __file__:
            function.__code__ = own.code
        function.__kwdefaults__ = own.kwdefaults
        for name in _NAMES:
            function.__dict__.pop(name, None)
        function.__dict__.update(own.named)


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return what the function tells of its parameters; None, for Python to ask, if nothing."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None

"""One invocation of an api while it is recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BOUND", "Call", "Outer", "RecordedApi", "Sink", "SteppedCall", "SteppedSink"]


#: Kinds whose first argument the language passes.
BOUND = ("method", "classmethod")
Kind = Literal["function", "method", "staticmethod", "classmethod"]


class RecordedApi(Protocol):
    """What the recorder needs to know of an api."""

    @property
    def name(self) -> str:
        """The qualified name without the package."""

    @property
    def function(self) -> Callable[..., Any]:
        """The function itself."""

    @property
    def setup(self) -> bool:
        """Whether later calls on the receiver rely on this one."""

    @property
    def kind(self) -> Kind:
        """What the function is."""

    @property
    def module(self) -> str:
        """The module that defines the function."""

    @property
    def package(self) -> str:
        """The top-level package that defines the function."""

    @property
    def owner(self) -> str | None:
        """The qualified name of the class, for methods."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names that positional arguments are bound to."""


class Outer(NamedTuple):
    """An outer call of which no more than its number was kept."""

    sequence: int
    receiver: None = None


@dataclass(slots=True)
class Call:
    """One call: what was passed, and where each sink keeps what it needs at the end."""

    api: RecordedApi
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    sequence: int
    parent: Call | Outer | None
    capturing: bool
    seconds: float = 0.0
    state: dict[object, Any] = field(default_factory=dict)

    @property
    def receiver(self) -> object | None:
        """The object whose method was called, or None for functions."""
        return self.args[0] if self.api.kind == "method" and self.args else None

    @property
    def plain_args(self) -> tuple[Any, ...]:
        """The positional arguments without the receiver or the class."""
        return self.args[1:] if self.api.kind in BOUND else self.args

    def forget(self) -> None:
        """Let go of what was passed and of the outer call, now that this one has ended.

        The context of a task that was made inside knows this call for as long as the task lives.
        """
        self.args, self.kwargs, self.parent = (), {}, None

    def named(self) -> dict[str, Any]:
        """Return the arguments by the names of the signature, defaults left out."""
        args = self.plain_args
        names = self.api.parameters[len(self.args) - len(args) :]
        named: dict[str, Any] = dict(zip(names, args, strict=False))
        for at in range(len(names), len(args)):
            named[f"args[{at}]"] = args[at]
        named.update(self.kwargs)
        return named


@dataclass(slots=True)
class SteppedCall(Call):
    """A call whose body stops and goes on: a coroutine's or a generator's.

    ``seconds`` counts while its body runs. ``items`` is how many a generator has yielded (None:
    a coroutine), ``answered`` whether anything was sent or thrown into it, ``closed`` whether it
    was told to end before its end.
    """

    items: int | None = None
    answered: bool = False
    closed: bool = False


class Sink(Protocol):
    """Where recorded calls go; whatever it raises is counted and kept from the application."""

    def wants(self, api: RecordedApi) -> bool:
        """Return whether calls of this api are to be handed in; asked once an api."""

    def started(self, call: Call) -> None:
        """Take the call's inputs, before anything can be launched."""

    def returned(self, call: Call, result: object) -> None:
        """Take the call's result; of a generator or coroutine that was closed it is None."""

    def raised(self, call: Call, error: BaseException) -> None:
        """Take the exception that left the call."""

    def failed(self) -> None:
        """Count a step of this sink that raised; must not raise itself."""


@runtime_checkable
class SteppedSink(Sink, Protocol):
    """A sink that tells a call that is running from one that waits for its caller."""

    def suspended(self, call: SteppedCall) -> None:
        """Take notice that the body has stopped, with nothing of it running."""

    def resumed(self, call: SteppedCall) -> None:
        """Take notice that the body is about to go on."""

"""Refuses a call whose arguments break a precondition."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any, Protocol

from kernlib.errors import InvalidInputError
from kernlib.logging._recorder import attempt, is_capturing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Guard", "Problem"]

_logger = logging.getLogger("kernlib.recorder")


class Problem(Protocol):
    """What a check has found."""

    @property
    def argument(self) -> str:
        """The name of the argument."""

    @property
    def message(self) -> str:
        """What is wrong with it, in a sentence."""


class Guard:
    """Evaluates the checks of an api before each of its calls.

    ``problems`` takes the arguments of a call and gives, check by check, a function that returns
    what that check finds. ``skipped`` counts calls that were not looked at, since a CUDA graph was
    being captured; ``failures`` counts checks that failed themselves.
    """

    def __init__(
        self,
        api: str,
        problems: Callable[[tuple[Any, ...], dict[str, Any]], list[Callable[[], list[Problem]]]],
    ) -> None:
        self._api = api
        self._problems = problems
        self.skipped = 0
        self.failures = 0

    def look(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise InvalidInputError if a call with these arguments breaks a precondition."""
        if is_capturing():
            self.skipped += 1
            if self.skipped == 1:
                _logger.warning(
                    "%s is called while a CUDA graph is captured, when no data may be read: its "
                    "preconditions are not checked there (told once)",
                    self._api,
                )
            return
        for found in self._found(args, kwargs):
            raise InvalidInputError(self._api, found.argument, found.message)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that looks at its arguments, then calls the one given."""

        @functools.wraps(function)
        def looked_at(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the function's own types
            self.look(args, kwargs)
            return function(*args, **kwargs)

        return looked_at

    def _found(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Problem]:
        steps = attempt(self._problems, args, kwargs)
        if isinstance(steps, Exception):
            # The function itself tells of arguments that do not fit its signature.
            if not isinstance(steps, TypeError):
                self._count(steps)
            return
        for step in steps:
            found = attempt(step)
            if isinstance(found, Exception):
                self._count(found)
            else:
                yield from found

    def _count(self, error: Exception) -> None:
        self.failures += 1
        if self.failures == 1:
            _logger.warning(
                "a check of %s failed, and the call goes on without it: %s: %s "
                "(told once; further failures are counted)",
                self._api, type(error).__name__, error,
            )  # fmt: skip

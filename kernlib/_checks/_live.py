"""The arguments of a call that is about to run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import inspect
    from collections.abc import Iterator

__all__ = ["LiveValues"]

_RECEIVER = "self."


class LiveValues(Mapping[str, object]):
    """What checks read of a call: its arguments with their defaults, the receiver's attributes."""

    def __init__(self, arguments: dict[str, Any], receiver: object = None) -> None:
        self._arguments = arguments
        self._receiver = receiver

    @classmethod
    def of(
        cls,
        signature: inspect.Signature,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        bound: bool,
    ) -> LiveValues:
        """Return the values of a call; ``bound``: the first argument is the receiver.

        Raises TypeError as the call itself would if the arguments do not fit the signature.
        """
        found = signature.bind(*args, **kwargs)
        found.apply_defaults()
        return cls(dict(found.arguments), args[0] if bound and args else None)

    def __getitem__(self, name: str) -> object:
        if not name.startswith(_RECEIVER):
            return self._arguments[name]
        try:
            return getattr(self._receiver, name.removeprefix(_RECEIVER))
        except AttributeError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._arguments)

    def __len__(self) -> int:
        return len(self._arguments)

"""Which objects were recorded, and what set them up."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernlib.logging._call import Call

__all__ = ["Receivers", "state_of"]


def state_of(receiver: object) -> dict[str, Any]:
    """Return the attributes of an object: its ``__dict__`` and its filled slots."""
    state: dict[str, Any] = {}
    for kind in type(receiver).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in {"__dict__", "__weakref__"} and hasattr(receiver, name):
                state[name] = getattr(receiver, name)
    state.update(getattr(receiver, "__dict__", {}))
    return state


class Receivers:
    """Numbers receivers by the call that made them, and pins the calls that set them up.

    A later set-up call of the same name takes the place of the earlier one; when a receiver
    dies, all of its set-up calls are let go.
    """

    def __init__(self, pin: Callable[[int], None], unpin: Callable[[int], None]) -> None:
        self._pin = pin
        self._unpin = unpin
        self._numbers: dict[int, int] = {}
        self._setups: dict[int, dict[str, int]] = {}

    def number(self, value: object) -> int | None:
        """Return the number of a receiver, or None for any other object."""
        return self._numbers.get(id(value))

    def entered(self, call: Call) -> int | None:
        """Take notice of a call; return the number of its receiver, None for functions."""
        receiver = call.receiver
        if receiver is None:
            return None
        number = self._numbers.get(id(receiver))
        if number is None or self._makes_anew(call):
            number = call.sequence
            self._register(receiver, number)
        return number

    def pin_setup(self, call: Call) -> None:
        """Pin a set-up call once the session holds its capsule."""
        if call.api.setup and call.receiver is not None:
            self._pin(call.sequence)

    def left(self, call: Call, *, worked: bool) -> None:
        """Take notice of the end of a set-up call."""
        if not call.api.setup or call.receiver is None:
            return
        setups = self._setups.get(self._numbers.get(id(call.receiver), 0))
        if setups is None or not worked:
            self._unpin(call.sequence)
            return
        before = setups.get(call.api.name)
        setups[call.api.name] = call.sequence
        if before is not None:
            self._unpin(before)

    def _makes_anew(self, call: Call) -> bool:
        """Return whether this is an ``__init__`` that no other one of the object has called."""
        inner = call.parent is not None and call.parent.receiver is call.receiver
        return call.api.name.endswith(".__init__") and not inner

    def _register(self, receiver: object, number: int) -> None:
        self._numbers[id(receiver)] = number
        self._setups[number] = {}
        try:
            weakref.finalize(receiver, self._died, id(receiver), number).atexit = False
        except TypeError:
            return  # no weak references to this class: its set-up calls stay for good

    def _died(self, identity: int, number: int) -> None:
        if self._numbers.get(identity) == number:
            del self._numbers[identity]
        for sequence in self._setups.pop(number, {}).values():
            self._unpin(sequence)

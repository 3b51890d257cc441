"""What a check reads, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from kernlib._checks._layout import Layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch

    Values = Mapping[str, object]

__all__ = ["Check", "Finding", "Outcome", "bare", "data", "evaluate", "label", "layout", "missed",
           "number", "run_checks"]  # fmt: skip

#: What a check may raise on a value that it was not written for.
_FAILURES = (
    ArithmeticError, AssertionError, AttributeError, BufferError, LookupError, MemoryError,
    RuntimeError, TypeError, ValueError,
)  # fmt: skip
#: Elements that a view may show more often than its memory holds them.
_REPEATED = 1 << 24


@dataclass(frozen=True, slots=True)
class Finding:
    """An argument that breaks a declared precondition."""

    argument: str
    message: str


class Check(Protocol):
    """A declared precondition."""

    def findings(self, values: Values) -> list[Finding]:
        """Return what breaks the precondition; an empty list if nothing does."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What evaluating one check came to; ``reason`` says why one is ``unknown``."""

    check: Check
    state: Literal["broken", "held", "unknown"]
    findings: tuple[Finding, ...] = ()
    reason: str = ""


class _Watched(Mapping[str, object]):
    """Values that remember what a check asked for and did not get."""

    def __init__(self, values: Values) -> None:
        self.values_ = values
        self.missed: dict[str, str] = {}

    def __getitem__(self, name: str) -> object:
        try:
            return self.values_[name]
        except KeyError:
            why = getattr(self.values_, "why_absent", None)
            self.missed[name] = why(name) if why is not None else "is not known"
            raise

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_)

    def __len__(self) -> int:
        return len(self.values_)


def evaluate(checks: Iterable[Check], values: Values) -> list[Outcome]:
    """Evaluate ``checks`` in their order; one that fails on a value is ``unknown``."""
    return [_outcome(check, _Watched(values)) for check in checks]


def run_checks(checks: Iterable[Check], values: Values) -> list[Finding]:
    """Evaluate ``checks`` in their order and return all findings."""
    return [found for outcome in evaluate(checks, values) for found in outcome.findings]


def label(check: Check) -> str:
    """Return how a check is called in a list: its kind and the arguments that it reads."""
    fields = getattr(type(check), "__dataclass_fields__", {})
    parts = (getattr(check, name) for name in fields)
    names = [part if isinstance(part, str) else part.text() for part in parts
             if hasattr(part, "text") or (isinstance(part, str) and part)]  # fmt: skip
    return f"{type(check).__name__}({', '.join(bare(name) for name in names[:2])})"


def bare(name: str) -> str:
    """Return a name as messages show it."""
    return name.removeprefix("self.")


def layout(values: Values, name: str) -> Layout | None:
    """Return how a tensor lies in memory, which needs none of its data; None if it is none."""
    of = getattr(values.values_ if isinstance(values, _Watched) else values, "layout", None)
    found = of(name) if of is not None else None
    if found is None:
        found = Layout.of(values.get(name))
        if found is None:
            _no_tensor(values, name)
            return None
    address = values.get(f"{name}.address") if of is None and f"{name}.address" in values else None
    return found.at(address) if isinstance(address, int) else found


def data(values: Values, name: str) -> torch.Tensor | None:
    """Return a tensor to read elements of; None if it is none, or shows far more than it has.

    Integers come to the host, which waits for their device.
    """
    value = values.get(name)
    if value is None:
        return None
    import torch

    if not isinstance(value, torch.Tensor):
        _no_tensor(values, name)
        return None
    if value.numel() > _REPEATED and value.numel() * value.element_size() > _nbytes(value):
        missed(values, name, "shows its memory too often to be read")
        return None
    tensor = value.detach()
    return tensor if tensor.is_floating_point() or tensor.is_complex() else tensor.cpu()


def number(values: Values, name: str) -> int | float | None:
    """Return a plain number; None if the value is none."""
    value = values.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    if value is not None:
        missed(values, name, f"is {_kind(value)}, no number")
    return None


def _outcome(check: Check, values: _Watched) -> Outcome:
    try:
        found = tuple(check.findings(values))
    except _FAILURES as error:
        text = (str(error).splitlines() or [""])[0][:200]
        return Outcome(check, "unknown", (), f"it failed: {type(error).__name__}: {text}")
    if found:
        return Outcome(check, "broken", found)
    reasons = {name: why for name, why in values.missed.items() if not name.endswith(".address")}
    reason = "; ".join(f"{bare(name)} {why}" for name, why in reasons.items())
    return Outcome(check, "unknown" if reasons else "held", (), reason)


def _no_tensor(values: Values, name: str) -> None:
    value = values.get(name)
    if value is not None:
        missed(values, name, f"is {_kind(value)}, no tensor")


def missed(values: Values, name: str, why: str) -> None:
    """Say that a check could not be evaluated, since an argument is not what it would need."""
    if isinstance(values, _Watched):
        values.missed[name] = why


def _kind(value: object) -> str:
    return type(value).__name__


def _nbytes(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().nbytes())

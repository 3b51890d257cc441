"""Preconditions an operator declares, evaluated on recorded arguments.

A check reads *values*: a mapping from argument names to CPU tensors and plain values. Names are
those of the signature (``q``); attributes of the receiver are written ``self.kv_indices``. A name
that is absent, None or of another kind makes a check silent: what is not known is not judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import torch

    Values = Mapping[str, object]

__all__ = [
    "Aligned",
    "AllInRange",
    "Check",
    "Finding",
    "LengthsInRange",
    "Monotone",
    "SameSize",
    "Size",
    "run_checks",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """An argument that breaks a declared precondition."""

    argument: str
    message: str


class Check(Protocol):
    """A declared precondition."""

    def findings(self, values: Values) -> list[Finding]:
        """Return what breaks the precondition; an empty list if nothing does."""


def run_checks(checks: Iterable[Check], values: Values) -> list[Finding]:
    """Evaluate ``checks`` in their order and return all findings."""
    return [finding for check in checks for finding in check.findings(values)]


def _tensor(values: Values, name: str) -> torch.Tensor | None:
    import torch

    value = values.get(name)
    return value if isinstance(value, torch.Tensor) else None


def _bare(name: str) -> str:
    return name.removeprefix("self.")


def _element(tensor: torch.Tensor, flat: int) -> tuple[str, int]:
    """Return the bracketed index of an element and its value."""
    import torch

    index = [int(part) for part in torch.unravel_index(torch.tensor(flat), tensor.shape)]
    return "".join(f"[{part}]" for part in index), int(tensor[tuple(index)])


@dataclass(frozen=True, slots=True)
class Size:
    """The size of one dimension of a tensor, or a whole-number attribute (``dim=None``)."""

    name: str
    dim: int | None = None

    def of(self, values: Values) -> int | None:
        """Return the number, or None if it is not known."""
        if self.dim is None:
            value = values.get(self.name)
            return value if isinstance(value, int) else None
        tensor = _tensor(values, self.name)
        if tensor is None or not -tensor.dim() <= self.dim < tensor.dim():
            return None
        return int(tensor.shape[self.dim])

    def text(self) -> str:
        """Return how the number is called in a message."""
        return _bare(self.name) if self.dim is None else f"{_bare(self.name)}.shape[{self.dim}]"


@dataclass(frozen=True, slots=True)
class AllInRange:
    """Every index lies in ``lower <= index < upper``.

    ``used`` names an offsets tensor (``indptr``) whose last element says how many leading
    elements are read; the rest is slack and not judged. ``what`` completes the message
    "... but ``holder`` has 64 ``what``".
    """

    name: str
    upper: Size
    what: str
    holder: str
    lower: int = 0
    used: str | None = None

    def findings(self, values: Values) -> list[Finding]:
        """Return the first offending index and how many there are."""
        indices, upper = _tensor(values, self.name), self.upper.of(values)
        if indices is None or upper is None:
            return []
        read = indices
        if self.used is not None and (offsets := _tensor(values, self.used)) is not None:
            count = int(offsets.flatten()[-1]) if offsets.numel() else 0
            read = indices.flatten()[: max(count, 0)]
            if count > indices.numel():
                problem = f"{_bare(self.used)} ends at {count}, but {_bare(self.name)}"
                return [Finding(self.used, f"{problem} has {indices.numel()} elements")]
        outside = ((read < self.lower) | (read >= upper)).flatten().nonzero()
        if not outside.numel():
            return []
        where, value = _element(indices, int(outside[0]))
        message = f"{_bare(self.name)}{where} = {value}, but {self.holder} has {upper} {self.what}"
        if outside.numel() > 1:
            message += f" ({outside.numel()} such entries)"
        return [Finding(self.name, message)]


@dataclass(frozen=True, slots=True)
class Monotone:
    """Offsets start at 0 and never fall."""

    name: str

    def findings(self, values: Values) -> list[Finding]:
        """Return a wrong start and the first place where the offsets fall."""
        offsets = _tensor(values, self.name)
        if offsets is None or not offsets.numel():
            return []
        found = []
        flat = offsets.flatten()
        if int(flat[0]) != 0:
            found.append(f"{_bare(self.name)}[0] = {int(flat[0])}, but offsets start at 0")
        falls = (flat[1:] < flat[:-1]).nonzero()
        if falls.numel():
            at = int(falls[0]) + 1
            found.append(
                f"{_bare(self.name)}[{at}] = {int(flat[at])} is less than "
                f"{_bare(self.name)}[{at - 1}] = {int(flat[at - 1])}, but offsets never fall"
            )
        return [Finding(self.name, message) for message in found]


@dataclass(frozen=True, slots=True)
class LengthsInRange:
    """The last page of every sequence that has pages holds 1 to ``page_size`` tokens."""

    name: str
    indptr: str
    page_size: Size

    def findings(self, values: Values) -> list[Finding]:
        """Return the first offending length."""
        lengths, offsets = _tensor(values, self.name), _tensor(values, self.indptr)
        limit = self.page_size.of(values)
        if lengths is None or offsets is None or limit is None:
            return []
        if offsets.numel() != lengths.numel() + 1:
            return []  # SameSize speaks of it
        pages = offsets.flatten()[1:] - offsets.flatten()[:-1]
        flat = lengths.flatten()
        wrong = ((pages > 0) & ((flat < 1) | (flat > limit))).nonzero()
        if not wrong.numel():
            return []
        at = int(wrong[0])
        value = int(flat[at])
        message = f"{_bare(self.name)}[{at}] = {value}, but a page holds 1 to {limit} tokens"
        return [Finding(self.name, message)]


@dataclass(frozen=True, slots=True)
class SameSize:
    """Two sizes agree, ``second`` plus ``offset`` being what ``first`` must equal."""

    first: Size
    second: Size
    offset: int = 0

    def findings(self, values: Values) -> list[Finding]:
        """Return both numbers where they disagree."""
        first, second = self.first.of(values), self.second.of(values)
        if first is None or second is None or first == second + self.offset:
            return []
        plus = f" + {self.offset}" if self.offset else ""
        message = (
            f"{self.first.text()} = {first}, but {self.second.text()}{plus} = "
            f"{second + self.offset}"
        )
        return [Finding(self.first.name, message)]


@dataclass(frozen=True, slots=True)
class Aligned:
    """The first element of a tensor lies at a multiple of ``nbytes``.

    Reads the recorded address where ``values`` has one under ``<name>.address``.
    """

    name: str
    nbytes: int

    def findings(self, values: Values) -> list[Finding]:
        """Return the address's remainder if there is one."""
        tensor, address = _tensor(values, self.name), values.get(f"{self.name}.address")
        if tensor is None or not tensor.numel() or not isinstance(address, int):
            return []
        if not (rest := address % self.nbytes):
            return []
        message = f"{_bare(self.name)} starts {rest} bytes past a multiple of {self.nbytes}"
        return [Finding(self.name, message)]

"""Preconditions on the values of index tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernlib._checks._values import Finding, bare, data

if TYPE_CHECKING:
    import torch

    from kernlib._checks._sizes import Size
    from kernlib._checks._values import Values

__all__ = ["AllInRange", "Finite", "LengthsInRange", "Monotone"]


def _place(tensor: torch.Tensor, flat: int) -> tuple[int, ...]:
    """Return the index of an element by its place in row-major order."""
    index = []
    for size in reversed(tensor.shape):
        flat, part = divmod(flat, size)
        index.append(part)
    return tuple(reversed(index))


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    """Return numbers that can be compared with any limit and subtracted without overflow."""
    return tensor if tensor.is_floating_point() or tensor.is_complex() else tensor.long()


def _brackets(index: tuple[int, ...]) -> str:
    return "".join(f"[{part}]" for part in index)


def _more(count: int) -> str:
    return f" ({count} such entries)" if count > 1 else ""


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
        indices, upper = data(values, self.name), self.upper.of(values)
        if indices is None or upper is None:
            return []
        read = _comparable(indices)
        if self.used is not None and (offsets := data(values, self.used)) is not None:
            count = int(offsets.flatten()[-1]) if offsets.numel() else 0
            read = read.flatten()[: max(count, 0)]
            if count > indices.numel():
                problem = f"{bare(self.used)} ends at {count}, but {bare(self.name)}"
                return [Finding(self.used, f"{problem} has {indices.numel()} elements")]
        outside = ((read < self.lower) | (read >= upper)).flatten().nonzero()
        if not outside.numel():
            return []
        index = _place(indices, int(outside[0]))
        message = f"{bare(self.name)}{_brackets(index)} = {indices[index].item()}, but "
        message += f"{self.holder} has {upper} {self.what}"
        return [Finding(self.name, message + _more(outside.numel()))]


@dataclass(frozen=True, slots=True)
class Monotone:
    """Offsets start at 0 and never fall."""

    name: str

    def findings(self, values: Values) -> list[Finding]:
        """Return a wrong start and the first place where the offsets fall."""
        offsets = data(values, self.name)
        if offsets is None or not offsets.numel():
            return []
        found = []
        flat = offsets.flatten()
        if int(flat[0]) != 0:
            found.append(f"{bare(self.name)}[0] = {int(flat[0])}, but offsets start at 0")
        falls = (flat[1:] < flat[:-1]).nonzero()
        if falls.numel():
            at = int(falls[0]) + 1
            found.append(
                f"{bare(self.name)}[{at}] = {int(flat[at])} is less than "
                f"{bare(self.name)}[{at - 1}] = {int(flat[at - 1])}, but offsets never fall"
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
        lengths, offsets = data(values, self.name), data(values, self.indptr)
        limit = self.page_size.of(values)
        if lengths is None or offsets is None or limit is None:
            return []
        if offsets.numel() != lengths.numel() + 1:
            return []  # SameSize speaks of it
        starts, flat = _comparable(offsets).flatten(), _comparable(lengths).flatten()
        pages = starts[1:] - starts[:-1]
        wrong = ((pages > 0) & ((flat < 1) | (flat > limit))).nonzero()
        if not wrong.numel():
            return []
        at = int(wrong[0])
        value = int(flat[at])
        message = f"{bare(self.name)}[{at}] = {value}, but a page holds 1 to {limit} tokens"
        return [Finding(self.name, message)]


@dataclass(frozen=True, slots=True)
class Finite:
    """No element is NaN or infinite."""

    name: str

    def findings(self, values: Values) -> list[Finding]:
        """Return the first element that is, and how many there are."""
        tensor = data(values, self.name)
        if tensor is None or not (tensor.is_floating_point() or tensor.is_complex()):
            return []
        wide = tensor.float() if tensor.element_size() == 1 else tensor  # eight-bit floats
        wrong = (~wide.isfinite()).flatten().nonzero()
        if not wrong.numel():
            return []
        index = _place(tensor, int(wrong[0]))
        message = f"{bare(self.name)}{_brackets(index)} = {wide[index].item()}, but must be finite"
        return [Finding(self.name, message + _more(wrong.numel()))]

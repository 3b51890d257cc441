"""Preconditions on sizes, strides and plain numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kernlib._checks._values import Finding, bare, data, layout, number

if TYPE_CHECKING:
    from kernlib._checks._values import Values

__all__ = ["InRange", "Int32Product", "Int32Reach", "Largest", "Measure", "Multiple", "Rank",
           "SameShape", "SameSize", "Size", "Stride"]  # fmt: skip

_INT32_MAX = 2**31 - 1


class Measure(Protocol):
    """A number that is read from the arguments."""

    name: str

    def of(self, values: Values) -> int | None:
        """Return the number, or None if it is not known."""

    def text(self) -> str:
        """Return how the number is called in a message."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of one dimension of a tensor, or a whole-number attribute (``dim=None``)."""

    name: str
    dim: int | None = None

    def of(self, values: Values) -> int | None:
        """Return the number, or None if it is not known."""
        if self.dim is None:
            value = number(values, self.name)
            return value if isinstance(value, int) else None
        found = layout(values, self.name)
        if found is None or not -len(found.shape) <= self.dim < len(found.shape):
            return None
        return found.shape[self.dim]

    def text(self) -> str:
        """Return how the number is called in a message."""
        return bare(self.name) if self.dim is None else f"{bare(self.name)}.shape[{self.dim}]"


@dataclass(frozen=True, slots=True)
class Stride:
    """The stride of one dimension of a tensor, in elements."""

    name: str
    dim: int

    def of(self, values: Values) -> int | None:
        """Return the number, or None if it is not known."""
        found = layout(values, self.name)
        if found is None or not -len(found.shape) <= self.dim < len(found.shape):
            return None
        return found.stride[self.dim]

    def text(self) -> str:
        """Return how the number is called in a message."""
        return f"{bare(self.name)}.stride({self.dim})"


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest element of a tensor of integers."""

    name: str

    def of(self, values: Values) -> int | None:
        """Return the number, or None if it is not known or there is no element."""
        tensor = data(values, self.name)
        return None if tensor is None or not tensor.numel() else int(tensor.max())

    def text(self) -> str:
        """Return how the number is called in a message."""
        return f"the largest of {bare(self.name)}"


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
class SameShape:
    """Two tensors have the same number of dimensions, and all sizes agree."""

    first: str
    second: str

    def findings(self, values: Values) -> list[Finding]:
        """Return the first dimension in which they differ."""
        one, other = layout(values, self.first), layout(values, self.second)
        if one is None or other is None or one.shape == other.shape:
            return []
        name, second = bare(self.first), bare(self.second)
        if len(one.shape) != len(other.shape):
            message = f"{name} has {len(one.shape)} dimensions, but {second} {len(other.shape)}"
            return [Finding(self.first, message)]
        pairs = zip(one.shape, other.shape, strict=True)
        dim = next(dim for dim, (size, wanted) in enumerate(pairs) if size != wanted)
        message = f"{name}.shape[{dim}] = {one.shape[dim]}, but {second}.shape[{dim}] = "
        return [Finding(self.first, f"{message}{other.shape[dim]}")]


@dataclass(frozen=True, slots=True)
class Rank:
    """A tensor has so many dimensions; ``most`` None means exactly ``least``."""

    name: str
    least: int
    most: int | None = None

    def findings(self, values: Values) -> list[Finding]:
        """Return the number of dimensions where it is another."""
        found = layout(values, self.name)
        most = self.least if self.most is None else self.most
        if found is None or self.least <= len(found.shape) <= most:
            return []
        wanted = f"{self.least}" if most == self.least else f"{self.least} to {most}"
        message = f"{bare(self.name)} has {len(found.shape)} dimensions, but {wanted} are needed"
        return [Finding(self.name, message)]


@dataclass(frozen=True, slots=True)
class InRange:
    """A number lies in ``least <= number <= most``; None is no limit. NaN lies nowhere."""

    value: Size
    least: float | None = None
    most: float | None = None

    def findings(self, values: Values) -> list[Finding]:
        """Return the number and the limit that it breaks."""
        found = number(values, self.value.name) if self.value.dim is None else self.value.of(values)
        if found is None:
            return []
        problem = ""
        if math.isnan(found):
            problem = "a number is needed"
        elif self.least is not None and found < self.least:
            problem = f"must be at least {self.least}"
        elif self.most is not None and found > self.most:
            problem = f"must be at most {self.most}"
        if not problem:
            return []
        return [Finding(self.value.name, f"{self.value.text()} = {found}, but {problem}")]


@dataclass(frozen=True, slots=True)
class Multiple:
    """A whole number is a multiple of another one, or of a constant."""

    value: Size
    of: Size | int

    def findings(self, values: Values) -> list[Finding]:
        """Return both numbers where there is a remainder."""
        found = self.value.of(values)
        unit = self.of if isinstance(self.of, int) else self.of.of(values)
        if found is None or not unit or found % unit == 0:  # InRange speaks of a unit of 0
            return []
        what = f"{unit}" if isinstance(self.of, int) else f"{self.of.text()} = {unit}"
        message = f"{self.value.text()} = {found}, which is not a multiple of {what}"
        return [Finding(self.value.name, message)]


@dataclass(frozen=True, slots=True)
class Int32Product:
    """A product that a kernel computes in int32 fits into it."""

    factors: tuple[Measure, ...]

    def findings(self, values: Values) -> list[Finding]:
        """Return all factors where their product is too large."""
        known = [factor.of(values) for factor in self.factors]
        found = [value for value in known if value is not None]
        if len(found) < len(known) or (product := math.prod(found)) <= _INT32_MAX:
            return []
        pairs = zip(self.factors, found, strict=True)
        terms = " times ".join(f"{factor.text()} = {value}" for factor, value in pairs)
        message = f"{terms} is {product}, but the kernel counts in int32, to {_INT32_MAX}"
        return [Finding(self.factors[0].name, message)]

    def text(self) -> str:
        """Return the factors, for a list of checks."""
        return " * ".join(factor.text() for factor in self.factors)


@dataclass(frozen=True, slots=True)
class Int32Reach:
    """The offset of every element of a tensor fits into int32, counted in elements or bytes."""

    name: str
    nbytes: bool = False

    def findings(self, values: Values) -> list[Finding]:
        """Return the largest offset where it does not fit."""
        found = layout(values, self.name)
        if found is None or found.empty:
            return []
        unit, offset = "elements", found.reach
        if self.nbytes:
            unit, offset = "bytes", (found.reach + 1) * found.itemsize - 1
        if offset <= _INT32_MAX:
            return []
        message = f"{bare(self.name)} reaches {offset} {unit} past its first, but the kernel "
        return [Finding(self.name, f"{message}counts in int32, to {_INT32_MAX}")]

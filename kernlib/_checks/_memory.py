"""Preconditions on where tensors lie: alignment, strides, overlap, devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernlib._checks._layout import Layout, overlaps
from kernlib._checks._values import Finding, bare, layout, missed

if TYPE_CHECKING:
    from kernlib._checks._values import Values

__all__ = ["Aligned", "Contiguous", "DenseLast", "DtypeIn", "NoOverlap", "SameDevice", "SameDtype",
           "Writable"]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Aligned:
    """The first element of a tensor lies at a multiple of ``nbytes``, or of its own size.

    Reads the recorded address where ``values`` has one under ``<name>.address``.
    """

    name: str
    nbytes: int | None = None

    def findings(self, values: Values) -> list[Finding]:
        """Return the address's remainder if there is one."""
        found = layout(values, self.name)
        if found is None or found.empty:
            return []
        nbytes = self.nbytes or found.itemsize
        if not (rest := found.address % nbytes):
            return []
        own = "" if self.nbytes else ", its element size"
        message = f"{bare(self.name)} starts {rest} bytes past a multiple of {nbytes}{own}"
        return [Finding(self.name, message)]


@dataclass(frozen=True, slots=True)
class Contiguous:
    """The elements of a tensor lie in row-major order without gaps."""

    name: str

    def findings(self, values: Values) -> list[Finding]:
        """Return the innermost dimension whose stride is another."""
        found = layout(values, self.name)
        if found is None or found.empty:
            return []
        expected = 1
        for dim in range(len(found.shape) - 1, -1, -1):
            size, stride = found.shape[dim], found.stride[dim]
            if size > 1 and stride != expected:
                message = f"{bare(self.name)}.stride({dim}) = {stride}, but must be contiguous: "
                return [Finding(self.name, f"{message}{expected}")]
            expected *= size
        return []


@dataclass(frozen=True, slots=True)
class DenseLast:
    """The elements of the last dimension of a tensor lie side by side."""

    name: str

    def findings(self, values: Values) -> list[Finding]:
        """Return the stride where it is another."""
        found = layout(values, self.name)
        if found is None or not found.shape or found.shape[-1] <= 1 or found.stride[-1] == 1:
            return []
        message = f"{bare(self.name)} has stride {found.stride[-1]} in its last dimension"
        return [Finding(self.name, f"{message}, but only 1 is supported")]


@dataclass(frozen=True, slots=True)
class Writable:
    """No two elements of a tensor that is written share memory."""

    name: str

    def findings(self, values: Values) -> list[Finding]:
        """Return a dimension of stride 0, or that there are more elements than places."""
        found = layout(values, self.name)
        if found is None or not found.repeats():
            return []
        name = bare(self.name)
        steps = enumerate(zip(found.shape, found.stride, strict=True))
        for dim, (size, stride) in steps:
            if size > 1 and not stride:
                message = (
                    f"{name} has stride 0 in dimension {dim} of size {size}, but it is written"
                )
                return [Finding(self.name, message)]
        message = (
            f"{name} has more elements than its memory from the first to the last has room for"
        )
        return [Finding(self.name, f"{message}, but it is written")]


@dataclass(frozen=True, slots=True)
class NoOverlap:
    """Two tensors share no memory.

    With ``in_place`` they may where the first is the second, or the leading part of each of its
    rows: same address, dtype and strides.
    """

    first: str
    second: str
    in_place: bool = False

    def findings(self, values: Values) -> list[Finding]:
        """Return how far apart the two begin where they do share some."""
        one, other = layout(values, self.first), layout(values, self.second)
        if one is None or other is None:
            return []
        shared = overlaps(one, other)
        if shared is None:
            missed(values, self.first, f"may overlap {bare(self.second)}; that cannot be told")
        if not shared:
            return []
        if self.in_place and _leads(one, other):
            return []
        apart = one.address - other.address
        where = f"starts {abs(apart)} bytes {'after' if apart > 0 else 'before'} it" if apart else (
            "starts where it does"
        )  # fmt: skip
        name, second = bare(self.first), bare(self.second)
        message = f"{name} shares memory with {second} ({name} {where})"
        if self.in_place:
            message += f", but may do so only as {second} itself or the first part of its rows"
        return [Finding(self.first, message)]


def _leads(one: Layout, other: Layout) -> bool:
    """Return whether the elements of one are the first ones of each row of the other."""
    if (one.address, one.dtype, len(one.shape)) != (other.address, other.dtype, len(other.shape)):
        return False
    if one.shape[:-1] != other.shape[:-1] or one.shape[-1:] > other.shape[-1:]:
        return False
    pairs = zip(one.shape, one.stride, other.stride, strict=True)
    return all(size <= 1 or stride == wanted for size, stride, wanted in pairs)


@dataclass(frozen=True, slots=True)
class SameDevice:
    """Two tensors are on one device."""

    first: str
    second: str

    def findings(self, values: Values) -> list[Finding]:
        """Return both devices where they differ."""
        one, other = layout(values, self.first), layout(values, self.second)
        if one is None or other is None or one.device == other.device:
            return []
        message = f"{bare(self.first)} is on {one.device}, but {bare(self.second)} is on "
        return [Finding(self.first, f"{message}{other.device}")]


@dataclass(frozen=True, slots=True)
class DtypeIn:
    """A tensor has one of these dtypes, named without ``torch.``."""

    name: str
    dtypes: tuple[str, ...]

    def findings(self, values: Values) -> list[Finding]:
        """Return the dtype where it is another."""
        found = layout(values, self.name)
        if found is None or found.dtype in self.dtypes:
            return []
        *others, last = self.dtypes
        wanted = f"{', '.join(others)} or {last}" if others else last
        message = f"{bare(self.name)} is {found.dtype}, but {wanted} is needed"
        return [Finding(self.name, message)]


@dataclass(frozen=True, slots=True)
class SameDtype:
    """Two tensors have the same dtype, or one of the ``pairs`` (first, second) allowed beside."""

    first: str
    second: str
    pairs: tuple[tuple[str, str], ...] = ()

    def findings(self, values: Values) -> list[Finding]:
        """Return both dtypes where they do not go together."""
        one, other = layout(values, self.first), layout(values, self.second)
        if one is None or other is None or one.dtype == other.dtype:
            return []
        if (one.dtype, other.dtype) in self.pairs:
            return []
        message = f"{bare(self.first)} is {one.dtype}, but {bare(self.second)} is {other.dtype}"
        return [Finding(self.first, message)]

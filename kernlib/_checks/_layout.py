"""Where the elements of a tensor lie."""

from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Layout", "overlaps"]

#: Steps that deciding whether two tensors overlap may take.
_MOST_STEPS = 20_000


@dataclass(frozen=True, slots=True)
class Layout:
    """A tensor without its data: strides count elements, ``address`` is that of the first one."""

    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    address: int
    device: str

    @classmethod
    def of(cls, value: object) -> Layout | None:
        """Return the layout of a tensor; None for anything else, and for what has no memory."""
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(value, torch.Tensor):
            return None
        if value.layout is not torch.strided:
            return None
        address = 0 if value.device.type == "meta" else value.data_ptr()
        return cls(
            str(value.dtype).removeprefix("torch."), value.element_size(), tuple(value.shape),
            tuple(value.stride()), address, str(value.device),
        )  # fmt: skip

    def at(self, address: int) -> Layout:
        """Return the same layout at another address."""
        return dataclasses.replace(self, address=address)

    @property
    def empty(self) -> bool:
        """Whether it has no element."""
        return 0 in self.shape

    @property
    def steps(self) -> list[tuple[int, int]]:
        """The size and the stride of every dimension that is stepped."""
        return [pair for pair in zip(self.shape, self.stride, strict=True) if pair[0] > 1]

    @property
    def reach(self) -> int:
        """The offset of the last element from the first."""
        return sum((size - 1) * stride for size, stride in self.steps)

    @property
    def end(self) -> int:
        """The address after its last byte."""
        return self.address + (self.reach + 1) * self.itemsize

    def repeats(self) -> bool:
        """Return whether two elements certainly share memory."""
        if self.empty:
            return False
        elements = math.prod(self.shape)
        return elements > self.reach + 1 or any(stride == 0 for _, stride in self.steps)


class _Term(NamedTuple):
    """A multiple of bytes that can be taken up to so many times."""

    nbytes: int
    most: int


def overlaps(first: Layout, second: Layout) -> bool | None:
    """Return whether two tensors share a byte; None if that takes too long to tell."""
    if first.empty or second.empty or first.device != second.device:
        return False
    if not first.address or not second.address:
        return None
    if first.end <= second.address or second.end <= first.address:
        return False
    # A byte of the first at i and one of the second at j, counted from its end, add up to the
    # distance from the first's start to the second's last byte: a bounded sum of strides.
    most: dict[int, int] = {1: first.itemsize + second.itemsize - 2}
    for tensor in (first, second):
        for size, stride in tensor.steps:
            step = stride * tensor.itemsize
            if step:
                most[step] = most.get(step, 0) + size - 1
    terms = [_Term(step, count) for step, count in sorted(most.items(), reverse=True) if count]
    return _Sum(terms).reaches(second.end - 1 - first.address)


class _Sum:
    """Sums of terms; a search that gives up after so many steps."""

    def __init__(self, terms: list[_Term]) -> None:
        self._terms = terms
        self._rest = [sum(t.nbytes * t.most for t in terms[at:]) for at in range(len(terms) + 1)]
        self._common = [math.gcd(*(t.nbytes for t in terms[at:])) for at in range(len(terms) + 1)]
        self._left = _MOST_STEPS

    def reaches(self, total: int, at: int = 0) -> bool | None:
        """Return whether the terms from ``at`` on can add up to a total."""
        if total == 0:
            return True
        if total < 0 or total > self._rest[at] or total % self._common[at]:
            return False
        self._left -= 1
        if self._left < 0:
            return None
        term = self._terms[at]
        if at + 1 == len(self._terms):
            return total % term.nbytes == 0  # at most `most` times, by what rests
        least = max(0, -((self._rest[at + 1] - total) // term.nbytes))
        for count in range(min(term.most, total // term.nbytes), least - 1, -1):
            if (found := self.reaches(total - count * term.nbytes, at + 1)) is not False:
                return found
        return False

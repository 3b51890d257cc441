"""Preconditions that only these operators have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernlib._checks import Finding, Size, data, layout

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HalfOfRows", "PositionsInPages", "RowsOfTwoStrides"]

_ONE_LEVEL, _MOST_LEVELS = 2, 2


@dataclass(frozen=True, slots=True)
class PositionsInPages:
    """Every token's position lies in the pages of its sequence.

    Token ``t`` goes to ``positions[t]`` of sequence ``sequences[t]``, which has
    ``indptr[b + 1] - indptr[b]`` pages of ``page_size`` tokens.
    """

    positions: str
    sequences: str
    indptr: str
    page_size: Size

    def findings(self, values: Mapping[str, object]) -> list[Finding]:
        """Return the first position outside of its sequence's pages."""
        found = [data(values, name) for name in (self.positions, self.sequences, self.indptr)]
        tensors = [tensor.long() for tensor in found if tensor is not None]
        size = self.page_size.of(values)
        if size is None or len(tensors) < len(found):
            return []
        positions, sequences, offsets = tensors
        known = (sequences >= 0) & (sequences < offsets.numel() - 1)
        if positions.shape != sequences.shape or not known.all():
            return []  # other checks speak of it
        room = (offsets[1:] - offsets[:-1])[sequences] * size
        wrong = ((positions < 0) | (positions >= room)).nonzero()
        if not wrong.numel():
            return []
        at = int(wrong[0])
        message = (
            f"{self.positions}[{at}] = {int(positions[at])}, but sequence {int(sequences[at])} "
            f"has pages for {int(room[at])} tokens"
        )
        return [Finding(self.positions, message)]


@dataclass(frozen=True, slots=True)
class RowsOfTwoStrides:
    """The leading dimensions of a tensor fold into rows of at most two strides."""

    name: str

    def findings(self, values: Mapping[str, object]) -> list[Finding]:
        """Return shape and strides where they do not."""
        found = layout(values, self.name)
        if found is None or found.empty or len(found.shape) < _ONE_LEVEL:
            return []
        levels: list[tuple[int, int]] = []  # count and stride, innermost first
        leading = zip(found.shape[:-1], found.stride[:-1], strict=True)
        for size, stride in reversed(list(leading)):
            if size == 1:
                continue
            if levels and stride == levels[-1][0] * levels[-1][1]:
                levels[-1] = levels[-1][0] * size, levels[-1][1]
            else:
                levels.append((size, stride))
        if len(levels) <= _MOST_LEVELS:
            return []
        message = f"{self.name} has shape {list(found.shape)} and strides {list(found.stride)}"
        return [Finding(self.name, f"{message}, but rows of at most two strides are supported")]


@dataclass(frozen=True, slots=True)
class HalfOfRows:
    """A tensor is like another one, with rows of half their size."""

    name: str
    whole: str

    def findings(self, values: Mapping[str, object]) -> list[Finding]:
        """Return both shapes where that is not so."""
        half, whole = layout(values, self.name), layout(values, self.whole)
        if half is None or whole is None or not whole.shape:
            return []
        wanted = (*whole.shape[:-1], whole.shape[-1] // 2)
        if half.shape == wanted:
            return []
        message = f"{self.name} has shape {list(half.shape)}, but half of {self.whole} is "
        return [Finding(self.name, f"{message}{list(wanted)}")]

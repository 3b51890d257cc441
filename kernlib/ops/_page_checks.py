"""Preconditions of page tables that only their operators declare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernlib._checks import Finding, Size

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PositionsInPages"]


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
        import torch

        tensors = [values.get(name) for name in (self.positions, self.sequences, self.indptr)]
        size = self.page_size.of(values)
        if size is None or not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
            return []
        positions, sequences, offsets = (torch.as_tensor(tensor).long() for tensor in tensors)
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

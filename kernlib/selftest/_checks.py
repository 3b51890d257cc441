"""A precondition that only a planted fault has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernlib._checks import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Divides"]


@dataclass(frozen=True)
class Divides:
    """No element of a tensor is zero."""

    name: str

    def findings(self, values: Mapping[str, object]) -> list[Finding]:
        """Return the first element that is."""
        import torch

        divisor = values.get(self.name)
        if not isinstance(divisor, torch.Tensor) or divisor.device.type == "meta":
            return []
        zeros = (divisor.flatten() == 0).nonzero()
        if not zeros.numel():
            return []
        return [Finding(self.name, f"{self.name}[{int(zeros[0])}] = 0, but it is divided by")]

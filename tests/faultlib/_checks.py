"""A precondition that only this library has."""

from __future__ import annotations

from dataclasses import dataclass

from kernlib._checks import Finding

__all__ = ["WithinHistory"]


@dataclass(frozen=True)
class WithinHistory:
    """No element looks back further than to the first one."""

    name: str

    def findings(self, values):
        """Return the first element that does."""
        import torch

        back = values.get(self.name)
        if not isinstance(back, torch.Tensor):
            return []
        before = torch.arange(back.numel())
        wrong = ((back < 0) | (back > before)).nonzero()
        if not wrong.numel():
            return []
        at = int(wrong[0])
        message = f"{self.name}[{at}] = {int(back[at])}, but element {at} has {at} before it"
        return [Finding(self.name, message)]

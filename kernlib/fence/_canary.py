"""What padding is filled with, and whether it still is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import torch

__all__ = ["CANARY", "Trampling", "fill", "first_wrong"]

#: The bytes at even and at odd addresses. Read as a number of two bytes or more this is NaN in
#: every float type, and as an index far out of any range; unlike 0xFF it is no -1, which programs
#: do write.
CANARY = (0xFF, 0x7F)


class Trampling(NamedTuple):
    """Padding that was written to.

    ``offset`` counts the bytes between the storage and the nearest of those that were written,
    ``nbytes`` those up to the farthest.
    """

    where: Literal["before", "after"]
    offset: int
    nbytes: int


def fill(padding: torch.Tensor, address: int) -> None:
    """Fill bytes that begin at ``address`` with the canary."""
    for parity in (0, 1):
        padding[parity ^ (address & 1) :: 2] = CANARY[parity]


def first_wrong(padding: torch.Tensor, address: int) -> tuple[int, int] | None:
    """Return the first byte that is not the canary's and the one after the last, None if none."""
    import torch

    wrong = torch.zeros(padding.shape, dtype=torch.bool, device=padding.device)
    for parity in (0, 1):
        part = slice(parity ^ (address & 1), None, 2)
        wrong[part] = padding[part] != CANARY[parity]
    if not bool(wrong.any()):
        return None
    places = wrong.nonzero()
    return int(places[0]), int(places[-1]) + 1

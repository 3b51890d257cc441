"""Where a storage lies between its fences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Layout", "Side", "lay_out"]

Side = Literal["end", "start"]

_SHORTEST_GUARD = 1 << 20
_LONGEST_GUARD = 1 << 30


@dataclass(frozen=True, slots=True)
class Layout:
    """A storage in its mapping; all in bytes.

    The mapping has ``guard`` bytes on either side at which every access faults. The storage begins
    ``before`` bytes behind the first mapped one.
    """

    guard: int
    mapped: int
    before: int
    nbytes: int

    @property
    def after(self) -> int:
        """The mapped bytes behind the storage."""
        return self.mapped - self.before - self.nbytes

    @property
    def reserved(self) -> int:
        """The addresses that the mapping and its guards take."""
        return self.mapped + 2 * self.guard


def _up(nbytes: int, granule: int) -> int:
    return -(-nbytes // granule) * granule


def lay_out(nbytes: int, address: int, side: Side, *, granule: int, alignment: int) -> Layout:
    """Return where to put a storage that was at ``address``, flush with a fence on one side.

    Its alignment is kept exactly: as a power of two below ``alignment``, or at least that one.
    Where the fence cannot then be touched, alignment wins: a misaligned copy would fail, or take
    another path, where the recorded call did not. What is left between the two is padding of less
    than twice the alignment kept.

    ``granule`` is what can be mapped at the least, a power of two and a multiple of ``alignment``.
    """
    kept = min(address & -address, alignment) or alignment
    rest, modulus = (0, kept) if kept == alignment else (kept, 2 * kept)
    mapped = _up(max(nbytes, 1), granule)
    before = rest
    if side == "end":
        room = mapped - nbytes
        before = room - (room - rest) % modulus
        if before < 0:
            mapped, before = mapped + granule, before + granule
    elif before + nbytes > mapped:
        mapped += granule
    guard = _up(min(max(nbytes, _SHORTEST_GUARD), _LONGEST_GUARD), granule)
    return Layout(guard, mapped, before, nbytes)

"""Memory between fences: who leaves it faults, at full speed."""

from kernlib.fence._allocations import moved_allocations
from kernlib.fence._canary import Trampling
from kernlib.fence._fence import Block, Fence
from kernlib.fence._layout import Layout, Side, lay_out

__all__ = ["Block", "Fence", "Layout", "Side", "Trampling", "lay_out", "moved_allocations"]

"""Statistics of a tensor by one fused kernel."""

from kernlib._statistics._fused import FusedStatistics
from kernlib._statistics._spec import statistics_spec

__all__ = ["FusedStatistics", "statistics_spec"]

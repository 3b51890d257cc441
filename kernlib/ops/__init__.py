"""The public operators."""

from kernlib.ops._activation import silu_and_mul
from kernlib.ops._norm import fused_add_rms_norm_, rms_norm
from kernlib.ops._paged_cache import append_paged_kv
from kernlib.ops._paged_decode import PagedDecode

__all__ = [
    "PagedDecode",
    "append_paged_kv",
    "fused_add_rms_norm_",
    "rms_norm",
    "silu_and_mul",
]

from kernlib._runtime import kernel_api as kernel_api
from kernlib._version import __version__ as __version__
from kernlib.ops import PagedDecode as PagedDecode
from kernlib.ops import append_paged_kv as append_paged_kv
from kernlib.ops import fused_add_rms_norm_ as fused_add_rms_norm_
from kernlib.ops import rms_norm as rms_norm
from kernlib.ops import silu_and_mul as silu_and_mul

__all__ = [
    "PagedDecode",
    "__version__",
    "append_paged_kv",
    "fused_add_rms_norm_",
    "kernel_api",
    "rms_norm",
    "silu_and_mul",
]

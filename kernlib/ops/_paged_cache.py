"""Writing to the paged key-value cache."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kernlib import jit
from kernlib._checks import (
    AllInRange,
    DenseLast,
    InRange,
    Monotone,
    NoOverlap,
    Rank,
    SameSize,
    Size,
    Writable,
)
from kernlib._runtime import kernel_api
from kernlib.ops._declared import int32_list, like, operand
from kernlib.ops._library import choose, library_spec
from kernlib.ops._own_checks import PositionsInPages

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from kernlib._checks import Check
    from kernlib.jit import KernelChoice, KernelSpec

__all__ = ["append_paged_kv", "append_paged_kv_kernels", "append_paged_kv_spec"]

_LISTS = ("kv_indices", "kv_indptr", "kv_last_page_len", "batch_indices", "positions")


def _source_checks(name: str) -> tuple[Check, ...]:
    """Return what k and v must be."""
    return (
        *like(name, "kv_cache"),
        Rank(name, 3),
        SameSize(Size(name, 1), Size("kv_cache", 2)),
        SameSize(Size(name, 2), Size("kv_cache", 4)),
        DenseLast(name),
        NoOverlap(name, "kv_cache"),
    )


APPEND_PAGED_KV_CHECKS = (
    *operand("kv_cache"),
    Rank("kv_cache", 5),
    InRange(Size("kv_cache", 1), 2, 2),
    InRange(Size("kv_cache", 3), 1),
    DenseLast("kv_cache"),
    Writable("kv_cache"),
    *_source_checks("k"),
    *_source_checks("v"),
    SameSize(Size("v", 0), Size("k", 0)),
    *(check for name in _LISTS for check in int32_list(name, "kv_cache")),
    SameSize(Size("kv_indptr", 0), Size("kv_last_page_len", 0), offset=1),
    SameSize(Size("batch_indices", 0), Size("k", 0)),
    SameSize(Size("positions", 0), Size("k", 0)),
    Monotone("kv_indptr"),
    AllInRange("kv_indices", Size("kv_cache", 0), "pages", "the pool", used="kv_indptr"),
    AllInRange("batch_indices", Size("kv_last_page_len", 0), "sequences", "the page table"),
    PositionsInPages("positions", "batch_indices", "kv_indptr", Size("kv_cache", 3)),
)


@cache
def append_paged_kv_spec(backend: str) -> KernelSpec:
    """Return the spec of the library that writes to the paged cache."""
    return library_spec("append_paged_kv", "paged_cache/append", backend)


@cache
def _choice(device: torch.device) -> KernelChoice:
    return choose("append_paged_kv", append_paged_kv_spec, "k", device)


def append_paged_kv_kernels(
    k: Tensor, *_operands: object, **_named: object
) -> tuple[KernelChoice, ...]:
    """Return the kernel that appending ``k`` uses; only its device decides."""
    return (_choice(k.device),)


@kernel_api(kernels=append_paged_kv_kernels, checks=APPEND_PAGED_KV_CHECKS)
def append_paged_kv(  # noqa: PLR0913, PLR0917 - a page table is five lists in the caller's hands
    k: Tensor,
    v: Tensor,
    kv_cache: Tensor,
    kv_indices: Tensor,
    kv_indptr: Tensor,
    kv_last_page_len: Tensor,
    batch_indices: Tensor,
    positions: Tensor,
) -> None:
    """Write the keys and values of new tokens into their pages of ``kv_cache``, in place.

    Token ``t`` of ``k`` and ``v`` (``[tokens, num_kv_heads, head_dim]``) becomes token
    ``positions[t]`` of sequence ``batch_indices[t]``. ``kv_cache`` is ``[num_pages, 2,
    num_kv_heads, page_size, head_dim]`` in float16, bfloat16 or float32 with any strides but the
    last, which is 1. The pages of sequence ``b`` are ``kv_indices[kv_indptr[b]:kv_indptr[b + 1]]``;
    ``kv_last_page_len`` is ``[batch]``. All lists are int32.

    Raises TypeError or ValueError naming the argument and both numbers where shapes, dtypes,
    devices or strides disagree. Page ids and positions live on the device and are not checked:
    one that is out of range writes outside of the cache.
    """
    (choice,) = append_paged_kv_kernels(k)
    jit.load(choice).function("append_paged_kv")(
        k, v, kv_cache, kv_indices, kv_indptr, kv_last_page_len, batch_indices, positions
    )

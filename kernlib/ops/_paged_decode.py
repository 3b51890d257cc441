"""Decoding attention over a paged key-value cache."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal, overload

from kernlib import jit
from kernlib._checks import (
    AllInRange,
    DenseLast,
    InRange,
    LengthsInRange,
    Monotone,
    Multiple,
    NoOverlap,
    Rank,
    SameShape,
    SameSize,
    Size,
    Writable,
)
from kernlib._runtime import kernel_api
from kernlib.errors import ArgumentError, SpecError
from kernlib.ops._declared import int32_list, like, operand
from kernlib.ops._library import choose, library_spec

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from kernlib.jit import KernelChoice, KernelSpec

__all__ = ["SHIPPED_HEAD_DIMS", "PagedDecode", "paged_decode_spec", "plan_kernels", "run_kernels"]

_LISTS = ("kv_indptr", "kv_indices", "kv_last_page_len")
NEW_CHECKS = (
    InRange(Size("num_kv_heads"), 1),
    InRange(Size("page_size"), 1),
    InRange(Size("head_dim"), 8, 256),
    Multiple(Size("head_dim"), 8),
    Multiple(Size("num_qo_heads"), Size("num_kv_heads")),
)
PLAN_CHECKS = (
    *(check for name in _LISTS for check in int32_list(name, "kv_indptr")),
    SameSize(Size("kv_indptr", 0), Size("kv_last_page_len", 0), offset=1),
)
PAGED_DECODE_CHECKS = (
    *operand("q"),
    Rank("q", 3),
    DenseLast("q"),
    *like("kv_cache", "q"),
    Rank("kv_cache", 5),
    InRange(Size("kv_cache", 1), 2, 2),
    DenseLast("kv_cache"),
    *like("out", "q"),
    SameShape("out", "q"),
    DenseLast("out"),
    Writable("out"),
    NoOverlap("out", "q", in_place=True),
    NoOverlap("out", "kv_cache"),
    *(check for name in _LISTS for check in int32_list(f"self.{name}", "q")),
    SameSize(Size("q", 1), Size("self.num_qo_heads")),
    SameSize(Size("q", 2), Size("self.head_dim")),
    SameSize(Size("kv_cache", 2), Size("self.num_kv_heads")),
    SameSize(Size("kv_cache", 3), Size("self.page_size")),
    SameSize(Size("kv_cache", 4), Size("self.head_dim")),
    SameSize(Size("self.kv_indptr", 0), Size("q", 0), offset=1),
    SameSize(Size("self.kv_last_page_len", 0), Size("q", 0)),
    Monotone("self.kv_indptr"),
    AllInRange("self.kv_indices", Size("kv_cache", 0), "pages", "the pool", used="self.kv_indptr"),
    LengthsInRange("self.kv_last_page_len", "self.kv_indptr", Size("self.page_size")),
)

#: Worth building ahead: the head sizes of models in wide use. Others are built at first use.
SHIPPED_HEAD_DIMS = (64, 128, 256)

_LARGEST_HEAD = 256
_HEAD_STEP = 8
_HEADER = """\
#pragma once

namespace kernlib {{

constexpr int kHeadDim = {head_dim};

}}  // namespace kernlib
"""


@cache
def paged_decode_spec(backend: str, head_dim: int) -> KernelSpec:
    """Return the spec of the decoding kernel for one head size.

    Raises SpecError if the size is not a multiple of 8 up to 256.
    """
    if head_dim % _HEAD_STEP or not 0 < head_dim <= _LARGEST_HEAD:
        problem = f"head_dim = {head_dim}, but multiples of {_HEAD_STEP} up to {_LARGEST_HEAD}"
        raise SpecError("paged_decode", f"{problem} are supported")
    return library_spec(
        "paged_decode",
        "paged_decode/paged_decode",
        backend,
        params={"head_dim": head_dim},
        headers={"paged_decode_params.h": _HEADER.format(head_dim=head_dim)},
    )


@cache
def _choice(argument: str, device: torch.device, head_dim: int) -> KernelChoice:
    return choose("paged_decode", lambda at: paged_decode_spec(at, head_dim), argument, device)


def plan_kernels(
    decode: PagedDecode, kv_indptr: Tensor, *_lists: object, **_named: object
) -> tuple[KernelChoice, ...]:
    """Return the kernel that a plan on this device is for."""
    return (_choice("kv_indptr", kv_indptr.device, decode.head_dim),)


def run_kernels(
    decode: PagedDecode, q: Tensor, *_operands: object, **_options: object
) -> tuple[KernelChoice, ...]:
    """Return the kernel that decoding ``q`` uses."""
    return (_choice("q", q.device, decode.head_dim),)


class PagedDecode:
    """Attention of one query token a sequence over the tokens of its pages.

    ``num_qo_heads`` is a multiple of ``num_kv_heads`` (grouped-query attention); ``head_dim`` is a
    multiple of 8 up to 256 and is compiled in; ``page_size`` is any. The softmax runs online, in
    float32, as in "Online normalizer calculation for softmax" (Milakov and Gimelshein, 2018).

    Raises ArgumentError or SpecError (both are ValueErrors) for numbers outside of these.
    """

    @kernel_api(checks=NEW_CHECKS)
    def __init__(self, num_qo_heads: int, num_kv_heads: int, head_dim: int, page_size: int) -> None:
        if num_kv_heads < 1 or num_qo_heads % num_kv_heads:
            problem = f"{num_qo_heads} is not a multiple of num_kv_heads = {num_kv_heads}"
            raise ArgumentError("PagedDecode", f"num_qo_heads = {problem}")
        if page_size < 1:
            raise ArgumentError("PagedDecode", f"page_size = {page_size}, but must be at least 1")
        paged_decode_spec("cpu", head_dim)  # refuses a head size before any tensor exists
        self.num_qo_heads = num_qo_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.page_size = page_size
        self.kv_indptr: Tensor | None = None
        self.kv_indices: Tensor | None = None
        self.kv_last_page_len: Tensor | None = None

    @kernel_api(setup=True, kernels=plan_kernels, checks=PLAN_CHECKS)
    def plan(self, kv_indptr: Tensor, kv_indices: Tensor, kv_last_page_len: Tensor) -> None:
        """Set the page table for the runs that follow, and make the kernel ready.

        The pages of sequence ``b`` are ``kv_indices[kv_indptr[b]:kv_indptr[b + 1]]``, the last of
        which holds ``kv_last_page_len[b]`` tokens. ``kv_indptr`` is ``[batch + 1]`` and
        ``kv_last_page_len`` ``[batch]``; all are int32, on the device of the runs, and are kept,
        not copied.

        Raises TypeError or ValueError naming the argument and both numbers where they disagree.
        """
        (choice,) = plan_kernels(self, kv_indptr)
        jit.load(choice).function("check_page_table")(kv_indptr, kv_indices, kv_last_page_len)
        self.kv_indptr = kv_indptr
        self.kv_indices = kv_indices
        self.kv_last_page_len = kv_last_page_len

    @overload
    def run(
        self,
        q: Tensor,
        kv_cache: Tensor,
        *,
        sm_scale: float | None = None,
        out: Tensor | None = None,
        return_lse: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def run(
        self,
        q: Tensor,
        kv_cache: Tensor,
        *,
        sm_scale: float | None = None,
        out: Tensor | None = None,
        return_lse: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...

    @kernel_api(kernels=run_kernels, checks=PAGED_DECODE_CHECKS, outputs=("out",))
    def run(
        self,
        q: Tensor,
        kv_cache: Tensor,
        *,
        sm_scale: float | None = None,
        out: Tensor | None = None,
        return_lse: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the attention of ``q`` over the planned pages.

        ``q`` is ``[batch, num_qo_heads, head_dim]`` and ``kv_cache`` ``[num_pages, 2, num_kv_heads,
        page_size, head_dim]``, both in float16, bfloat16 or float32 with any strides but the last,
        which is 1. ``sm_scale`` multiplies the scores and is ``head_dim ** -0.5`` by default.
        ``out`` is like ``q`` and may be ``q``. With ``return_lse`` the natural logarithm of each
        sum of exponentials comes too: float32 ``[batch, num_qo_heads]``. A sequence without tokens
        gives zeros and minus infinity.

        Raises ArgumentError before a plan, and TypeError or ValueError naming the argument and
        both numbers where shapes, dtypes, devices or strides disagree. Page ids live on the device
        and are not checked: one that is out of range reads outside of the cache.
        """
        if self.kv_indptr is None:
            raise ArgumentError("PagedDecode.run", "there is no page table yet; call plan first")
        (choice,) = run_kernels(self, q)
        result = q.new_empty(q.shape) if out is None else out
        lse = _new_lse(q) if return_lse else None
        scale = self.head_dim**-0.5 if sm_scale is None else sm_scale
        jit.load(choice).function("paged_decode")(
            result, lse, q, kv_cache, self.kv_indptr, self.kv_indices, self.kv_last_page_len,
            self.num_qo_heads, self.num_kv_heads, self.page_size, scale,
        )  # fmt: skip
        return result if lse is None else (result, lse)


def _new_lse(q: Tensor) -> Tensor:
    import torch

    return q.new_empty(q.shape[:2], dtype=torch.float32)

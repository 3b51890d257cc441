"""The specialisations worth building ahead of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernlib.ops._activation import activation_spec
from kernlib.ops._norm import norm_spec
from kernlib.ops._paged_cache import append_paged_kv_spec
from kernlib.ops._paged_decode import paged_decode_spec

if TYPE_CHECKING:
    from kernlib.jit import KernelSpec

__all__ = ["shipped_specs"]

#: The defaults of each device. What only an explicit argument chooses is built where it is used.
_BACKENDS = ("cpu", "cuda")
#: Head sizes of models in wide use; others are built where they are first needed.
_HEAD_DIMS = (64, 128, 256)


def shipped_specs() -> tuple[KernelSpec, ...]:
    """Return what a package built ahead of time holds for each target that supports it."""
    found: list[KernelSpec] = []
    for backend in _BACKENDS:
        found += [norm_spec(backend), activation_spec(backend), append_paged_kv_spec(backend)]
        found += [paged_decode_spec(backend, head_dim) for head_dim in _HEAD_DIMS]
    return tuple(found)

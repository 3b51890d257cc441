"""The specialisations worth building ahead of time."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from kernlib._crash_handler import crash_spec
from kernlib._native_recorder import recorder_spec
from kernlib._statistics import statistics_spec
from kernlib.errors import SelectionError
from kernlib.ops._activation import activation_spec
from kernlib.ops._norm import norm_spec
from kernlib.ops._paged_cache import append_paged_kv_spec
from kernlib.ops._paged_decode import SHIPPED_HEAD_DIMS, paged_decode_spec

if TYPE_CHECKING:
    from kernlib.jit import KernelSpec

__all__ = ["matching_specs", "shipped_specs"]

#: The defaults of each device. What only an explicit argument chooses is built where it is used.
_BACKENDS = ("cpu", "cuda")


def shipped_specs() -> tuple[KernelSpec, ...]:
    """Return what a package built ahead of time holds for each target that supports it."""
    found: list[KernelSpec] = []
    for backend in _BACKENDS:
        found += [norm_spec(backend), activation_spec(backend), append_paged_kv_spec(backend)]
        found += [paged_decode_spec(backend, head_dim) for head_dim in SHIPPED_HEAD_DIMS]
    found += [statistics_spec("cpu"), statistics_spec("cuda"), recorder_spec(), crash_spec()]
    return tuple(found)


def matching_specs(pattern: str) -> list[KernelSpec]:
    """Return the shipped specs whose name or URI matches an fnmatch pattern.

    Raises SelectionError, naming all there are, if none does.
    """
    specs = shipped_specs()
    found = [
        spec for spec in specs if fnmatchcase(spec.name, pattern) or fnmatchcase(spec.uri, pattern)
    ]
    if not found:
        names = ", ".join(sorted({spec.uri for spec in specs}))
        raise SelectionError(f"no kernel matches {pattern!r}", f"There are {names}")
    return found

"""Names and dtypes of the entries in a capsule's safetensors files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernlib.dump._segments import hull, is_dense

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kernlib.dump._schema import View
    from kernlib.dump._segments import Hull

__all__ = ["SAFETENSORS_DTYPES", "covering_views", "entry_names"]

# Only the dtypes that every safetensors from 0.5 on reads: one entry of a younger dtype (F4,
# F8_E8M0, C64) makes the whole file unreadable there, so these are stored as bytes.
SAFETENSORS_DTYPES: Mapping[str, str] = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}

_MAX_NAME = 200


def covering_views(views: Iterable[View], storage: int) -> dict[Hull, View]:
    """Return, by the bytes they fill, the first views of a storage that can name an entry."""
    found: dict[Hull, View] = {}
    for view in views:
        if view.storage != storage or view.dtype not in SAFETENSORS_DTYPES:
            continue
        reach = hull(view)
        # A conjugated or negated view shows other values than its bytes are.
        if reach and reach not in found and is_dense(view) and not (view.conj or view.neg):
            found[reach] = view
    return found


def entry_names(
    storage: int, hulls: Iterable[Hull], views: Iterable[View], taken: set[str]
) -> list[str]:
    """Return a unique entry name for each hull: the argument's, or ``storage<id>@<start>``."""
    covering = covering_views(views, storage)
    names = []
    for reach in hulls:
        view = covering.get(reach)
        name = f"storage{storage}@{reach[0]}"
        if view is not None and view.path not in taken and _is_plain(view.path):
            name = view.path
        taken.add(name)
        names.append(name)
    return names


def _is_plain(path: str) -> bool:
    return (
        0 < len(path) <= _MAX_NAME and path.isprintable() and not path.startswith(("storage", "__"))
    )

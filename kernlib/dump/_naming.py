"""Names and dtypes of safetensors entries."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from kernlib.dump._segments import hull, is_dense

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kernlib.dump._schema import View

__all__ = ["SAFETENSORS_DTYPES", "Place", "entry_name", "naming_views"]

# The number of a storage, the first byte, and the one after the last.
Place = tuple[int, int, int]

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


def naming_views(views: Iterable[View]) -> dict[Place, View]:
    """Return, by the bytes of a storage that they fill, the views that can name an entry.

    Such a view is dense, of a dtype that safetensors shows, and first of its place; its bytes are
    its values, which those of a conjugated or negated view are not.
    """
    found: dict[Place, View] = {}
    taken: set[str] = set()
    for view in views:
        if view.dtype not in SAFETENSORS_DTYPES or view.conj or view.neg or not is_dense(view):
            continue
        reach = hull(view)
        if reach is None or view.path in taken or not _is_plain(view.path):
            continue
        place = (view.storage, reach[0], reach[1])
        if place not in found:
            found[place] = view
            taken.add(view.path)
    return found


def entry_name(place: Place, naming: Mapping[Place, View]) -> str:
    """Return the entry name of a place: the argument's, or ``storage<number>@<start>``."""
    view = naming.get(place)
    return f"storage{place[0]}@{place[1]}" if view is None else view.path


@lru_cache(1024)
def _is_plain(path: str) -> bool:
    return (
        0 < len(path) <= _MAX_NAME and path.isprintable() and not path.startswith(("storage", "__"))
    )

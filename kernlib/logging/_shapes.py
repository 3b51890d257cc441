"""What tells calls of one api apart: shapes and dtypes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["shapes_of"]

_DEEPEST = 4


def shapes_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Return a number for the dtypes and shapes of a call's tensors; reads no data.

    It is a hash: should two kinds of calls ever get the same one, they share a quota. Values that
    are no tensors only hold their place, so that another scale makes no other kind of call.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return 0
    try:
        found = _shapes(args, torch.Tensor, 0)
        if kwargs:
            found += [*kwargs, *_shapes(kwargs.values(), torch.Tensor, 0)]
        return hash(tuple(found))
    except (RuntimeError, NotImplementedError, TypeError):
        return 0  # nested tensors and symbolic sizes have no shape to go by


def _shapes(values: Iterable[Any], tensor: type, depth: int) -> list[Any]:
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is tensor or issubclass(kind, tensor):
            found += (value.dtype, value.shape)
        elif (kind is list or kind is tuple or kind is dict) and depth < _DEEPEST:
            items = value.values() if kind is dict else value
            found.append(tuple(_shapes(items, tensor, depth + 1)))
        else:
            found.append(None)
    return found

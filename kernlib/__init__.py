"""A flight recorder and crash lab around JIT-compiled kernels."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kernlib._version import __version__

__all__ = [
    "PagedDecode",
    "__version__",
    "append_paged_kv",
    "fused_add_rms_norm_",
    "kernel_api",
    "rms_norm",
    "silu_and_mul",
]

_HOMES = {
    "PagedDecode": "kernlib.ops",
    "append_paged_kv": "kernlib.ops",
    "fused_add_rms_norm_": "kernlib.ops",
    "kernel_api": "kernlib._runtime",
    "rms_norm": "kernlib.ops",
    "silu_and_mul": "kernlib.ops",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - typed by the stub beside this file
    """Import a public name at its first use: ``import kernlib`` loads no torch."""
    try:
        home = _HOMES[name]
    except KeyError:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message) from None
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""How values are described in a log line."""

from __future__ import annotations

import struct
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

__all__ = [
    "LateStatistics",
    "TensorFacts",
    "console_text",
    "describe",
    "describe_all",
    "error_line",
    "statistics",
]

_LONGEST_TEXT = 120
_MOST_ITEMS = 16
_DEEPEST = 4
_LONGEST_ERROR = 2000


class _Names(dict[object, str]):
    """The short names of dtypes and devices; both are few, and their str() is slow."""

    def __missing__(self, value: object) -> str:
        self[value] = name = str(value).removeprefix("torch.")
        return name


_NAMES = _Names()


class TensorFacts(dict[str, Any]):
    """The description of a tensor; a user's dict with the same keys is none."""


class LateStatistics(dict[str, Any]):
    """The statistics of a tensor that was described in an earlier line."""


def _tensor(value: torch.Tensor) -> TensorFacts:
    facts = TensorFacts(
        dtype=_NAMES[value.dtype], shape=tuple(value.shape), device=_NAMES[value.device]
    )
    try:
        facts["stride"] = value.stride()
        address = value.data_ptr()
        # The largest power of two that divides the address; beyond 512 it says nothing more.
        facts["align"] = min(address & -address, 512) or 512
    except (RuntimeError, NotImplementedError):  # sparse, meta, fake: no strides or no memory
        facts["layout"] = _NAMES[value.layout]
    return facts


def describe_all(values: Mapping[str, object]) -> dict[str, Any]:
    """Describe named values; tensors, nearly all of them, take the short way."""
    import torch

    plain = torch.Tensor
    return {
        name: _tensor(value) if type(value) is plain else describe(value)
        for name, value in values.items()
    }


def describe(value: object, depth: int = 0) -> object:
    """Return a JSON-able description: tensors by their metadata, other values as they are.

    No tensor data is read and no device is waited for.
    """
    import torch

    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):  # of subclasses, such as enums, the number
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else value[:_LONGEST_TEXT] + "..."
    if isinstance(value, (list, tuple)) and depth < _DEEPEST:
        items = [describe(item, depth + 1) for item in value[:_MOST_ITEMS]]
        return items if len(value) <= _MOST_ITEMS else [*items, f"... {len(value)} items"]
    if isinstance(value, dict) and depth < _DEEPEST:
        return {str(key): describe(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (torch.dtype, torch.device)):
        return _NAMES[value]
    return f"<{type(value).__qualname__}>"


def error_line(error: BaseException) -> str:
    """Return an exception's type and the first line of its text, whatever its ``__str__`` does."""
    text = str(traceback.TracebackException.from_exception(error, limit=0))
    first = next(iter(text[:_LONGEST_ERROR].splitlines()), "")
    return f"{type(error).__qualname__}: {first}"


def _contiguous(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


def console_text(description: object) -> str:
    """Return a description as one compact word: ``bfloat16[7,32,128] cpu align512``."""
    if isinstance(description, TensorFacts):
        shape = description["shape"]
        parts = [f"{description['dtype']}[{','.join(map(str, shape))}]"]
        stride = description.get("stride")
        if stride is not None and not _contiguous(shape, stride):
            parts.append(f"stride({','.join(map(str, stride))})")
        parts.append(description["device"])
        if "align" in description:
            parts.append(f"align{description['align']}")
        if "stats" in description:
            parts.append(_statistics_text(description["stats"]))
        return " ".join(parts)
    if isinstance(description, LateStatistics):
        return f"({_statistics_text(description['stats'])})"
    if isinstance(description, list):
        return f"[{', '.join(map(console_text, description))}]"
    if isinstance(description, dict):
        return f"{{{', '.join(f'{k}: {console_text(v)}' for k, v in description.items())}}}"
    return repr(description)


def _statistics_text(stats: object) -> str:
    if not isinstance(stats, dict):
        return str(stats)
    return " ".join(
        f"{key}={value:.6g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in stats.items()
    )


def statistics(tensor: torch.Tensor) -> dict[str, float | int] | str:
    """Return min, max, mean and absmax of the finite elements; count NaN, Inf and zeros.

    Integers stay integers; of complex numbers the real and imaginary parts are the elements. The
    mean is infinite or NaN where the sum leaves float64. Reads the data and waits for the device
    once. Returns a reason instead for empty tensors and for dtypes without arithmetic.
    """
    import torch

    if not tensor.numel():
        return "empty"
    try:
        with torch.no_grad():
            plain = tensor.detach()
            if plain.is_complex():
                plain = torch.view_as_real(plain.resolve_conj())
            return _of_floats(plain) if plain.is_floating_point() else _of_integers(plain)
    except (RuntimeError, NotImplementedError, TypeError) as error:
        return f"no statistics: {str(error).splitlines()[0][:80]}"


def _of_floats(plain: torch.Tensor) -> dict[str, float | int]:
    import torch

    values = plain if plain.dtype is torch.float64 else plain.float()
    finite = values.isfinite()
    rows = [
        values.where(finite, torch.inf).amin(),
        values.where(finite, -torch.inf).amax(),
        values.where(finite, 0).sum(dtype=torch.float64) / finite.sum(),
        values.isnan().sum(),
        values.isinf().sum(),
        (values == 0).sum(),
    ]
    # Minus zero is told as zero.
    found = [float(row) + 0.0 for row in torch.stack([row.double() for row in rows]).tolist()]
    low, high, mean, nans, infs, zeros = found
    counts: dict[str, float | int] = {"nan": int(nans), "inf": int(infs), "zero": int(zeros)}
    if nans + infs == values.numel():
        return counts
    return {"min": low, "max": high, "mean": mean, "absmax": max(high, -low), **counts}


def _of_integers(plain: torch.Tensor) -> dict[str, float | int]:
    import torch

    values, offset = plain, 0
    if plain.dtype is torch.uint64:  # of which torch has no order: as int64, shifted by half
        values, offset = plain.view(torch.int64) ^ -(2**63), 2**63
    elif plain.dtype not in {torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8}:
        values = plain.long()
    mean = plain.sum(dtype=torch.float64) if not offset else plain.double().sum()
    rows = [
        values.amin().long(),
        values.amax().long(),
        (values == -offset).sum(),
        (mean / plain.numel()).view(torch.int64),  # its bits: all come in one transfer
    ]
    low, high, zeros, bits = torch.stack(rows).tolist()
    low, high = low + offset, high + offset
    extremes = {"min": low, "max": high, "mean": struct.unpack("d", struct.pack("q", bits))[0]}
    return {**extremes, "absmax": max(high, -low), "nan": 0, "inf": 0, "zero": zeros}

"""Statistics by exact arithmetic on Python numbers, and tensors to try them on."""

import math
import random
from fractions import Fraction

import torch

__all__ = ["DTYPES", "FLOATS", "INTEGERS", "VIEWS", "agree", "expected", "noise", "numbers"]

_FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
FLOATS = tuple(
    getattr(torch, name)
    for name in ("float64", "float32", "float16", "bfloat16", *_FLOAT8)
    if hasattr(torch, name)
)
INTEGERS = (
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32,
    torch.uint64, torch.bool,
)  # fmt: skip
DTYPES = FLOATS + INTEGERS


def noise(dtype, count):
    """Return elements of random bits: every kind of NaN, both infinities, subnormals.

    Those of float64 are small enough to be added up in float64.
    """
    if dtype is torch.bool:
        return torch.randint(0, 2, (count,)).bool()
    values = torch.randint(0, 256, (count * dtype.itemsize,), dtype=torch.uint8).view(dtype)
    if dtype is not torch.float64:
        return values
    values[torch.rand(count) < 0.05] = math.nan
    values[torch.rand(count) < 0.05] = -math.inf
    return values.where(~values.isfinite() | (values.abs() < 2.0**900), values * 2.0**-200)


def numbers(dtype, count):
    """Return ordinary numbers, some of them zero."""
    if dtype is torch.bool:
        return noise(dtype, count)
    if dtype in INTEGERS:
        return torch.randint(0, 100, (count,)).to(dtype)
    values = torch.randn(count, dtype=torch.float64)
    values[torch.rand(count) < 0.05] = 0
    return values.to(dtype)


def expected(tensor):
    """Return the statistics of a tensor, exact but for the last rounding of the mean."""
    values = tensor.tolist() if tensor.dtype in INTEGERS else tensor.double().tolist()
    values = [value + 0 for value in _flat(values)]
    finite = [value for value in values if math.isfinite(value)]
    counts = {
        "nan": sum(map(math.isnan, values)),
        "inf": sum(map(math.isinf, values)),
        "zero": values.count(0),
    }
    if not finite:
        return counts
    low, high = min(finite), max(finite)
    mean = float(sum(map(Fraction, finite)) / len(finite))
    return {"min": low, "max": high, "mean": mean, "absmax": max(map(abs, finite)), **counts}


def _flat(values):
    if not isinstance(values, list):
        return [values]
    return [number for value in values for number in _flat(value)]


def agree(found, tensor):
    """Hold statistics against the exact ones: all equal, in order; the mean as of float32."""
    wanted = expected(tensor)
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        if name != "mean":
            assert found[name] == value, name
            assert type(found[name]) is type(value), name
    if "mean" in wanted:
        flat = tensor.double()
        magnitude = flat[flat.isfinite()].abs().mean().item()
        error = abs(Fraction(found["mean"]) - Fraction(wanted["mean"]))
        assert error <= 1e-6 * abs(wanted["mean"]) + 3e-7 * magnitude


def _padded(x):
    return x.view(-1, 40)[:, :33]


def _overlapping(x):
    return x.as_strided((300, 8), (3, 1))


def _shuffled(x):
    order = list(range(5))
    random.shuffle(order)
    return x[: 3 * 5 * 7 * 2 * 11].view(3, 5, 7, 2, 11).permute(order)


#: Views of 16,000 elements.
VIEWS = {
    "whole": lambda x: x,
    "odd start": lambda x: x[3:],
    "every second": lambda x: x[::2],
    "every seventh": lambda x: x[1::7],
    "transposed": lambda x: x.view(100, 160).t(),
    "columns": lambda x: x.view(100, 160)[:, 7:19],
    "one column": lambda x: x.view(100, 160)[:, 5],
    "padded rows": _padded,
    "long rows": lambda x: x.view(8, 2000)[:, 100:1900],
    "heads": lambda x: x.view(50, 4, 80)[:, 1],
    "expanded": lambda x: x[:100].view(100, 1).expand(100, 37),
    "expanded columns": lambda x: x.view(100, 160)[:, 3:4].expand(3, 100, 5),
    "all one": lambda x: x[7].expand(9, 9),
    "overlapping": _overlapping,
    "shuffled": _shuffled,
    "odd strides": lambda x: x.as_strided((1, 40, 1), (77, 3, 999)),
    "a number": lambda x: x[5],
}

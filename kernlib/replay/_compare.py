"""Compares tensors of a replay with the recorded ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernlib.replay._protocol import Compared

if TYPE_CHECKING:
    import torch

__all__ = ["TOLERANCES", "compare"]

#: Relative and absolute tolerance per dtype: those of ``torch.testing`` where it has them; one
#: unit in the last place for eight-bit floats. Dtypes that are not listed must agree in every bit.
TOLERANCES: dict[str, tuple[float, float]] = {
    "float64": (1e-7, 1e-7),
    "float32": (1.3e-6, 1e-5),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "complex128": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "float8_e4m3fn": (2**-3, 2**-9),
    "float8_e4m3fnuz": (2**-3, 2**-10),
    "float8_e5m2": (2**-2, 2**-16),
    "float8_e5m2fnuz": (2**-2, 2**-17),
}


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return tensor.resolve_conj().resolve_neg().contiguous().flatten().view(torch.uint8)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj().to(torch.complex128))
    return tensor.double() if tensor.dtype.itemsize > 1 else tensor.float().double()


def compare(name: str, actual: torch.Tensor, recorded: torch.Tensor) -> Compared:
    """Compare two tensors on the CPU; NaN equals NaN, infinities equal themselves."""
    import torch

    dtype = str(recorded.dtype).removeprefix("torch.")
    if actual.dtype != recorded.dtype or actual.shape != recorded.shape:
        detail = (
            f"{str(actual.dtype).removeprefix('torch.')}{list(actual.shape)}, "
            f"recorded {dtype}{list(recorded.shape)}"
        )
        return Compared(name, dtype, matches=False, identical=False, detail=detail, tolerance="")
    if not recorded.numel() or torch.equal(_bytes(actual), _bytes(recorded)):
        return Compared(
            name, dtype, matches=True, identical=True, detail="identical bits", tolerance=""
        )
    if dtype not in TOLERANCES:
        wrong = int((_bytes(actual) != _bytes(recorded)).sum())
        detail = f"{wrong} of {_bytes(recorded).numel()} bytes differ"
        return Compared(
            name, dtype, matches=False, identical=False, detail=detail, tolerance="exact"
        )
    return _compare_floats(name, dtype, actual, recorded)


def _compare_floats(
    name: str, dtype: str, actual: torch.Tensor, recorded: torch.Tensor
) -> Compared:
    import torch

    relative, absolute = TOLERANCES[dtype]
    got, wanted = _wide(actual), _wide(recorded)
    close = torch.isclose(got, wanted, rtol=relative, atol=absolute, equal_nan=True)
    tolerance = f"rtol {relative:.3g} atol {absolute:.3g}"
    both = got.isfinite() & wanted.isfinite()
    largest = float((got - wanted).where(both, 0.0).abs().max())
    detail = f"largest absolute difference {largest:.3g}"
    if matches := bool(close.all()):
        return Compared(
            name, dtype, matches=matches, identical=False, detail=detail, tolerance=tolerance
        )
    wrong = (~close).nonzero()
    at = tuple(int(part) for part in wrong[0])
    position = "".join(f"[{part}]" for part in at)
    detail = (
        f"{len(wrong)} of {close.numel()} elements; first {name}{position} = {float(got[at]):.9g}, "
        f"recorded {float(wanted[at]):.9g}; {detail}"
    )
    return Compared(name, dtype, matches=False, identical=False, detail=detail, tolerance=tolerance)

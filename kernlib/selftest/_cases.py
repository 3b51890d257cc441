"""Arguments of the calls: sound ones, and faulty ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import Tensor

__all__ = ["Arguments", "Case", "case_of"]

#: Elements; four terabytes, which no neighbour of a tensor reaches.
_FAR = 2**40
_FIXED_POINT = 1 << 24


@dataclass(frozen=True)
class Arguments:
    """What an api is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """Two calls of one api: the first is right, the second sets off the fault."""

    sound: Arguments
    planted: Arguments


class _Make:
    """Makes small tensors on a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def floats(self, count: int) -> Tensor:
        import torch

        return torch.arange(1.0, count + 1.0, device=self.device)

    def zeros(self, count: int) -> Tensor:
        import torch

        return torch.zeros(count, device=self.device)

    def ints(self, *values: int, bits: int = 64) -> Tensor:
        import torch

        dtype = torch.int64 if bits == 64 else torch.int32  # noqa: PLR2004 - the two there are
        return torch.tensor(values, dtype=dtype, device=self.device)


def _indices(make: _Make) -> Case:
    pool = make.floats(16)
    return Case(Arguments((pool, make.ints(3, 5))), Arguments((pool, make.ints(3, _FAR))))


def _write_out_of_bounds(make: _Make) -> Case:
    out, values = make.zeros(16), make.floats(2)
    return Case(
        Arguments((out, make.ints(3, 5), values)), Arguments((out, make.ints(3, _FAR), values))
    )


def _unguarded(make: _Make) -> Case:
    x = make.floats(64)
    return Case(Arguments((x,), {"guarded": True}), Arguments((x,)))


def _misalignment(make: _Make) -> Case:
    return Case(Arguments((make.floats(16),)), Arguments((make.floats(17)[1:],)))


def _hang(make: _Make) -> Case:
    x = make.floats(4)
    return Case(Arguments((x, 1)), Arguments((x, 0)))


def _not_a_number(make: _Make) -> Case:
    x, scale, bad = make.zeros(8), make.floats(8), make.floats(8)
    bad[2] = 0.0
    return Case(Arguments((x, scale)), Arguments((x, bad)))


def _int32_overflow(make: _Make) -> Case:
    """255 times 2^24 is above 2^31; what is left of it in 32 bits leads to element -1."""
    table = make.floats(256)
    return Case(
        Arguments((table, make.ints(1, 127, bits=32), _FIXED_POINT)),
        Arguments((table, make.ints(1, 255, bits=32), _FIXED_POINT)),
    )


def _stale_workspace(make: _Make) -> Case:
    """Let the second call find what the first one left in the workspace."""
    x, workspace = make.floats(16), make.zeros(16)
    return Case(Arguments((x, workspace), {"guarded": True}), Arguments((x, workspace)))


def _wrong_device(make: _Make) -> Case:
    x = make.floats(16)
    elsewhere = x.to("meta" if make.device.type == "cpu" else "cpu")
    return Case(Arguments((x, x)), Arguments((x, elsewhere)))


def _other_device(make: _Make) -> Case:
    import torch

    x, second = make.floats(16), _Make(torch.device("cuda", 1))
    return Case(Arguments((x, x)), Arguments((x, second.floats(16))))


_CASES: dict[str, Callable[[_Make], Case]] = {
    "assertion": _indices,
    "hang": _hang,
    "int32_overflow": _int32_overflow,
    "misalignment": _misalignment,
    "not_a_number": _not_a_number,
    "off_by_one": _unguarded,
    "other_device": _other_device,
    "race": _unguarded,
    "read_out_of_bounds": _indices,
    "stale_workspace": _stale_workspace,
    "write_out_of_bounds": _write_out_of_bounds,
    "wrong_device": _wrong_device,
}


def case_of(fault: str, device: str) -> Case:
    """Return the two calls of a fault, with their tensors on ``device``."""
    import torch

    return _CASES[fault](_Make(torch.device(device)))

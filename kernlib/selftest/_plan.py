"""Which faults are planted how, on which device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernlib.errors import SelectionError
from kernlib.selftest._faults import FAULTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernlib.selftest._faults import Expected, Fault

__all__ = ["Run", "plan_runs"]

_VARIANTS = ("eager", "graph", "streams", "thread", "worker")
#: The number of the call that has the fault; the one before it is sound.
_PLANTED_CALL = 2


@dataclass(frozen=True)
class Run:
    """One fault, recorded in one way on one kind of device."""

    fault: Fault
    variant: str
    backend: str

    @property
    def device(self) -> str:
        """Where the calls' tensors are."""
        return "cpu" if self.backend == "cpu" else "cuda:0"

    @property
    def call(self) -> int:
        """The number of the planted call in its process."""
        return _PLANTED_CALL

    @property
    def expected(self) -> Expected:
        """What must be found."""
        return self.fault.expected(self.backend)

    @property
    def name(self) -> str:
        """A name for a folder."""
        return f"{self.backend}-{self.fault.name}-{self.variant}"

    def obstacle(self, devices: int) -> str:
        """Return why the run cannot be made here, with so many GPUs; empty if it can."""
        if self.fault.devices > 1 and (self.backend == "cpu" or devices < self.fault.devices):
            return "needs two GPUs"
        return "needs a GPU" if self.backend == "cuda" and not devices else ""


def plan_runs(
    backends: Sequence[str], only: Sequence[str] = (), variants: Sequence[str] = ()
) -> list[Run]:
    """Return the runs of all faults, or of those named, in every way or in those named.

    Raises SelectionError for a name that no fault or no way has.
    """
    _refuse_unknown("planted fault", only, [fault.name for fault in FAULTS])
    _refuse_unknown("way to plant one", variants, _VARIANTS)
    return [
        Run(fault, variant, backend)
        for backend in backends
        for fault in FAULTS
        if not only or fault.name in only
        for variant in fault.expected(backend).variants
        if not variants or variant in variants
    ]


def _refuse_unknown(kind: str, wanted: Sequence[str], known: Sequence[str]) -> None:
    for name in wanted:
        if name not in known:
            raise SelectionError(f"no {kind} is called {name!r}", f"There are {', '.join(known)}")

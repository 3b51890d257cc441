"""What the library builds."""

from pathlib import Path

from kernlib import jit

GATHER = jit.KernelSpec(
    name="example_gather",
    backend="cpu",
    root=Path(__file__).parent,
    sources=("csrc/gather.cc", "csrc/common/backend_cpu.cc"),  # the latter is kernlib's
    targets=("cpu",),
)


def gather_kernels(table, *_rows, **_options):
    """Return what a call with these arguments builds; pure, so that a replay may ask again."""
    target = jit.target_of(table.device)
    return (jit.KernelChoice(spec=GATHER, target=target, reason=f"the table is on {table.device}"),)

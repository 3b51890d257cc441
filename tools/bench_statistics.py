"""How fast the fused statistics read a tensor, beside a copy of it and torch's reductions.

Host time by time.perf_counter_ns, medians over interleaved rounds, the kernel on as many threads as
torch uses. Its results are checked against float64 before they are timed.
"""

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable

import torch

from kernlib._statistics import FusedStatistics
from kernlib.config import get_config
from kernlib.logging import statistics as in_python

MIB = 1 << 20
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
#: Many times slower than the kernel: a few rounds tell.
SLOW, SLOW_ROUNDS = {"torch", "python"}, 3
Work = Callable[[], object]


def reductions(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.amin(), x.amax(), x.mean(), x.isnan().sum(), x.isinf().sum()]


def check(fused: FusedStatistics, x: torch.Tensor) -> None:
    """Make sure of the numbers, with NaN and Inf among them, and that the kernel gives them."""
    spoilt = x.clone()
    flat = spoilt.view(-1)
    flat[:: 1 + flat.numel() // 7] = float("nan")
    flat[1 :: 1 + flat.numel() // 5] = float("-inf")
    for tensor in (x, spoilt):
        wide = tensor.double()
        finite = wide[wide.isfinite()]
        wanted = {
            "min": finite.min().item(),
            "max": finite.max().item(),
            "mean": finite.mean().item(),
            "absmax": finite.abs().max().item(),
            "nan": int(wide.isnan().sum()),
            "inf": int(wide.isinf().sum()),
            "zero": int((wide == 0).sum()),
        }
        found = fused(tensor)
        if not isinstance(found, dict) or list(found) != list(wanted):
            sys.exit(f"bench_statistics: {found} instead of {wanted}")
        error = abs(found.pop("mean") - wanted.pop("mean"))
        expect(error <= 1e-8 * wanted["absmax"], "the mean", error)
        expect(found == wanted, "all but the mean", f"{found}, not {wanted}")


def expect(holds: bool, what: str, found: object) -> None:  # noqa: FBT001 - reads as a sentence
    if not holds:
        sys.exit(f"bench_statistics: not what float64 says: {what}: {found}")


def seconds(work: Work, count: int) -> float:
    begin = time.perf_counter_ns()
    for _ in range(count):
        work()
    return (time.perf_counter_ns() - begin) / count / 1e9


def measure(works: dict[str, Work], counts: dict[str, int], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each work in every round; interleaved, so that drift meets all."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for number in range(rounds):
        for name, work in works.items():
            if name in SLOW and number >= SLOW_ROUNDS:
                continue
            times[name].append(seconds(work, counts[name]))
    return times


def report(title: str, size: int, times: dict[str, list[float]]) -> None:
    """Print a line: speeds in bytes of the tensor, and how often the copy's the kernel's is."""
    middle = {name: statistics.median(values) for name, values in times.items()}
    ratios = sorted(c / k for c, k in zip(times["copy"], times["kernel"], strict=True))
    low, high = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
    print(
        f"{title:<30}{size / middle['copy'] / 1e9:>8.1f}{size / middle['kernel'] / 1e9:>8.1f}"
        f"{middle['copy'] / middle['kernel']:>8.2f}{f'{low:.2f}-{high:.2f}':>13}"
        f"{middle['kernel'] * 1e6:>12.1f}{middle['torch'] / middle['kernel']:>10.1f}"
        f"{middle['python'] / middle['kernel']:>10.1f}"
    )


def one(fused: FusedStatistics, x: torch.Tensor, title: str, rounds: int) -> None:
    size = x.numel() * x.element_size()
    to = torch.empty_like(x)
    works: dict[str, Work] = {
        "copy": lambda: to.copy_(x),
        "kernel": lambda: fused(x),
        "torch": lambda: reductions(x),
        "python": lambda: in_python(x),
    }
    check(fused, x)
    quick, slow = max(1, 16 * MIB // size), max(1, MIB // size)
    counts = {"copy": quick, "kernel": quick, "torch": slow, "python": slow}
    report(title, size, measure(works, {name: min(n, 500) for name, n in counts.items()}, rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--mib", type=int, nargs="*", default=[1, 4, 16, 64, 256])
    options = parser.parse_args()
    fused = FusedStatistics(get_config(), in_python)
    if fused.kernel.wait() is None:
        sys.exit("bench_statistics: the kernel cannot be built or loaded here")
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, Python "
        f"{platform.python_version()}, torch {torch.__version__}, target cpu; "
        f"perf_counter_ns, {options.rounds} interleaved rounds"
    )
    print(
        "GB/s of the tensor's own bytes; spread: 10 to 90 % of the rounds; others x kernel's time"
    )
    heads = f"{'copy':>8}{'kernel':>8}{'ratio':>8}{'spread':>13}{'kernel us':>12}"
    print(f"{'':<30}{heads}{'5 torch':>10}{'Python':>10}")
    for dtype in DTYPES:
        name = str(dtype).removeprefix("torch.")
        x = torch.randn(4096, dtype=torch.float32).to(dtype)
        one(fused, x, f"{name} [4096]", options.rounds)
        for mib in options.mib:
            x = torch.randn(mib * MIB // dtype.itemsize // 1024, 1024).to(dtype)
            one(fused, x, f"{name} [{x.shape[0]},1024]", options.rounds)
        for columns in (768, 64):
            view = torch.randn(16 * MIB // dtype.itemsize // 1024, 1024).to(dtype)[:, :columns]
            one(fused, view, f"{name} [{view.shape[0]},1024][:,:{columns}]", options.rounds)


if __name__ == "__main__":
    main()

"""How fast the fused statistics read a tensor, beside a copy of it and torch's reductions.

On the CPU host time by time.perf_counter_ns, the kernel on as many threads as torch uses. On CUDA
the copy and the kernel are timed by the device's own events, what waits for the device by the
host, which also tells what a launch of the kernel takes it. Medians over interleaved rounds;
results are checked against float64 before they are timed.
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


def reductions(x: torch.Tensor) -> list[float]:
    mean = x.mean() if x.is_floating_point() else x.double().mean()
    return [r.item() for r in (x.amin(), x.amax(), mean, x.isnan().sum(), x.isinf().sum())]


def check(fused: FusedStatistics, x: torch.Tensor) -> None:
    """Make sure of the numbers, with NaN and Inf among them, and that the kernel gives them."""
    tensors = [x]
    if x.dtype.is_floating_point:
        wide = x.double()
        flat = wide.view(-1)
        flat[:: 1 + flat.numel() // 7] = float("nan")
        if x.element_size() > 1:  # the other has no infinity
            flat[1 :: 1 + flat.numel() // 5] = float("-inf")
        tensors.append(wide.to(x.dtype))
    for tensor in tensors:
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
        found = there(fused(tensor))
        if not isinstance(found, dict) or list(found) != list(wanted):
            sys.exit(f"bench_statistics: {found} instead of {wanted}")
        error = abs(found.pop("mean") - wanted.pop("mean"))
        expect(error <= 1e-8 * wanted["absmax"], "the mean", error)
        expect(found == wanted, "all but the mean", f"{found}, not {wanted}")


def there(found: object) -> object:
    """Return statistics, those of a device once it has written them."""
    if not hasattr(found, "poll"):
        return found
    torch.cuda.synchronize()
    return found.poll()


def expect(holds: bool, what: str, found: object) -> None:  # noqa: FBT001 - reads as a sentence
    if not holds:
        sys.exit(f"bench_statistics: not what float64 says: {what}: {found}")


def seconds(work: Work, count: int, *, by_device: bool = False) -> float:
    if by_device:
        torch.cuda._sleep(1_000_000)  # noqa: SLF001 - the host gets ahead meanwhile
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        awaited = [work() for _ in range(count)]
        last.record()
        last.synchronize()
        for one in awaited:  # their places are needed again
            if hasattr(one, "poll"):
                one.poll()
        return first.elapsed_time(last) / count / 1e3
    begin = time.perf_counter_ns()
    for _ in range(count):
        work()
    return (time.perf_counter_ns() - begin) / count / 1e9


def measure(
    works: dict[str, Work], counts: dict[str, int], rounds: int, *, on_cuda: bool
) -> dict[str, list[float]]:
    """Return the seconds of each work in every round; interleaved, so that drift meets all."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        there(work()) if on_cuda else work()
    for number in range(rounds):
        for name, work in works.items():
            if name in SLOW and number >= SLOW_ROUNDS:
                continue
            by_device = on_cuda and name not in SLOW
            times[name].append(seconds(work, counts[name], by_device=by_device))
    return times


def launch_microseconds(fused: FusedStatistics, x: torch.Tensor, count: int = 1000) -> float:
    """Return what the host needs to have a tensor measured."""
    torch.cuda.synchronize()
    begin = time.perf_counter_ns()
    awaited = [fused(x) for _ in range(count)]
    took = time.perf_counter_ns() - begin
    torch.cuda.synchronize()
    for one in awaited:
        one.poll()
    return took / count / 1e3


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
        "torch": lambda: reductions(x if x.element_size() > 1 else x.float()),
        "python": lambda: in_python(x),
    }
    check(fused, x)
    quick, slow = max(1, 16 * MIB // size), max(1, MIB // size)
    counts = {"copy": quick, "kernel": quick, "torch": slow, "python": slow}
    counts = {name: min(n, 500) for name, n in counts.items()}
    if x.is_cuda:
        counts |= {"copy": 10, "kernel": 10}
    report(title, size, measure(works, counts, rounds, on_cuda=x.is_cuda))


def prepared(device: torch.device) -> FusedStatistics:
    """Return the statistics with their kernel loaded, and say on what they run."""
    fused = FusedStatistics(get_config(), in_python)
    kernel = fused.kernel_on(device) if device.type == "cuda" else fused.kernel
    if (loaded := kernel.wait()) is None:
        sys.exit("bench_statistics: the kernel cannot be built or loaded here")
    on = f"{os.cpu_count()} cores, {torch.get_num_threads()} threads"
    if device.type == "cuda":
        on = f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"
    print(
        f"{platform.machine()}, {on}, Python {platform.python_version()}, torch "
        f"{torch.__version__}, target {loaded.artifact.record.target}"
    )
    return fused


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--mib", type=int, nargs="*", default=[1, 4, 16, 64, 256])
    options = parser.parse_args()
    device = options.device
    fused = prepared(device)
    timer = "CUDA events, else perf_counter_ns" if device.type == "cuda" else "perf_counter_ns"
    print(f"{timer}, {options.rounds} interleaved rounds; GB/s of the tensor's own bytes")
    print("spread: 10 to 90 % of the rounds; others x kernel's time")
    heads = f"{'copy':>8}{'kernel':>8}{'ratio':>8}{'spread':>13}{'kernel us':>12}"
    print(f"{'':<30}{heads}{'5 torch':>10}{'Python':>10}")
    dtypes = (
        [*DTYPES, torch.float8_e4m3fn, torch.int8, torch.int64] if device.type == "cuda" else DTYPES
    )
    for dtype in dtypes:
        name = str(dtype).removeprefix("torch.")
        one(fused, made((4096,), dtype, device), f"{name} [4096]", options.rounds)
        for mib in options.mib:
            x = made((mib * MIB // dtype.itemsize // 1024, 1024), dtype, device)
            one(fused, x, f"{name} [{x.shape[0]},1024]", options.rounds)
        for columns in (768, 64):
            rows = max(options.mib[-1] if device.type == "cuda" else 16, 1) * MIB
            view = made((rows // dtype.itemsize // 1024, 1024), dtype, device)[:, :columns]
            one(fused, view, f"{name} [{view.shape[0]},1024][:,:{columns}]", options.rounds)
    if device.type == "cuda":
        small = made((4096,), torch.bfloat16, device)
        print(f"a launch takes the host {launch_microseconds(fused, small):.1f} us")


def made(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if not dtype.is_floating_point:
        return torch.randint(-1000, 1000, shape, device=device).to(dtype)
    return torch.randn(shape, dtype=torch.float32, device=device).to(dtype)


if __name__ == "__main__":
    main()

"""``kernlib jit build``: many kernels in one run."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kernlib.config import Mode

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from kernlib.config import Config
    from kernlib.jit import BatchResult, KernelChoice

__all__ = ["register"]


def register(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    build = actions.add_parser("build", help="build kernels into the cache, all in one run")
    build.add_argument(
        "pattern", nargs="?", default="*", metavar="PATTERN",
        help="an fnmatch pattern on kernel names or URIs, such as 'paged_decode*'",
    )  # fmt: skip
    build.add_argument(
        "--target", metavar="LIST",
        help="for example cpu,sm_90a (default: the CPU, the devices here, KERNLIB_CUDA_ARCH_LIST)",
    )  # fmt: skip
    build.add_argument(
        "--mode", choices=tuple(map(str, Mode)), default=None,
        help="how to build (default: KERNLIB_JIT_MODE)",
    )  # fmt: skip
    build.set_defaults(run=_run)


def _choices(pattern: str, wanted: str | None, config: Config) -> list[KernelChoice]:
    from kernlib import jit
    from kernlib.jit._aot_package import ahead_choices
    from kernlib.ops._catalogue import matching_specs

    specs = matching_specs(pattern)
    if wanted is not None:
        targets = [part for part in re.split(r"[,\s]+", wanted) if part]
        return list(ahead_choices(specs, targets))
    # What is not named may be missing: a machine without nvcc builds what it can.
    return [
        jit.KernelChoice(spec=spec, target=target, reason="kernlib jit build")
        for target in jit.build_targets(config)
        for spec in specs
        if spec.supports(target)
    ]


@contextmanager
def _progress(count: int) -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar on a terminal, and a plain line for each kernel's end in a pipe."""
    if not sys.stderr.isatty():
        yield lambda _done, _all, _step: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{count} kernels", total=None)

        def tell(done: int, steps: int, step: str) -> None:
            name = step.rpartition("/")[2]
            bar.update(task, completed=done, total=steps, description=f"{count} kernels: {name}")

        yield tell


def _row(result: BatchResult) -> tuple[str, str, str, str, str]:
    if result.artifact is None:
        return result.uri, result.target, result.mode, "FAILED", ""
    how = "cached" if result.seconds is None else f"{result.seconds:.1f} s"
    return result.uri, result.target, result.mode, how, f"{result.artifact.size:,} bytes"


def _run(arguments: argparse.Namespace) -> int:
    from kernlib import jit
    from kernlib.config import get_config

    config = get_config()
    mode = Mode(arguments.mode) if arguments.mode else config.jit_mode
    choices = _choices(arguments.pattern, arguments.target, config)
    with _progress(len(choices)) as tell:
        results = jit.build_many(choices, mode, config, tell)
    rows = [("kernel", "target", "mode", "time", "library"), *map(_row, results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        print("  ".join(f"{cell:<{width}}" for cell, width in cells).rstrip())
    for result in results:
        if result.error is not None:
            print(f"\n{result.error}", file=sys.stderr)
    failed = sum(result.error is not None for result in results)
    built = sum(result.seconds is not None for result in results)
    print(f"{built} built, {len(results) - built - failed} cached, {failed} failed")
    return 1 if failed else 0

"""``kernlib selftest``: known faults, planted and looked for."""

from __future__ import annotations

import argparse
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernlib.selftest._driver import Row, Settings
    from kernlib.selftest._plan import Run

__all__ = ["register"]

_MOST_JOBS = 4
_NONE_APPLIES = 3  # nothing was shown, so it is no success


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "selftest",
        help="plant known faults on this machine and print which of them are named",
        description="Plant known faults at known lines, each in processes of its own, record and "
        "replay them, and print which mechanism named the call, the argument and the line. "
        "Exit status 1 if a fault that applies here was not named as planted, 3 if none applies.",
    )
    add = parser.add_argument
    add("--only", metavar="NAME", action="append", default=[], help="plant only this fault")
    add("--device", choices=("cpu", "cuda"), help="plant there (default: all this machine has)")
    add("--variant", metavar="HOW", action="append", default=[],
        help="plant only this way: eager, graph, streams, thread or worker")  # fmt: skip
    add("--jobs", metavar="N", type=_count, help="faults at once (default: half the cores, to 4)")
    add("--timeout", metavar="SECONDS", type=_seconds, default=120.0,
        help="stop a child after this long (default 120)")  # fmt: skip
    add("--keep", metavar="DIR", type=Path, help="keep recordings, replays and reports there")
    add("--json", action="store_true", help="write the table as JSON")
    parser.set_defaults(run=_run)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: expected a number of seconds above 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number of at least 1")
    return value


def _run(arguments: argparse.Namespace) -> int:
    import torch

    from kernlib import _facts
    from kernlib.selftest._driver import Settings
    from kernlib.selftest._plan import plan_runs

    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    backends = [arguments.device] if arguments.device else ["cpu", *["cuda"] * bool(devices)]
    runs = plan_runs(backends, arguments.only, arguments.variant)
    settings = Settings(
        timeout=arguments.timeout,
        hang_timeout=min(arguments.timeout, Settings.hang_timeout),
        jobs=arguments.jobs or max(1, min(_MOST_JOBS, len(_facts.cpus()) // 2)),
        keep=arguments.keep.absolute() if arguments.keep else None,
    )
    rows = _told(runs, devices, settings, quiet=arguments.json)
    if arguments.json:
        _print_json(rows)
    outcomes = {row.outcome for row in rows}
    if "missed" in outcomes:
        return 1
    return 0 if "named" in outcomes else _NONE_APPLIES


def _told(runs: Sequence[Run], devices: int, settings: Settings, *, quiet: bool) -> list[Row]:
    """Make the runs; without ``quiet`` print what they run on, then the table."""
    from rich.console import Console

    from kernlib.selftest._driver import run_all
    from kernlib.selftest._table import notes, rich_table, summary, table_text

    if not quiet:
        print("\n".join(_header()), end="\n\n", flush=True)
    progress, done = Console(stderr=True), 0
    with progress.status(f"0 of {len(runs)} faults done") as status:

        def count(row: Row) -> None:
            nonlocal done
            done += 1
            text = f"{done} of {len(runs)} faults done, the last: {row.fault} ({row.variant} on "
            text += f"{row.backend}), {row.outcome.replace('_', ' ')}"
            if sys.stderr.isatty():
                status.update(text)
            else:
                print(text, file=sys.stderr, flush=True)

        rows = run_all(runs, devices, settings, count)
    if quiet:
        return rows
    if not sys.stdout.isatty():
        print(table_text(rows))
        return rows
    console = Console()
    for backend in dict.fromkeys(row.backend for row in rows):
        console.print(rich_table(rows, backend), "")
    for line in notes(rows):
        console.print(f"- {line}", markup=False, highlight=False)
    console.print(summary(rows), highlight=False)
    return rows


def _header() -> list[str]:
    """Return what the faults are planted on, in lines of at most 80 columns."""
    import textwrap

    facts = {
        "versions": ", ".join(f"{name} {text}" for name, text in _versions().items()),
        "system": platform.platform(),
        **_devices(),
    }
    lines: list[str] = []
    for name, text in facts.items():
        lines += textwrap.wrap(
            text, 80, initial_indent=f"{name:<10}", subsequent_indent=" " * 10,
            break_on_hyphens=False,
        )  # fmt: skip
    return lines


def _versions() -> dict[str, str]:
    from kernlib import _facts
    from kernlib.config import get_config

    return _facts.versions() | _facts.toolchains(get_config())


def _devices() -> dict[str, str]:
    from kernlib import _facts

    return {
        "driver": _facts.driver_version() or "no NVIDIA driver",
        "devices": "; ".join(_facts.devices()) or "no CUDA device",
    }


def _print_json(rows: Sequence[Row]) -> None:
    import msgspec

    named = {"schema": 1, "versions": _versions(), **_devices(), "rows": list(rows)}
    print(msgspec.json.format(msgspec.json.encode(named)).decode())

"""Shows what each rung found while the others run."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

    from kernlib.replay._report import Attempt

__all__ = ["live_table", "row_text"]

_WIDTH = 80


def row_text(attempt: Attempt) -> tuple[str, str, str, str]:
    """Return rung, what it showed, how often out of n, and how long."""
    if not attempt.verdict:
        return attempt.rung, f"not run: {attempt.reason}", "", ""
    line = attempt.source
    shown = attempt.verdict.replace("_", " ")
    if line is not None and line.certain:
        shown += f", at {line.file.rpartition('/')[2]}:{line.line}"
    elif attempt.verdict == "build_failed":
        shown = f"build failed: {attempt.reason.splitlines()[-1]}"
    elif attempt.reason:
        shown += f": {attempt.reason.splitlines()[0]}"
    return attempt.rung, shown, f"{attempt.hits} of {attempt.times}", f"{attempt.seconds:.1f} s"


@contextmanager
def live_table(shown: Callable[[str], str]) -> Iterator[Callable[[str, Attempt | None], None]]:
    """Give a function that shows a rung when it begins (None) and when it has ended.

    On a terminal a table grows; elsewhere each rung that has ended is a line on stderr. ``shown``
    makes a text harmless.
    """
    if not sys.stderr.isatty():

        def tell(_rung: str, attempt: Attempt | None) -> None:
            if attempt is not None:
                name, what, times, seconds = map(shown, row_text(attempt))
                end = "  ".join(filter(None, (times, seconds)))
                room = _WIDTH - 13 - len(end) - 2
                sys.stderr.write(f"{name:<11}  {what[:room]:<{room}}  {end}".rstrip() + "\n")
                sys.stderr.flush()

        yield tell
        return
    from rich.console import Console
    from rich.live import Live

    rows: list[tuple[str, str, str, str]] = []
    with Live(_table(rows, ""), console=Console(stderr=True), refresh_per_second=8) as live:

        def grow(rung: str, attempt: Attempt | None) -> None:
            if attempt is not None:
                name, what, times, seconds = map(shown, row_text(attempt))
                rows.append((name, what, times, seconds))
            live.update(_table(rows, rung if attempt is None else ""))

        yield grow


def _table(rows: list[tuple[str, str, str, str]], running: str) -> RenderableType:
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

    table = Table("rung", "showed", "of", "time", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(Text, row))
    if running:
        table.add_row(running, Spinner("dots"), "", "")
    return table

"""Shows the table on a terminal or in a pipe."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from kernlib.selftest._driver import Row

__all__ = ["notes", "rich_table", "summary", "table_text"]

_WIDTH = 80
_HEADINGS = ("fault", "how", "verdict", "seen by", "argument", "line", "")
_OUTCOMES = {"named": "ok", "missed": "MISS", "not_applicable": "n/a"}
_STYLES = {"named": "green", "missed": "bold red", "not_applicable": "dim"}


def _cells(row: Row) -> tuple[str, ...]:
    """Return what stands in a row of the table; a dash is what nothing named."""
    line = str(row.line) if row.line else ""
    found = (row.verdict, row.rung, ",".join(row.arguments), line)
    return (row.fault, row.variant, *(text or "-" for text in found), _OUTCOMES[row.outcome])


def _backends(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.backend for row in rows))


def notes(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for everything that was missed or is not applicable."""
    told = []
    for row in rows:
        where = f"{row.fault} ({row.backend}, {row.variant})"
        told += [f"{where}: {miss}" for miss in row.misses]
        if row.why_not:
            told.append(f"{where}: not applicable, it {row.why_not}")
    return told


def summary(rows: Sequence[Row]) -> str:
    """Return how many were named, of those that apply."""
    applicable = [row for row in rows if row.outcome != "not_applicable"]
    named = sum(row.outcome == "named" for row in applicable)
    others = len(rows) - len(applicable)
    text = f"{named} of {len(applicable)} planted faults were named as planted"
    return f"{text}; {others} not applicable here" if others else text


def _lines(rows: Sequence[Row]) -> list[str]:
    lines = [_HEADINGS, *map(_cells, rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(_HEADINGS))]
    gap = "  " if sum(widths) + 2 * (len(widths) - 1) <= _WIDTH else " "
    return [
        gap.join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def table_text(rows: Sequence[Row]) -> str:
    """Return a table for each kind of device in plain lines of at most 80 columns, then notes."""
    text: list[str] = []
    for backend in _backends(rows):
        text += [f"on {backend}:", *_lines([row for row in rows if row.backend == backend]), ""]
    for note in notes(rows):
        text += textwrap.wrap(
            note, _WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
        )
    return "\n".join([*text, summary(rows)])


def rich_table(rows: Sequence[Row], backend: str) -> Table:
    """Return the table of one kind of device for a terminal."""
    from rich.table import Table

    table = Table(*_HEADINGS, title=f"on {backend}", title_justify="left", box=None)
    for row in rows:
        if row.backend == backend:
            table.add_row(*_cells(row), style=_STYLES[row.outcome])
    return table

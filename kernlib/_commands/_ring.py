"""``kernlib ring``: looks into the ring file of a process."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernlib.ring import Record, Ring, Value

__all__ = ["register"]

_SHOWN = 40
_POLL_SECONDS = 0.2


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("ring", help="look into the ring file of a process, dead or alive")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser("show", help="the last calls, and those that were running at the end")
    show.add_argument("file", type=Path, help="what KERNLIB_LOG_FORMAT=ring wrote")
    show.add_argument("--last", type=_count, default=_SHOWN, metavar="N",
                      help=f"calls to show, 0 for all (default {_SHOWN})")  # fmt: skip
    show.add_argument("--api", default="*", metavar="PATTERN", help="only apis that match")
    show.add_argument("--json", action="store_true", help="one JSON object a record")
    show.add_argument("--follow", action="store_true",
                      help="go on with what a living process adds, a line a record")  # fmt: skip
    show.set_defaults(run=_show)


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 on")
    return int(text)


def _show(options: argparse.Namespace) -> int:
    from kernlib.ring import read_ring

    found = read_ring(options.file)
    records = [record for record in found.records if fnmatchcase(record.api, options.api)]
    if options.json:
        _print_lines(map(_json, _last(records, options.last)))
    elif options.follow:
        _print_lines(map(_line, _last(records, options.last)))
    else:
        _print_table(options, found, records)
    if options.follow:
        _follow(options, found)
    return 0


def _last(records: Sequence[Record], count: int) -> Sequence[Record]:
    """Return the records of the last ``count`` calls; all of them for 0."""
    calls = sorted({record.call for record in records})[-count:]
    return [record for record in records if record.call >= calls[0]] if calls else ()


def _follow(options: argparse.Namespace, found: Ring) -> None:
    from kernlib.ring import read_ring

    written = _json if options.json else _line
    while True:
        time.sleep(_POLL_SECONDS)
        last = found.records[-1].ordinal if found.records else found.overwritten - 1
        since = found.records[-1].position + 1 if found.records else 0
        fresh = read_ring(options.file, since=since)
        if not fresh.records:
            continue
        missed = fresh.records[0].ordinal - last - 1
        if missed:
            print(f"kernlib: {missed} records were overwritten unseen", file=sys.stderr)
        _print_lines(written(r) for r in fresh.records if fnmatchcase(r.api, options.api))
        found = fresh


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
    sys.stdout.flush()


def _json(record: Record) -> str:
    import msgspec

    from kernlib.ring import Tensor

    pointers = {
        name: hex(value.pointer)
        for name, value in record.values.items()
        if isinstance(value, Tensor)
    }
    event = record.event() | {"thread": record.thread, "record": record.ordinal}
    if record.stream is not None:
        event["stream"] = record.stream
    if pointers:
        event["pointers"] = pointers
    return msgspec.json.encode(event).decode()


def _line(record: Record) -> str:
    from kernlib.ring import Kind

    event = str(record.event()["event"])
    parts = [record.timestamp, event, f"#{record.call}", record.api]
    parts += [f"{name}={_text(value)}" for name, value in record.values.items()]
    parts.append(f"thread={record.thread}")
    if record.kind not in (Kind.CALL, Kind.ARG_STATS, Kind.OUTPUT_STATS):
        parts.append(f"microseconds={record.nanoseconds / 1000:.1f}")
    return _printable(" ".join(parts))


def _printable(text: object) -> str:
    """Return a text of a file without what would steer the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


def _text(value: Value) -> str:
    from kernlib.logging._describe import TensorFacts, console_text
    from kernlib.ring import Described, Tensor

    if isinstance(value, Tensor):
        return console_text(TensorFacts(value.facts()))
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return console_text(value.content if isinstance(value, Described) else value)


@dataclass(slots=True)
class _Row:
    """A call of the table: its start, its end, or both; and late statistics of its arguments."""

    start: Record | None = None
    end: Record | None = None
    late: Record | None = None

    def cells(self, states: dict[int, str]) -> tuple[str, ...]:
        record = self.start or self.end or self.late
        assert record is not None  # noqa: S101 - a row is made for a record
        told = (
            _values(self.start, self.late)
            if self.start is not None
            else "(its start was overwritten)"
        )
        if self.end is not None and self.end.kind.name == "RAISE":
            told += f" raised {_values(self.end)}"
        took = f"{self.end.nanoseconds / 1000:.1f}" if self.end is not None else "?"
        took = states.get(record.call, took)
        clock = record.timestamp[11:-1]
        api, told = _printable(record.api), _printable(told)
        return str(record.call), clock, str(record.thread), took, api, told


def _values(record: Record, late: Record | None = None) -> str:
    from kernlib.ring import Described, Tensor, with_statistics

    told = late.values.items() if late is not None else ()
    stats = {name: value.content for name, value in told if isinstance(value, Described)}
    values = {
        name: with_statistics(value, stats[name])
        if name in stats and isinstance(value, Tensor)
        else value
        for name, value in record.values.items()
    }
    return " ".join(f"{name}={_text(value)}" for name, value in values.items())


def _rows(records: Sequence[Record]) -> dict[int, _Row]:
    rows: dict[int, _Row] = {}
    for record in records:
        row = rows.setdefault(record.call, _Row())
        if record.kind.name == "CALL":
            row.start = record
        elif record.kind.name in {"RETURN", "RAISE"}:
            row.end = record
        elif record.kind.name == "ARG_STATS":
            row.late = record
    return dict(sorted(rows.items()))


def _print_table(options: argparse.Namespace, found: Ring, records: Sequence[Record]) -> None:
    from rich.console import Console
    from rich.table import Table

    rows = _rows(records)
    shown = list(rows.values())[-options.last :]
    states = {record.call: "running" for record in found.unfinished()}
    states |= {record.call: "waiting" for record in found.waiting()}
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 4000)
    print("\n".join(_head(options.file, found, len(rows), len(shown))))
    table = Table(box=None, pad_edge=False)
    for title in ("call", "time (UTC)", "thread", "us", "api", "arguments"):
        table.add_column(title, justify="right" if title in {"call", "us"} else "left",
                         overflow="fold")  # fmt: skip
    for row in shown:
        table.add_row(*row.cells(states))
    if shown:
        with console.capture() as captured:
            console.print(table)
        print("\n".join(line.rstrip() for line in captured.get().splitlines()))
    print(_end(found))


def _head(path: Path, found: Ring, calls: int, shown: int) -> list[str]:
    lines = [f"{path}: {_printable(_process(found.facts))}"]
    lines += [f"warning: {problem}" for problem in found.problems]
    count = f"{len(found.records)} records are left"
    if found.overwritten:
        count += f"; {found.overwritten} older ones were overwritten; KERNLIB_RING_BYTES keeps more"
    if found.damaged:
        count += f"; {found.damaged} between them are damaged"
    if found.torn:
        count += "; one more was being written at the end"
    lines.append(f"{count}.")
    if shown < calls:
        lines.append(f"The last {shown} of {calls} calls; --last N shows more, --last 0 all.")
    return lines


def _process(facts: dict[str, Any]) -> str:
    if "pid" not in facts:
        return "unknown process"
    text = f"process {facts['pid']} on {facts.get('host')}"
    if facts.get("rank") is not None:
        text += f", rank {facts['rank']}"
    argv = facts.get("argv")
    return f"{text}: {' '.join(map(str, argv))}" if isinstance(argv, list) else text


def _end(found: Ring) -> str:
    running = found.unfinished()
    if not running:
        return "No call that is left was running at the end."
    names = ", ".join(f"#{record.call} {_printable(record.api)}" for record in running)
    return f"Without an end, so running now or when the process died: {names}"

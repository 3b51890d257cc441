"""Prints lines per room of the tree, and the largest files and functions."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES = {".py", ".h", ".cuh", ".cu", ".cc"}
PLACES = ("kernlib", "include", "csrc", "tests", "tools")
LARGEST = 10


def room_of(path: Path) -> str:
    """Return the folder a file is counted under: a package, a test folder, or an operator."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]  # noqa: PLR2004 - room and file


def functions(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each function of a Python file with its length."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (
                (node.end_lineno or node.lineno) - node.lineno + 1,
                f"{path.relative_to(ROOT)}: {node.name}",
            )


def table(title: str, columns: Iterable[str], rows: Iterable[tuple[object, ...]]) -> Table:
    """Return a table whose numbers stand to the right."""
    made = Table(*columns, title=title, title_justify="left")
    for column in made.columns[1:]:
        column.justify = "right"
    for row in rows:
        made.add_row(*map(str, row))
    return made


def main() -> None:
    """Print the three tables."""
    sizes = {}
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*")):
            if path.suffix in SUFFIXES:
                sizes[path] = len(path.read_text(encoding="utf-8").splitlines())
    rooms: dict[str, list[int]] = {}
    for path, lines in sizes.items():
        rooms.setdefault(room_of(path), []).append(lines)
    rows: list[tuple[object, ...]]
    rows = [(room, len(lines), sum(lines), max(lines)) for room, lines in sorted(rooms.items())]
    rows.append(("total", len(sizes), sum(sizes.values()), max(sizes.values(), default=0)))
    console = Console()
    console.print(table("rooms", ("room", "files", "lines", "largest"), rows))
    longest = sorted(((lines, path) for path, lines in sizes.items()), reverse=True)[:LARGEST]
    rows = [(path.relative_to(ROOT), lines) for lines, path in longest]
    console.print(table("largest files", ("file", "lines"), rows))
    found = [pair for path in sizes if path.suffix == ".py" for pair in functions(path)]
    rows = [(name, lines) for lines, name in sorted(found, reverse=True)[:LARGEST]]
    console.print(table("largest functions", ("function", "lines"), rows))


if __name__ == "__main__":
    main()

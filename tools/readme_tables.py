"""Writes the README's table of variables from Config; --check only compares."""

import sys
from collections.abc import Iterable
from pathlib import Path

from kernlib.config import Variable, variables

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN, END = "<!-- env-table:begin -->", "<!-- env-table:end -->"


def env_table(rows: Iterable[Variable]) -> str:
    """Return the table as Markdown."""
    lines = ["| variable | default | allowed | what it does |", "|---|---|---|---|"]
    for row in rows:
        default = f"`{row.default_text}`" if row.default_text else ""
        lines.append(f"| `{row.name}` | {default} | {row.expected} | {row.help} |")
    return "\n".join(lines)


def with_table(readme: str, table: str) -> str:
    """Return the README with what stands between the markers replaced."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{README.name}: the markers {BEGIN} and {END} are missing")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main(argv: list[str]) -> None:
    """Rewrite the README, or with --check say whether it would change."""
    now = README.read_text(encoding="utf-8")
    wanted = with_table(now, env_table(variables()))
    if argv == ["--check"]:
        if now != wanted:
            sys.exit(f"{README.name}: the table is stale; run: python tools/readme_tables.py")
    elif now != wanted:
        README.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

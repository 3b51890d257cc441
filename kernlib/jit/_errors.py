"""Finds the first real error in a compiler's output."""

from __future__ import annotations

import re

__all__ = ["first_error"]

# g++ and clang: file:line:col: error: ...; nvcc: file(line): error: ...; linkers; anything fatal.
_ERROR = re.compile(
    r"^(?:[^\s:][^:]*:\d+(?::\d+)?: (?:fatal )?error: |[^\s(][^(]*\(\d+\): (?:catastrophic )?error"
    r"|.*\bundefined reference to |.*\bmultiple definition of "
    r"|\S*/ld: (?!warning: |.*: in function )|.*: error: |.*\bfatal\b.*: |error: )"
)
_SOURCE = re.compile(r"^\s*(?:\d+ )?\s*\||^\s+\S|^\s*\^")
_SHOWN = 3


def first_error(log: str) -> str:
    """Return the first error line with the source line and marker that follow it."""
    lines = log.splitlines()
    for at, line in enumerate(lines):
        if _ERROR.match(line) and not line.startswith(("ninja:", "collect2:")):
            shown = [line]
            for following in lines[at + 1 : at + 1 + _SHOWN]:
                if not _SOURCE.match(following):
                    break
                shown.append(following)
            return "\n".join(shown)
    rest = [line for line in lines if line.strip()]
    return "\n".join(rest[-_SHOWN:]) or "the compiler said nothing"

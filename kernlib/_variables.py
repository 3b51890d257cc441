"""How one environment variable is declared, parsed and written back."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Variable", "at_least", "at_least_bytes", "count", "flag_list", "one_of",
           "optional_path", "path", "pattern_list", "size", "size_text", "switch",
           "variable"]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable: how it is read, written and explained."""

    name: str
    field: str
    expected: str
    help: str
    parse: Callable[[str], Any]
    render: Callable[[Any], str]
    default: Any

    @property
    def default_text(self) -> str:
        """The default as it would be written in the environment."""
        return "" if self.default in (None, ()) else self.render(self.default)


def one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(text)
        return text

    return parse


def flag(text: str) -> bool:
    if text not in {"0", "1"}:
        raise ValueError(text)
    return text == "1"


def at_least(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if (value := int(text)) < least:
            raise ValueError(text)
        return value

    return parse


_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}  # fmt: skip


def size(text: str) -> int:
    digits = text.rstrip("abBgGikKmMtT ")
    value = float(digits) * _SIZES[text[len(digits) :].strip().upper()]
    if not 1 <= value < float("inf"):
        raise ValueError(text)
    return int(value)


def at_least_bytes(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if (value := size(text)) < least:
            raise ValueError(text)
        return value

    return parse


def size_text(value: int) -> str:
    units = [(unit, factor) for unit, factor in _SIZES.items() if len(unit) > 1]
    for unit, factor in sorted(units, key=lambda pair: -pair[1]):
        if value % factor == 0:
            return f"{value // factor}{unit.replace('I', 'i')}"
    return str(value)


def patterns(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def words(text: str) -> tuple[str, ...]:
    return tuple(shlex.split(text))


def path(text: str) -> Path:
    return Path(text).expanduser()


def variable(
    name: str,
    default: Any,  # noqa: ANN401 - any field type
    expected: str,
    help: str,  # noqa: A002 - the column's name
    *,
    parse: Callable[[str], Any] = str,
    render: Callable[[Any], str] = str,
) -> Any:  # noqa: ANN401 - stands in the place of the field's default
    row = Variable(name, "", expected, help, parse, render, default)
    return dataclasses.field(default=default, metadata={"variable": row})


def count(name: str, default: int, expected: str, help: str, least: int) -> Any:  # noqa: A002, ANN401
    return variable(name, default, expected, help, parse=at_least(least))


def switch(name: str, help: str, *, default: bool = False) -> Any:  # noqa: A002, ANN401
    return variable(name, default, "0 or 1", help, parse=flag, render=lambda value: str(int(value)))


def pattern_list(name: str, help: str) -> Any:  # noqa: A002, ANN401
    return variable(
        name, (), "comma-separated fnmatch patterns", help, parse=patterns, render=",".join
    )


def flag_list(name: str, help: str) -> Any:  # noqa: A002, ANN401
    return variable(name, (), "shell words", help, parse=words, render=shlex.join)


def optional_path(name: str, expected: str, help: str) -> Any:  # noqa: A002, ANN401
    return variable(name, None, expected, help, parse=path)

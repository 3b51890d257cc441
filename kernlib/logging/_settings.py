"""Recording settings given while the process runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kernlib.config import recording_variables
from kernlib.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernlib.config import Config, Variable

__all__ = ["changed", "changes_text"]


def changed(base: Config, fields: Mapping[str, object]) -> Config:
    """Return a configuration with recording fields given as text or as Python values.

    Raises ConfigError as the environment would, TypeError for what is no field.
    """
    rows = {row.field: row for row in recording_variables()}
    for field in fields:
        if field not in rows:
            raise TypeError(_unknown(base, field, sorted(rows)))
    values = {field: _value(rows[field], value) for field, value in fields.items()}
    return base.replace(**values)


def changes_text(config: Config) -> str:
    """Return the recording variables that are not at their default, as they would be written."""
    settings = config.to_env()
    names = [row.name for row in recording_variables() if row.name in settings]
    return " ".join(f"{name}={settings[name]}" for name in names) or "KERNLIB_LOG_LEVEL=off"


def _value(row: Variable, value: object) -> Any:  # noqa: ANN401 - the field's type
    """Return a value as the environment would give it, so that both allow the same."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        text = value.strip()
    else:
        value = tuple(value) if isinstance(value, (list, set, frozenset)) else value
        text = _text(row, value)
    try:
        parsed = row.parse(text) if text else row.default
    except (ValueError, KeyError, OverflowError, RuntimeError):
        raise ConfigError(row.name, text, row.expected) from None
    if not isinstance(value, str) and parsed != value:
        raise ConfigError(row.name, text, row.expected)
    return parsed


def _text(row: Variable, value: object) -> str:
    if isinstance(value, int):  # flags and levels too: `True` is 1, `Level.ARGS` is 3
        return str(int(value))
    try:
        return row.render(value)
    except (TypeError, ValueError, AttributeError):
        return repr(value)


def _unknown(base: Config, field: str, known: list[str]) -> str:
    if hasattr(base, field):
        return f"{field!r} is read once, when it is first used; what can be switched: " + ", ".join(
            known
        )
    from difflib import get_close_matches

    close = get_close_matches(field, known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(known)}"
    return f"no recording setting is called {field!r}{hint}"

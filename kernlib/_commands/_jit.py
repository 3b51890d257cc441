"""``kernlib jit``: building kernels, looking at what was built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernlib._commands import _jit_build, _jit_compare

if TYPE_CHECKING:
    import argparse

__all__ = ["register"]

_ACTIONS = (_jit_build, _jit_compare)


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    jit = commands.add_parser("jit", help="build kernels, compare what was built")
    actions = jit.add_subparsers(dest="action", required=True, metavar="ACTION")
    for action in _ACTIONS:
        action.register(actions)

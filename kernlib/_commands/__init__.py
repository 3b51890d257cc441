"""The ``kernlib`` command; one file a sub-command."""

from __future__ import annotations

import argparse
import sys

from kernlib._commands import _aot, _cache, _env, _jit
from kernlib._version import __version__
from kernlib.errors import KernlibError

__all__ = ["main"]

_COMMANDS = (_aot, _cache, _env, _jit)
_USAGE_ERROR = 2
_INTERRUPTED = 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kernlib", description="Look at a kernlib installation.")
    parser.add_argument("--version", action="version", version=f"kernlib {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.register(commands)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status; a refusal is one line and status 2."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except KernlibError as error:
        print(f"kernlib: {error}", file=sys.stderr)
        return _USAGE_ERROR
    except BrokenPipeError:
        return _USAGE_ERROR  # whoever read the output had enough
    except KeyboardInterrupt:
        print("kernlib: interrupted; nothing that was half done is kept", file=sys.stderr)
        return _INTERRUPTED

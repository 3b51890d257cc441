"""The ``kernlib`` command; one file a sub-command."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys

from kernlib._commands import _aot, _cache, _env, _jit, _ring, _selftest
from kernlib._version import __version__
from kernlib.errors import KernlibError

__all__ = ["main"]

_COMMANDS = (_aot, _cache, _env, _jit, _ring, _selftest)
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
        status = int(arguments.run(arguments))
        sys.stdout.flush()
    except KernlibError as error:
        print(f"kernlib: {error}", file=sys.stderr)
        return _USAGE_ERROR
    except BrokenPipeError:  # whoever read the output had enough
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return _USAGE_ERROR
    except KeyboardInterrupt:
        print("kernlib: interrupted; nothing that was half done is kept", file=sys.stderr)
        return _INTERRUPTED
    return status

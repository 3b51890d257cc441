"""The ``kernlib-replay`` command."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import msgspec

from kernlib.config import Mode, get_config
from kernlib.errors import KernlibError, SelectionError
from kernlib.replay._diagnose import diagnose, diagnoses_json, diagnosis_text
from kernlib.replay._listing import list_json, list_text, show_text
from kernlib.replay._replay import Options, replay
from kernlib.replay._report import schema_json
from kernlib.replay._rungs import NAMES
from kernlib.replay._select import Selection, select
from kernlib.replay._text import render_text

__all__ = ["main"]

_USAGE_ERROR = 2
#: What would steer a terminal, or show text in another order: a dump may come from anybody.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_EPILOG = """\
exit status: 0 passed, 1 mismatch, 2 usage error, 3 not replayable, 4 build failed,
10 reproduced, 11 different fault, 12 not reproduced, 13 timed out,
14 silent corruption, 15 invalid input
"""


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: expected a number of seconds above 0")
    return value


def _count(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number of at least 1")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kernlib-replay",
        description="Run recorded calls again and name the call, the argument and the line.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "path", metavar="DIR", type=Path, nargs="?", help="a dump folder, a session, or one capsule"
    )
    add("--list", action="store_true", help="show sessions and calls; run nothing")
    add("--show", metavar="N", type=int, help="show call N and its builds; run nothing")
    add("--check", action="store_true",
        help="judge the recorded arguments by what their apis declare; run nothing")  # fmt: skip
    add("--call", metavar="N", type=int, help="replay call N")
    add("--api", metavar="PATTERN", help="replay the calls of the apis that match (fnmatch)")
    add("--mode", choices=[str(mode) for mode in Mode], help="how to build the kernels")
    add("--ladder", action="store_true",
        help="try rung after rung until one fails as recorded; a crash always does")  # fmt: skip
    add("--rung", choices=NAMES, help="run this rung alone")
    add("--repeat", metavar="N", type=_count, default=1, help="run each rung N times")
    add("--with-previous", metavar="K", type=_count, help="run the K calls before it first")
    add("--scratch", choices=("recorded", "zeroed", "poisoned"),
        help="what declared outputs and workspaces hold before the call")  # fmt: skip
    add("--device", metavar="DEVICE", help="run there instead, such as cpu or cuda:1")
    add("--timeout", metavar="SECONDS", type=_seconds, default=120.0,
        help="stop a child after this long (default 120)")  # fmt: skip
    add("--trust-sources", action="store_true",
        help="build and load the recorded sources and flags: code, so read it first")  # fmt: skip
    add("--import", dest="packages", metavar="PKG", action="append", default=[],
        help="import a package so that its apis are registered")  # fmt: skip
    add("--json", action="store_true", help="write the report, or the list, as JSON")
    add("--json-schema", action="store_true", help="write the JSON Schema of that report")
    add("--keep", metavar="FOLDER", type=Path, help="keep the child's files there")
    return parser


def _command(path: Path, arguments: argparse.Namespace) -> str:
    """Return the command line to build on in the report's suggestions."""
    imports = "".join(f" --import {name}" for name in arguments.packages)
    return f"kernlib-replay {path}{imports}"


def _shown(text: str) -> str:
    """Return a text with the characters that steer a terminal written out."""
    return _STEERING.sub(lambda match: ascii(match[0])[1:-1], text)


def _check(selection: Selection, arguments: argparse.Namespace) -> int:
    """Judge the selected calls; the worst decides the exit status."""
    found = [diagnose(entry.path, arguments.packages) for entry in selection.calls]
    if arguments.json:
        sys.stdout.write(diagnoses_json(found))
    else:
        sys.stdout.write(_shown("\n".join(map(diagnosis_text, found))))
    return max(diagnosis.exit_status for diagnosis in found)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.json_schema:
        sys.stdout.write(schema_json())
        return 0
    if arguments.path is None:
        raise SelectionError("no folder is named", "Give the folder of KERNLIB_DUMP_DIR")
    path: Path = arguments.path
    if arguments.list:
        sys.stdout.write(list_json(path) if arguments.json else _shown(list_text(path)))
        return 0
    if arguments.show is not None:
        selection = select(path, call=arguments.show)
        text = show_text(selection.session, selection.calls[0].path, get_config())
        sys.stdout.write(_shown(text))
        return 0
    selection = select(path, call=arguments.call, api=arguments.api)
    if arguments.check:
        return _check(selection, arguments)
    options = Options(
        command=_command(path, arguments),
        packages=tuple(arguments.packages),
        mode=Mode(arguments.mode) if arguments.mode else None,
        device=arguments.device,
        timeout=arguments.timeout,
        trust_sources=arguments.trust_sources,
        keep=arguments.keep.absolute() if arguments.keep else None,
        ladder=arguments.ladder,
        rung=arguments.rung,
        repeat=arguments.repeat,
        previous=arguments.with_previous,
        scratch=arguments.scratch,
        shown=_shown,
    )
    report = replay(selection, options)
    if arguments.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(report)).decode() + "\n")
    else:
        sys.stdout.write(_shown(render_text(report)))
    return report.exit_status


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status; a refusal is one line and status 2."""
    arguments = _parser().parse_args(argv)
    try:
        return _run(arguments)
    except KernlibError as error:
        sys.stderr.write(_shown(f"kernlib-replay: {error}\n"))
        return _USAGE_ERROR
    except BrokenPipeError:
        return _USAGE_ERROR
    except OSError as error:
        sys.stderr.write(_shown(f"kernlib-replay: {error}; nothing is concluded\n"))
        return _USAGE_ERROR


if __name__ == "__main__":
    sys.exit(main())

"""The ``kernlib`` command."""

from __future__ import annotations

import argparse
import platform
import sys

from kernlib._version import __version__
from kernlib.errors import KernlibError

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kernlib", description="Look at a kernlib installation.")
    parser.add_argument("--version", action="version", version=f"kernlib {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    env = commands.add_parser(
        "env", help="versions, devices, toolchains and non-default controls, to paste in a report"
    )
    env.set_defaults(run=_env)
    return parser


def _section(title: str, rows: dict[str, str]) -> list[str]:
    width = max(map(len, rows), default=0)
    return [f"{title}:", *(f"  {name:<{width}}  {value}" for name, value in rows.items())]


def _env(_: argparse.Namespace) -> int:
    import torch  # noqa: F401 - the facts below tell of a loaded torch

    from kernlib import _facts, jit
    from kernlib.config import get_config

    config = get_config()
    devices = _facts.devices()
    lines = [
        *_section("versions", _facts.versions()),
        *_section(
            "machine",
            {
                "system": platform.platform(),
                "processor": f"{platform.machine()}, {len(_facts.cpus())} cores usable",
                "driver": _facts.driver_version() or "no NVIDIA driver",
                "devices": "; ".join(devices) or "no CUDA device",
            },
        ),
        *_section("toolchains", _facts.toolchains(config)),
        *_section(
            "places",
            {"sources": str(jit.source_root()), "workspace": str(jit.workspace_dir(config))},
        ),
        *_section("controls not at their default", config.to_env() or {"none": ""}),
    ]
    print("\n".join(line.rstrip() for line in lines))
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status; a refusal is one line and status 2."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except KernlibError as error:
        print(f"kernlib: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

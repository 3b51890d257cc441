"""``kernlib aot``: kernels built ahead of time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

__all__ = ["register"]


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    aot = commands.add_parser("aot", help="build kernels ahead of time, and package them")
    parts = aot.add_subparsers(dest="part", required=True, metavar="PART")
    build = parts.add_parser("build", help="build release artifacts for named targets")
    build.add_argument(
        "pattern", nargs="?", default="*", metavar="PATTERN",
        help="an fnmatch pattern on kernel names or URIs, such as 'paged_decode*'",
    )  # fmt: skip
    build.add_argument(
        "--target", required=True, metavar="LIST", help="for example sm_80,sm_90a,cpu"
    )
    build.add_argument("--out", required=True, type=Path, metavar="DIR", help="where they go")
    build.add_argument("--wheel", action="store_true", help="make the wheel of the folder as well")
    build.set_defaults(run=_build)
    wheel = parts.add_parser("wheel", help="make the wheel kernlib-aot of what was built")
    wheel.add_argument("folder", type=Path, metavar="DIR", help="what kernlib aot build wrote")
    wheel.add_argument(
        "--out", type=Path, default=Path("dist"), metavar="DIR", help="where the wheel goes (dist)"
    )
    wheel.set_defaults(run=_wheel)


def _build(arguments: argparse.Namespace) -> int:
    from kernlib.config import get_config
    from kernlib.jit._aot_package import ahead_choices, build_ahead
    from kernlib.ops._catalogue import matching_specs

    targets = [part for part in re.split(r"[,\s]+", arguments.target) if part]
    choices = ahead_choices(matching_specs(arguments.pattern), targets)
    width = max(len(choice.spec.uri) for choice in choices)
    total = 0
    for artifact, is_new in build_ahead(choices, arguments.out, get_config()):
        record, how = artifact.record, "built" if is_new else "was built before"
        total += artifact.size
        print(f"{record.uri:<{width}}  {record.target:<8}  {artifact.size:>9,} bytes  {how}")
    print(f"{len(choices)} artifacts, {total:,} bytes: {arguments.out}")
    return _make_wheel(arguments.out, arguments.out.parent) if arguments.wheel else 0


def _wheel(arguments: argparse.Namespace) -> int:
    return _make_wheel(arguments.folder, arguments.out)


def _make_wheel(folder: Path, destination: Path) -> int:
    from kernlib.jit._aot_wheel import build_wheel

    wheel = build_wheel(folder, destination)
    print(f"{wheel} ({wheel.stat().st_size:,} bytes)")
    return 0

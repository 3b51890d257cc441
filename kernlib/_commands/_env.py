"""``kernlib env``: what a report should say of this machine."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from kernlib.config import Config

__all__ = ["register"]


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    env = commands.add_parser(
        "env", help="versions, devices, toolchains and non-default controls, to paste in a report"
    )
    env.set_defaults(run=_run)


def _section(title: str, rows: dict[str, str]) -> list[str]:
    width = max(map(len, rows), default=0)
    return [f"{title}:", *(f"  {name:<{width}}  {value}" for name, value in rows.items())]


def _package(config: Config) -> str:
    from kernlib import jit
    from kernlib.errors import ConfigError

    try:
        return str(jit.package_dir(config) or "no package")
    except ConfigError as error:
        return str(error)


def _run(_: argparse.Namespace) -> int:
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
            {
                "sources": str(jit.source_root()),
                "workspace": str(jit.workspace_dir(config)),
                "built ahead": _package(config),
            },
        ),
        *_section("controls not at their default", config.to_env() or {"none": ""}),
    ]
    print("\n".join(line.rstrip() for line in lines))
    return 0

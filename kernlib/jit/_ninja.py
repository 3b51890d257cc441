"""The text of a build manifest."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VERSION = "ninja_required_version = 1.5"

__all__ = ["Manifest", "Step", "batch_text", "compile_commands", "ninja_text", "object_name"]


@dataclass(frozen=True, slots=True)
class Step:
    """One unit to compile: its path, the object it becomes, and the tool."""

    source: str
    object: str
    tool: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything a build runs: tools with their flags, units, and the library.

    Without ``link`` the object of the one step is the library.
    """

    title: str
    tools: tuple[tuple[str, tuple[str, ...]], ...]
    steps: tuple[Step, ...]
    link: tuple[str, ...]
    library: str


def object_name(label: str) -> str:
    """Return the object file of a unit; units of equal names in two folders stay apart."""
    return label.replace("/", "_") + ".o"


def _escape(text: str) -> str:
    return text.replace("$", "$$")


def _path(text: str) -> str:
    return _escape(text).replace(" ", "$ ").replace(":", "$:")


def _command(words: Sequence[str]) -> str:
    return _escape(shlex.join(words))


def ninja_text(manifest: Manifest) -> str:
    """Return ``build.ninja``; outputs are relative to its folder, so that the folder can move."""
    lines = [f"# {manifest.title}", _VERSION, "", *_statements(manifest)]
    return "\n".join([*lines, "", f"default {_path(manifest.library)}", ""])


def batch_text(manifests: Mapping[str, Manifest]) -> str:
    """Return one ``build.ninja`` that makes every manifest in the folder it is mapped from."""
    lines = [_VERSION, ""]
    for at, (folder, manifest) in enumerate(manifests.items()):
        lines += [f"# {manifest.title}", *_statements(manifest, f"_{at}", f"{folder}/"), ""]
    return "\n".join(lines)


def _statements(manifest: Manifest, suffix: str = "", folder: str = "") -> list[str]:
    """Return rules and builds; ``suffix`` tells the rules of several manifests apart."""
    lines: list[str] = []
    for tool, words in manifest.tools:
        lines += [f"rule {tool}{suffix}", f"  command = {_command(words)} -c $in -o $out",
                  f"  description = {tool} $out", ""]  # fmt: skip
    if manifest.link:
        linker, flags = manifest.link[0], manifest.link[1:]
        command = f"{_escape(linker)} $in -o $out {_command(flags)}"
        lines += [f"rule link{suffix}", f"  command = {command}",
                  "  description = link $out", ""]  # fmt: skip
    for step in manifest.steps:
        output = _path(f"{folder}{step.object}")
        lines.append(f"build {output}: {step.tool}{suffix} {_path(step.source)}")
    if manifest.link:
        objects = " ".join(_path(f"{folder}{step.object}") for step in manifest.steps)
        lines.append(f"build {_path(folder + manifest.library)}: link{suffix} {objects}")
    return lines


def compile_commands(manifest: Manifest, folder: str) -> list[dict[str, object]]:
    """Return the content of ``compile_commands.json``, for editors."""
    tools = dict(manifest.tools)
    return [
        {
            "directory": folder,
            "file": step.source,
            "output": step.object,
            "arguments": [*tools[step.tool], "-c", step.source, "-o", step.object],
        }
        for step in manifest.steps
    ]

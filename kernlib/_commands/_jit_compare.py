"""``kernlib jit compare``: the same machine code or not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernlib.errors import SelectionError

if TYPE_CHECKING:
    import argparse

    from kernlib.config import Config

__all__ = ["register"]

_DIFFERENT = 1


def register(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    compare = actions.add_parser(
        "compare",
        help="whether two artifacts hold the same machine code, kernel by kernel; status 1 if not",
    )
    for name in ("first", "second"):
        compare.add_argument(
            name, metavar=name.upper(),
            help="a key, the first digits of one, or the path of a library",
        )  # fmt: skip
    compare.set_defaults(run=_run)


def _library(text: str, config: Config) -> tuple[Path, str]:
    """Return the library that a key or a path names, and what it is called in the output."""
    from kernlib import jit

    if "/" in text or Path(text).is_file():
        return Path(text), text
    entry = jit.entry_named(text, config)
    if problem := jit.verify_entry(entry):
        raise SelectionError(f"{entry.path}: {problem}", "See kernlib cache verify")
    if entry.metadata is None:  # verify_entry has said why
        raise SelectionError(f"{entry.path}: {entry.problem}", "See kernlib cache verify")
    record = entry.metadata.record
    told = f"{record.uri} for {record.target}, {record.mode}, key {entry.key}"
    return entry.path / entry.metadata.library.name, told


def _run(arguments: argparse.Namespace) -> int:
    from kernlib.config import get_config
    from kernlib.jit._machine_code import compare_code, machine_code

    config = get_config()
    named = [_library(text, config) for text in (arguments.first, arguments.second)]
    found = compare_code(*(machine_code(path, config) for path, _ in named))
    for letter, (_, told) in zip("AB", named, strict=True):
        print(f"{letter}  {told}")
    parts = (
        ("same", found.same),
        ("different", found.different),
        ("only in A", found.only_first),
        ("only in B", found.only_second),
    )
    for word, kernels in parts:
        for name in kernels:
            print(f"  {word:<9}  {name}")
    if found.unlike:
        print(f"different machine code: {found.unlike} of {found.total}")
        return _DIFFERENT
    print(f"the same machine code: {found.total} of {found.total}")
    return 0

"""``kernlib cache``: lists, checks and prunes what was built."""

from __future__ import annotations

import argparse
import re
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from kernlib import jit
from kernlib._variables import size
from kernlib.config import get_config

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["register"]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)
_UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
_SHORT = 12
_BAD = 1


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    cache = commands.add_parser("cache", help="list, check and prune what was built")
    actions = cache.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="every artifact: size, last use, who it is").set_defaults(
        run=_list
    )
    show = actions.add_parser("show", help="everything recorded of one artifact")
    show.add_argument("key", metavar="KEY", help="its key, or the first digits of it")
    show.set_defaults(run=_show)
    actions.add_parser(
        "verify", help="read every library and compare it with its record; status 1 if one differs"
    ).set_defaults(run=_verify)
    prune = actions.add_parser(
        "prune",
        help="remove unused artifacts and what builds left behind; what a process holds stays",
    )
    prune.add_argument(
        "--older-than", type=_duration, metavar="TIME",
        help="artifacts not used for this long: 30d, 12h, 45m",
    )  # fmt: skip
    prune.add_argument(
        "--max-bytes", type=_size, metavar="SIZE",
        help="the least recently used artifacts until the rest fits: 2GB, 500MiB",
    )  # fmt: skip
    prune.add_argument("--dry-run", action="store_true", help="say what would go, remove nothing")
    prune.add_argument(
        "--assume-idle", action="store_true",
        help="nobody uses the workspace: on a network file system, or where file locks do "
        "nothing, artifacts are removed only with this",
    )  # fmt: skip
    prune.set_defaults(run=_prune)


def _duration(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None:
        message = f"{text!r}: expected a number and s, m, h, d or w, such as 30d"
        raise argparse.ArgumentTypeError(message)
    return float(match[1]) * _SECONDS[match[2]]


def _size(text: str) -> int:
    try:
        return 0 if text == "0" else size(text)
    except (ValueError, KeyError, OverflowError):
        message = f"{text!r}: expected a size such as 2GB or 500MiB"
        raise argparse.ArgumentTypeError(message) from None


def _size_text(nbytes: int) -> str:
    for factor, unit in _UNITS:
        if nbytes >= factor:
            return f"{nbytes / factor:.1f} {unit}"
    return f"{nbytes} B"


def _age_text(stamp: float) -> str:
    seconds = max(time.time() - stamp, 0.0)
    for unit in ("d", "h", "m"):
        if seconds >= _SECONDS[unit]:
            return f"{int(seconds / _SECONDS[unit])}{unit} ago"
    return "just now"


def _table(rows: Sequence[Sequence[str]], right: int) -> Iterator[str]:
    """Give rows in columns; ``right`` is the one column whose values are numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if at == right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _list(_: argparse.Namespace) -> int:
    config = get_config()
    entries = jit.cache_entries(config)
    rows = [("key", "size", "last use", "mode", "target", "kernel")]
    for entry in entries:
        used = _age_text(entry.used_at) + (", in use" if entry.in_use else "")
        if entry.metadata is None:
            facts = ("!", "", entry.problem)
        else:
            record = entry.metadata.record
            facts = (record.mode, record.target, record.uri)
        rows.append((entry.key[:_SHORT], _size_text(entry.size), used, *facts))
    if entries:
        print("\n".join(_table(rows, 1)))
    total = _size_text(sum(entry.size for entry in entries))
    print(f"{len(entries)} artifacts, {total} in {jit.artifacts_dir(config)}")
    beside = jit.other_sizes(config)
    if any(beside.values()):
        told = (f"{name} {_size_text(nbytes)}" for name, nbytes in beside.items() if nbytes)
        print(f"beside them: {', '.join(told)}")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    entry = jit.entry_named(arguments.key, get_config())
    used_at = datetime.fromtimestamp(entry.used_at, timezone.utc).isoformat(timespec="seconds")
    lines = [f"artifact {entry.key}"]
    pairs = [("path", str(entry.path)), ("size", f"{_size_text(entry.size)} in all"),
             ("last use", f"{used_at} ({_age_text(entry.used_at)})"),
             ("held by", _held_text(entry))]  # fmt: skip
    problem = jit.verify_entry(entry)
    pairs.append(("state", problem or "whole: library and record agree"))
    lines += [f"  {name:<9} {value}" for name, value in pairs]
    if entry.metadata is not None:
        lines += _record_lines(entry.metadata)
    print("\n".join(lines))
    return _BAD if problem else 0


def _held_text(entry: jit.CacheEntry) -> str:
    if not entry.in_use:
        return "no process"
    found = jit.holders(entry.path)
    return f"process {', '.join(map(str, found))}" if found else "a living process"


def _record_lines(metadata: jit.ArtifactMetadata) -> Iterator[str]:
    record, library = metadata.record, metadata.library
    yield f"  library   {library.name}, {library.size} bytes, sha256 {library.sha256}"
    yield f"  kernel    {record.uri} for {record.target}, {record.mode}"
    for name, value in metadata.built.items():
        yield f"  built     {name} {value}"
    versions = {**record.toolchain, "tvm-ffi": record.tvm_ffi, "kernlib": record.kernlib}
    for name, value in versions.items():
        yield f"  version   {name} {value}"
    for tool, words in record.flags.items():
        yield f"  flags     {tool}: {' '.join(words)}"
    for label, digest in record.sources.items():
        yield f"  source    {label} sha256 {digest[:_SHORT]}"


def _verify(_: argparse.Namespace) -> int:
    config = get_config()
    entries = jit.cache_entries(config)
    problems = [(entry, problem) for entry in entries if (problem := jit.verify_entry(entry))]
    for entry, problem in problems:
        print(f"{entry.path}: {problem}")
    print(f"{len(entries) - len(problems)} of {len(entries)} artifacts are whole")
    if problems:
        print("what is not is never loaded: its next use puts it away and builds it anew")
    return _BAD if problems else 0


def _prune(arguments: argparse.Namespace) -> int:
    limits = jit.PruneLimits(
        older_than=arguments.older_than,
        max_bytes=arguments.max_bytes,
        assume_idle=arguments.assume_idle,
    )
    done = jit.prune(get_config(), limits, dry_run=arguments.dry_run)
    rows = [
        (word, row.kind, _size_text(row.size), str(row.path), row.reason)
        for word, part in (("remove", done.removed), ("keep", done.kept))
        for row in part
    ]
    if rows:
        print("\n".join(_table(rows, 2)))
    freed = _size_text(sum(row.size for row in done.removed))
    verb = "would free" if arguments.dry_run else "freed"
    print(f"{verb} {freed}; artifacts left: {_size_text(done.artifact_bytes)}")
    if done.unsure and done.kept:
        print(f"{done.unsure}: what is there may be in use; if it is not, add --assume-idle")
    return 0

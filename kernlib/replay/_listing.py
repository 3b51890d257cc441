"""The texts of ``--list`` and ``--show``; nothing is run."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from kernlib import dump, jit
from kernlib.errors import CapsuleError
from kernlib.replay._describe import arguments_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kernlib.config import Config
    from kernlib.dump import BuildRef, Call, CallEntry, Dropped, SessionEntry

__all__ = ["list_json", "list_text", "show_text"]

_UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def _size(nbytes: int) -> str:
    for factor, unit in _UNITS:
        if nbytes >= factor:
            return f"{nbytes / factor:.1f} {unit}"
    return f"{nbytes} B"


def _duration(entry: CallEntry) -> str:
    if entry.started_at is None or entry.finished_at is None:
        return ""
    begin, end = (datetime.fromisoformat(text) for text in (entry.started_at, entry.finished_at))
    return f"{(end - begin).total_seconds() * 1e3:.1f} ms"


def _session_head(entry: SessionEntry) -> Iterator[str]:
    if entry.session is None:
        yield f"session {entry.path.name}: {entry.problem}"
        return
    session = entry.session
    process = session.process
    rank = f", rank {process.rank}" if process.rank is not None else ""
    yield f"session {entry.path.name}: {' '.join(process.argv)[:60]} (pid {process.pid}{rank})"
    dropped = session.dropped
    if lost := list(_losses(dropped)):
        yield f"  not here: {', '.join(lost)}"
    if dropped.cleared:
        yield f"  made room: {dropped.cleared} calls of ended sessions were removed"


def _losses(dropped: Dropped) -> Iterator[str]:
    if dropped.evicted:
        yield f"{dropped.evicted} evicted for newer ones"
    if dropped.over_quota:
        yield f"{dropped.over_quota} over the quota of their shapes"
    if dropped.calls:
        yield f"{dropped.calls} without room"
    if dropped.bytes:
        yield f"{_size(dropped.bytes)} without room"
    if dropped.skipped:
        yield f"{dropped.skipped} skipped by rules"
    if dropped.errors:
        yield f"{dropped.errors} that could not be recorded"


def _session_entry(path: Path) -> SessionEntry:
    try:
        return dump.SessionEntry(path, dump.read_session(path))
    except CapsuleError as error:
        return dump.SessionEntry(path, None, error.problem)


def list_text(path: Path) -> str:
    """Return the sessions and calls below a path, newest session first."""
    location = dump.locate(path)
    lines: list[str] = []
    for session in map(_session_entry, location.sessions):
        lines += _session_head(session)
        calls = dump.list_calls(session.path)
        width = max((len(entry.api) for entry in calls), default=0)
        for entry in calls:
            if entry.problem is not None:
                lines.append(f"  {entry.sequence:>8}  {entry.api:<{width}}  ! {entry.problem}")
                continue
            marks = " set-up" if entry.setup else ""
            inside = f" in {entry.parent}" if entry.parent is not None else ""
            lines.append(
                f"  {entry.sequence:>8}  {entry.api:<{width}}  {entry.status:<9}"
                f"  {_size(entry.nbytes):>9}  {_duration(entry):>10}{marks}{inside}"
            )
        if not calls:
            lines.append("  no calls")
    return "\n".join(lines) + "\n"


def list_json(path: Path) -> str:
    """Return what ``list_text`` shows, and every count of what is not there, as JSON."""
    sessions = []
    for entry in map(_session_entry, dump.locate(path).sessions):
        session = entry.session
        sessions.append(
            {
                "path": str(entry.path),
                "problem": entry.problem,
                "started_at": session and session.started_at,
                "process": session and session.process,
                "dropped": session and msgspec.structs.asdict(session.dropped),
                "calls": [
                    call._asdict() | {"path": str(call.path)}
                    for call in dump.list_calls(entry.path)
                ],
            }
        )
    return msgspec.json.format(msgspec.json.encode({"sessions": sessions})).decode() + "\n"


def _call_lines(call: Call) -> Iterator[str]:
    yield f"call {call.sequence}, {call.api} ({call.package}, {call.module})"
    yield f"  status      {call.status}"
    yield f"  called from {call.caller}"
    yield f"  thread      {call.thread.name}"
    if call.device is not None:
        stream = f", stream {call.stream:#x}" if call.stream else ""
        yield f"  device      {call.device}{stream}"
    if call.device_error:
        yield f"  device      in error after it: {call.device_error}"
    if call.exception is not None:
        head = call.exception.message.splitlines()[:1]
        yield f"  raised      {call.exception.type}: {''.join(head)}"
    for name, text in arguments_of(call):
        yield f"  argument    {name} = {text}"
    if call.yielded is not None:
        yield f"  yielded     {call.yielded.items} items, not recorded"
    changed = sorted({call.views[n].path for n in _changed_views(call)})
    if changed:
        yield f"  changed     {', '.join(changed)}"
    for note in (*call.notes, *call.incomplete):
        yield f"  note        {note}"


def _changed_views(call: Call) -> set[int]:
    storages = {change.storage for change in call.changed}
    inputs = dump.input_views(call, state=True)
    return {number for number, view in inputs.items() if view.storage in storages}


def _build_lines(session: Path, ref: BuildRef, config: Config) -> Iterator[str]:
    yield f"kernel {ref.uri} for {ref.target}, {ref.mode} ({ref.reason})"
    yield f"  key         {ref.key}"
    if ref.problem:
        yield f"  problem     {ref.problem}"
    if ref.library is not None:
        yield f"  library     {ref.library.path}"
        yield f"              {ref.library.size} bytes, sha256 {ref.library.sha256}"
    here = jit.artifacts_dir(config) / ref.key
    state = "is in this machine's cache" if here.is_dir() else "is not in this machine's cache"
    yield f"  cache       {here} ({state})"
    metadata = here / "build.json"
    if metadata.is_file():
        yield from _indented("cache metadata", metadata.read_text(encoding="utf-8"))
    try:
        files = dump.read_build(session, ref.key)
    except CapsuleError as error:
        yield f"  recorded    {error}"
        return
    yield from _indented("build manifest", files.manifest)
    yield f"  sources     {session / 'builds' / ref.key / 'sources'}"
    for label, text in files.sources.items():
        yield f"    {label} ({len(text)} bytes)"
    for label, text in files.sources.items():
        if label.startswith("generated/"):
            yield from _indented(f"generated {label}", text.decode(errors="replace"))


def _indented(title: str, text: str) -> Iterator[str]:
    yield f"  {title}:"
    for line in text.rstrip().splitlines():
        yield f"    | {line}".rstrip()


def show_text(session: Path, capsule: Path, config: Config) -> str:
    """Return a call beside its generated sources, manifest, library and cache metadata."""
    call = dump.read_call(capsule)
    lines = [*_call_lines(call), f"  capsule     {capsule}"]
    for ref in call.builds:
        lines += ["", *_build_lines(session, ref, config)]
    if not call.builds:
        lines += ["", "the api names no kernels that kernlib builds"]
    return "\n".join(lines) + "\n"

"""Picks the calls to replay, as a person would."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from kernlib import dump
from kernlib.errors import SelectionError

if TYPE_CHECKING:
    from pathlib import Path

    from kernlib.dump import CallEntry

__all__ = ["Selection", "select"]


@dataclass(frozen=True, slots=True)
class Selection:
    """The session and calls chosen, why, and what a reader should know of the others."""

    session: Path
    calls: tuple[CallEntry, ...]
    why: str
    notes: tuple[str, ...] = ()


def select(path: Path, *, call: int | None = None, api: str | None = None) -> Selection:
    """Choose calls in a dump folder, a session, or one capsule.

    Without a wish: of the newest session that holds calls, the innermost call that was still
    running when its process ended; else the last one that raised; else all.

    Raises SelectionError if nothing matches.
    """
    location = dump.locate(path)
    if location.capsule is not None:
        entries = dump.list_calls(location.sessions[0])
        chosen = [entry for entry in entries if entry.path.name == location.capsule.name]
        return _checked(location.sessions[0], chosen, "the capsule named")
    problems: tuple[str, ...] = ()
    for session in location.sessions:
        entries = dump.list_calls(session)
        if not entries:
            continue
        if call is not None or api is not None:
            return _wished(session, entries, call, api)
        readable = [entry for entry in entries if entry.problem is None]
        if readable:
            return _suspects(session, readable, _problems(entries))
        problems = problems or _problems(entries)
    if problems:
        raise SelectionError(f"{path} holds no readable call; {problems[0]}", "See --list")
    raise SelectionError(f"{path} holds no call", "Was KERNLIB_LOG_LEVEL=dump set?")


def _problems(entries: list[CallEntry]) -> tuple[str, ...]:
    return tuple(f"{entry.path.name}: {entry.problem}" for entry in entries if entry.problem)


def _checked(session: Path, chosen: list[CallEntry], why: str) -> Selection:
    for entry in chosen:
        if entry.problem is not None:
            raise SelectionError(
                f"{entry.path.name}: {entry.problem}", "Choose another call; --list shows them"
            )
    if not chosen:
        raise SelectionError(f"{session} holds no such call", "--list shows what it holds")
    return Selection(session, tuple(chosen), why)


def _wished(
    session: Path, entries: list[CallEntry], call: int | None, api: str | None
) -> Selection:
    chosen = [
        entry
        for entry in entries
        if (call is None or entry.sequence == call) and (api is None or fnmatchcase(entry.api, api))
    ]
    if not chosen:
        wish = f"call {call}" if call is not None else f"api {api!r}"
        raise SelectionError(
            f"session {session.name} holds no {wish}", "--list shows what it holds"
        )
    if call is None:
        chosen = [entry for entry in chosen if entry.problem is None] or chosen
    return _checked(session, chosen, "asked for")


def _suspects(session: Path, entries: list[CallEntry], notes: tuple[str, ...]) -> Selection:
    running = [entry for entry in entries if entry.status == "started"]
    if running:
        # An outer call was running too, but the inner one is where the process was.
        parents = {entry.parent for entry in running}
        inner = [entry for entry in running if entry.sequence not in parents] or running
        others = [f"call {entry.sequence} ({entry.api})" for entry in inner[:-1]]
        if others:
            notes += (f"also running when the process ended: {', '.join(others)}",)
        why = "it was still running when its process ended"
        if inner[-1].finished_at is not None:
            why = "it left the device in error"
        return Selection(session, (inner[-1],), why, notes)
    raised = [entry for entry in entries if entry.status == "raised"]
    if raised:
        return Selection(session, (raised[-1],), "it is the last call that raised", notes)
    all_returned = all(entry.status == "returned" for entry in entries)
    why = "every call returned" if all_returned else "no call was running, and none raised"
    return Selection(session, tuple(entries), f"{why}, so all are replayed", notes)

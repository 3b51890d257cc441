"""Finds sessions and calls without reading tensors."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kernlib.dump._files import read_file
from kernlib.dump._schema import Status  # noqa: TC001 - msgspec reads the annotations
from kernlib.dump._validate import MAX_JSON, check_api, check_version, decode_session
from kernlib.errors import CapsuleError, SelectionError

if TYPE_CHECKING:
    from pathlib import Path

    from kernlib.dump._schema import Session

__all__ = [
    "CallEntry",
    "Location",
    "SessionEntry",
    "list_calls",
    "list_sessions",
    "locate",
    "read_session",
]

_CAPSULE = re.compile(r"(\d{6,20})-(.+)", re.ASCII)
_UNFINISHED = re.compile(r"\.(\d{6,20})-(.+)\.tmp", re.ASCII)
_PART = 64 << 10
_STAMP = re.compile(r"\d{8}T\d{6}Z-", re.ASCII)


class CallEntry(NamedTuple):
    """One line of a list of calls; ``problem`` says why a capsule cannot be read."""

    path: Path
    sequence: int
    api: str
    status: Status | None
    setup: bool = False
    parent: int | None = None
    started_at: str | None = None
    finished_at: str | None = None
    nbytes: int = 0
    problem: str | None = None


class SessionEntry(NamedTuple):
    """One session; ``problem`` says why its session.json cannot be read."""

    path: Path
    session: Session | None
    problem: str | None = None


class Location(NamedTuple):
    """What a path given by a user is: sessions, newest first, or one capsule of a session."""

    sessions: tuple[Path, ...]
    capsule: Path | None = None


class _Brief(msgspec.Struct):
    """The few fields of call.json that a list shows; the others are skipped unread."""

    schema_version: int
    sequence: int
    api: str
    status: Status
    started_at: str
    finished_at: str | None = None
    setup: bool = False
    parent: int | None = None


_brief_decoder = msgspec.json.Decoder(_Brief)


def read_session(session_dir: Path) -> Session:
    """Return a session's checked session.json."""
    path = session_dir / "session.json"
    return decode_session(read_file(path, MAX_JSON), path)


def list_sessions(dump_dir: Path) -> list[SessionEntry]:
    """Return the sessions of a dump folder, newest first; unreadable ones say why."""
    entries = []
    with os.scandir(dump_dir) as found:
        names = [item.name for item in found if item.is_dir(follow_symlinks=False)]
    for name in names:
        path = dump_dir / name
        if not _STAMP.match(name) and not os.path.lexists(path / "session.json"):
            continue
        try:
            session = read_session(path)
        except CapsuleError as error:
            entries.append((name, SessionEntry(path, None, error.problem)))
        else:
            entries.append((session.started_at, SessionEntry(path, session)))
    # A stamp and an ISO time compare alike once their punctuation is gone.
    entries.sort(key=lambda pair: re.sub(r"[-:]", "", pair[0]), reverse=True)
    return [entry for _, entry in entries]


def list_calls(session_dir: Path) -> list[CallEntry]:
    """Return the calls of a session in order; torn and unfinished capsules say what they are."""
    root = str(session_dir)
    entries = []
    with os.scandir(root) as found:
        for item in found:
            name = item.name
            if match := _CAPSULE.fullmatch(name):
                if item.is_dir(follow_symlinks=False):
                    entries.append(_entry(session_dir, root, name, match))
                else:
                    problem = "is not a folder"
                    entries.append(_troubled(session_dir, name, match, problem))
            elif match := _UNFINISHED.fullmatch(name):
                problem = "was being written when its process ended; its call never ran"
                entries.append(_troubled(session_dir, name, match, problem))
    entries.sort(key=lambda entry: entry.sequence)
    return entries


def locate(path: Path) -> Location:
    """Return what a user's path names: a dump folder, a session, or one capsule."""
    if not path.is_dir():
        raise SelectionError(f"{path} is not a folder", "Give the folder of KERNLIB_DUMP_DIR")
    parent = path.absolute().parent
    is_capsule = _CAPSULE.fullmatch(path.name) and os.path.lexists(parent / "session.json")
    if is_capsule or os.path.lexists(path / "call.json"):
        return Location((parent,), path)
    if os.path.lexists(path / "session.json"):
        return Location((path,))
    sessions = tuple(entry.path for entry in list_sessions(path))
    if not sessions:
        raise SelectionError(
            f"{path} holds no recorded session", "Record one with KERNLIB_LOG_LEVEL=dump"
        )
    return Location(sessions)


def _entry(session_dir: Path, root: str, name: str, match: re.Match[str]) -> CallEntry:
    folder = f"{root}/{name}"
    try:
        brief = _brief(f"{folder}/call.json")
        check_version(brief.schema_version)
        check_api(brief.api)
    except FileNotFoundError:
        problem = "has no call.json: it is being removed, or was not copied whole"
    except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        problem = f"call.json cannot be read: {error}"
    else:
        return CallEntry(
            session_dir / name,
            brief.sequence,
            brief.api,
            brief.status,
            brief.setup,
            brief.parent,
            brief.started_at,
            brief.finished_at,
            _size(f"{folder}/inputs.safetensors") + _size(f"{folder}/outputs.safetensors"),
        )
    return _troubled(session_dir, name, match, problem)


def _brief(path: str) -> _Brief:
    # Thousands of these are read for one list, so there is one open and one read each.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        data = os.read(handle, _PART)
        while len(data) % _PART == 0 and 0 < len(data) < MAX_JSON:
            more = os.read(handle, _PART)
            if not more:
                break
            data += more
    finally:
        os.close(handle)
    return _brief_decoder.decode(data)


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def _troubled(session_dir: Path, name: str, match: re.Match[str], problem: str) -> CallEntry:
    number, api = match.groups()
    return CallEntry(session_dir / name, int(number), api, None, problem=problem)

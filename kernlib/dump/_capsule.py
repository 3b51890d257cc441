"""Writes and reads the folder of one call."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kernlib.dump._entries import entry_buffers, read_entries
from kernlib.dump._files import FOLDER_MODE, check_folder, read_file, replace_file, write_file
from kernlib.dump._removal import remove_capsule, strip_capsule
from kernlib.dump._snapshot import Stored
from kernlib.dump._state import with_room, write_state
from kernlib.dump._storages import Piece
from kernlib.dump._validate import MAX_JSON, decode_call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kernlib.dump._entries import Blob
    from kernlib.dump._reuse import Spares
    from kernlib.dump._schema import Call
    from kernlib.dump._state import State

__all__ = [
    "CapsuleWriter",
    "Provision",
    "capsule_name",
    "encode_call",
    "read_call",
    "read_inputs",
    "read_outputs",
]

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+", re.ASCII)
_MAX_API = 100

_encode = msgspec.json.Encoder().encode


def capsule_name(sequence: int, api: str) -> str:
    """Return the folder name of a call."""
    return f"{sequence:06d}-{_UNSAFE.sub('_', api)[:_MAX_API]}"


def encode_call(call: Call) -> bytes:
    """Return the JSON of a call; text that is no Unicode, as in some file names, is marked."""
    try:
        return _encode(call)
    except UnicodeEncodeError:
        return _encode(_as_unicode(msgspec.to_builtins(call)))


class Provision(NamedTuple):
    """What a session gives its capsules.

    ``release`` is told a capsule's final size, None if it was given up; ``reserve`` whether there
    are so many bytes more for it.
    """

    release: Callable[[int, int | None], None]
    reserve: Callable[[int, int], bool]
    spares: Spares


class CapsuleWriter:
    """Writes one capsule: its start before the call runs, its end after it.

    ``old`` is the folder of an evicted capsule, which is taken over with its files: to remove one
    and to make another takes several times as long as to write a small capsule.
    """

    def __init__(
        self,
        session_dir: str,
        sequence: int,
        api: str,
        provision: Provision | None = None,
        old: str | None = None,
    ) -> None:
        name = capsule_name(sequence, api)
        self.sequence = sequence
        self.path = f"{session_dir}/{name}"
        self._hidden = f"{session_dir}/.{name}.tmp"
        self._provision = provision
        self._spares = None if provision is None else provision.spares
        self._old = old
        self._nbytes = 0
        self._json = 0
        self._state_at = 0
        self.stored: Stored | None = None

    def start(self, call: Call, blobs: Sequence[Blob], *, stepped: bool = False) -> None:
        """Publish the call with status ``started`` and its inputs, all or nothing.

        The state of a ``stepped`` call can be changed while it goes on.
        """
        hidden = self._hidden
        published = False
        try:
            again = self._make_folder(keeps_inputs=bool(blobs))
            if blobs:
                buffers, placed = entry_buffers(blobs)
                self._nbytes = write_file(f"{hidden}/inputs.safetensors", buffers, again=again)
                self.stored = Stored(f"{self.path}/inputs.safetensors", placed)
            text = encode_call(call)
            if stepped:
                text, self._state_at = with_room(text, call)
            self._json = write_file(f"{hidden}/call.json", (text,), again=again)
            os.rename(hidden, self.path)  # noqa: PTH104
            published = True
        finally:
            if not published:
                self.abandon()

    def reserve(self, nbytes: int) -> bool:
        """Return whether the budget has room for as many bytes more, before they are copied."""
        return self._provision is None or self._provision.reserve(self.sequence, nbytes)

    def update(self, state: State) -> None:
        """Change the state of a stepped call that goes on."""
        write_state(f"{self.path}/call.json", self._state_at, state)

    def finish(self, call: Call, blobs: Sequence[Blob] = ()) -> None:
        """Add the outputs and replace ``call.json``; until then the call is ``started``."""
        try:
            if blobs:
                buffers, _ = entry_buffers(blobs)
                self._nbytes += replace_file(
                    self.path, "outputs.safetensors", buffers, self._spares
                )
            text = encode_call(call)
            self._json = replace_file(self.path, "call.json", (text,), self._spares)
        finally:
            if self._provision is not None:
                self._provision.release(self.sequence, self._nbytes + self._json)

    def abandon(self) -> None:
        """Remove what was written of a capsule that is not published."""
        if self._old is not None:
            remove_capsule(self._old)
        shutil.rmtree(self._hidden, ignore_errors=True)
        if self._provision is not None:
            self._provision.release(self.sequence, None)

    def _make_folder(self, *, keeps_inputs: bool) -> bool:
        """Make the hidden folder; return whether it holds files to be written over."""
        old, self._old = self._old, None
        if old is not None and self._spares is not None:
            try:
                os.rename(old, self._hidden)  # noqa: PTH104 - pathlib costs on this path
            except OSError:
                remove_capsule(old)
            else:
                strip_capsule(self._hidden, self._spares, keeps_inputs=keeps_inputs)
                return True
        os.mkdir(self._hidden, FOLDER_MODE)  # noqa: PTH102
        return False


def read_call(capsule: Path) -> Call:
    """Return the checked call of a capsule folder; CapsuleError says what is wrong with it."""
    check_folder(capsule)
    path = capsule / "call.json"
    return decode_call(read_file(path, MAX_JSON), path)


def read_inputs(capsule: Path, call: Call) -> list[Piece]:
    """Return the bytes that the call's storages held before it."""
    spans = [
        (segment.entry, number, segment.start, segment.nbytes)
        for number, storage in enumerate(call.storages)
        for segment in storage.segments
    ]
    return _pieces(capsule / "inputs.safetensors", spans)


def read_outputs(capsule: Path, call: Call) -> list[Piece]:
    """Return the bytes that the call left where they differ from its inputs."""
    spans = [(item.entry, item.storage, item.start, item.nbytes) for item in call.changed]
    return _pieces(capsule / "outputs.safetensors", spans)


def _as_unicode(value: Any) -> Any:  # noqa: ANN401 - JSON in Python's types
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_as_unicode(key): _as_unicode(item) for key, item in value.items()}
    return [_as_unicode(item) for item in value] if isinstance(value, (list, tuple)) else value


def _pieces(path: Path, spans: Sequence[tuple[str, int, int, int]]) -> list[Piece]:
    if not spans:
        return []
    entries = read_entries(path, [(entry, nbytes) for entry, _, _, nbytes in spans])
    return [Piece(storage, start, entries[entry]) for entry, storage, start, _ in spans]

"""The full description of a build."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

__all__ = [
    "ArtifactMetadata",
    "BuildRecord",
    "Difference",
    "LibraryFacts",
    "compare_records",
    "decode_record",
    "record_json",
    "record_key",
]

SCHEMA_VERSION = 1
_KEY_DIGITS = 32


class BuildRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides what a build produces; names no path of the host.

    ``sources`` maps the label of every file in the include closure to its SHA-256. ``headers``
    are the labels of generated ones. ``flags`` are those after all overrides, per tool, with
    ``{root}``, ``{tvm_ffi}``, ``{cuda}`` and ``{cxx}`` for paths.
    """

    schema_version: int = SCHEMA_VERSION
    uri: str
    name: str
    backend: str
    params: dict[str, str | int | bool]
    units: tuple[str, ...]
    include_dirs: tuple[str, ...]
    headers: tuple[str, ...]
    sources: dict[str, str]
    flags: dict[str, tuple[str, ...]]
    target: str
    mode: str
    toolchain: dict[str, str]
    tvm_ffi: str
    kernlib: str


class LibraryFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The built library: its name, size in bytes and SHA-256."""

    name: str
    size: int
    sha256: str


class ArtifactMetadata(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands in ``build.json`` beside a library."""

    key: str
    record: BuildRecord
    library: LibraryFacts
    built: dict[str, str]


class Difference(NamedTuple):
    """One fact in which two build records differ."""

    field: str
    recorded: str
    current: str

    def __str__(self) -> str:
        return f"{self.field}: recorded {self.recorded}, here {self.current}"


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(BuildRecord)


def record_json(record: BuildRecord) -> bytes:
    """Return the canonical JSON of a record."""
    return _encoder.encode(record)


def decode_record(data: bytes) -> BuildRecord:
    """Return the record in canonical JSON; raises msgspec.DecodeError for anything else."""
    return _decoder.decode(data)


def record_key(record: BuildRecord) -> str:
    """Return the key of a record: 32 hexadecimal digits."""
    return hashlib.sha256(record_json(record)).hexdigest()[:_KEY_DIGITS]


def compare_records(recorded: BuildRecord, current: BuildRecord) -> tuple[Difference, ...]:
    """Return where two records differ, sources file by file."""
    found = []
    for name in BuildRecord.__struct_fields__:
        before, now = getattr(recorded, name), getattr(current, name)
        if name == "sources":
            found += _source_differences(before, now)
        elif isinstance(before, dict):
            found += [
                Difference(f"{name}.{key}", _text(before.get(key)), _text(now.get(key)))
                for key in sorted({*before, *now})
                if before.get(key) != now.get(key)
            ]
        elif before != now:
            found.append(Difference(name, _text(before), _text(now)))
    return tuple(found)


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    return "absent" if value is None else str(value)


def _source_differences(before: dict[str, str], now: dict[str, str]) -> list[Difference]:
    found = []
    for label in sorted({*before, *now}):
        if label not in now:
            found.append(Difference(label, "part of the build", "missing"))
        elif label not in before:
            found.append(Difference(label, "absent", "added"))
        elif before[label] != now[label]:
            found.append(
                Difference(label, f"sha256 {before[label][:12]}", f"changed ({now[label][:12]})")
            )
    return found

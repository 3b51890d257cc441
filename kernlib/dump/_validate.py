"""Turns untrusted bytes into checked calls and sessions."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, TypeVar

import msgspec

from kernlib.dump._decoder import call_nodes, walk
from kernlib.dump._files import is_key
from kernlib.dump._nodes import ComplexNode, FloatNode, IntNode, ReceiverNode, TensorNode
from kernlib.dump._schema import SCHEMA_VERSION, SESSION_FORMAT, Call, Session
from kernlib.dump._segments import hull
from kernlib.errors import CapsuleError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from kernlib.dump._nodes import Node
    from kernlib.dump._schema import Change, Segment, Storage, View

__all__ = ["MAX_JSON", "check_api", "check_version", "decode_call", "decode_session"]

MAX_JSON = 64 << 20
_MAX_API = 300
_MAX_RANK = 64
_MAX_ITEMSIZE = 64
_MAX_BYTES = 1 << 48
_MAX_STEP = 1 << 62
_MAX_NUMBER = 1 << 64
_HEX = re.compile(r"-?0x[0-9a-f]{1,65536}", re.ASCII)
_FLOAT = re.compile(r"-?inf|nan|nan:[7f]ff[0-9a-f]{13}", re.ASCII)

_Record = TypeVar("_Record", Call, Session)

_call_decoder = msgspec.json.Decoder(Call)
_session_decoder = msgspec.json.Decoder(Session)


class _Versioned(msgspec.Struct):
    schema_version: int


_version_decoder = msgspec.json.Decoder(_Versioned)


def decode_call(data: bytes, path: Path) -> Call:
    """Return the call that the bytes of a call.json hold; CapsuleError says what is wrong."""
    call = _decoded(data, path, _call_decoder)
    try:
        _check_call(call)
    except ValueError as error:
        raise CapsuleError(path, str(error)) from None
    except RecursionError:
        raise CapsuleError(path, "is nested too deeply") from None
    return call


def decode_session(data: bytes, path: Path) -> Session:
    """Return the session that the bytes of a session.json hold; CapsuleError if they do not."""
    session = _decoded(data, path, _session_decoder)
    if session.format != SESSION_FORMAT:
        raise CapsuleError(path, f"format {session.format!r} is not {SESSION_FORMAT!r}")
    return session


def check_api(api: str) -> None:
    """Raise ValueError unless a name can be shown on a terminal."""
    _need(0 < len(api) <= _MAX_API and api.isprintable(), f"api {api[:80]!r} is no name")


def check_version(version: int) -> None:
    """Raise ValueError for a version that this kernlib does not read."""
    if version > SCHEMA_VERSION:
        raise ValueError(
            f"is of schema version {version}, this kernlib reads up to {SCHEMA_VERSION}; "
            "update kernlib"
        )
    if version < 1:
        raise ValueError(f"is of schema version {version}, which never was")


def _decoded(data: bytes, path: Path, decoder: msgspec.json.Decoder[_Record]) -> _Record:
    if len(data) > MAX_JSON:
        raise CapsuleError(path, f"has {len(data)} bytes; at most {MAX_JSON} are read")
    try:
        # The version first: a newer file fails in many ways, and this is the one to tell.
        check_version(_version_decoder.decode(data).schema_version)
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise CapsuleError(path, f"does not follow the format: {error}") from None
    except msgspec.DecodeError as error:
        raise CapsuleError(path, f"is torn or no JSON: {error}") from None
    except RecursionError:
        raise CapsuleError(path, "is nested too deeply") from None
    except ValueError as error:
        raise CapsuleError(path, str(error)) from None


def _check_call(call: Call) -> None:
    check_api(call.api)
    _need(0 <= call.sequence < _MAX_NUMBER, f"sequence {call.sequence} is absurd")
    if call.parent is not None:
        _need(0 <= call.parent < call.sequence, f"parent {call.parent} is not an earlier call")
    if call.yielded is not None:
        items = call.yielded.items
        _need(0 <= items < _MAX_NUMBER, f"{items} yielded items are absurd")
    for number, storage in enumerate(call.storages):
        _check_storage(number, storage)
    for number, view in enumerate(call.views):
        _check_view(number, view, call.storages)
    for node in _all_nodes(call):
        _check_node(node, call)
    for change in call.changed:
        _check_storage_number(f"changed {change.entry!r}", change.storage, call.storages)
        _check_span(change, change.storage, call.storages[change.storage])
    _check_unique("inputs", (part.entry for item in call.storages for part in item.segments))
    _check_unique("outputs", (change.entry for change in call.changed))
    for build in call.builds:
        _need(is_key(build.key), f"build key {build.key[:80]!r} is not 16 to 64 hex digits")


def _all_nodes(call: Call) -> Iterator[Node]:
    yield from call_nodes(call)
    if call.receiver is not None:
        for node in call.receiver.state.values():
            yield from walk(node)
    if call.result is not None:
        yield from walk(call.result)


def _check_node(node: Node, call: Call) -> None:
    if isinstance(node, TensorNode):
        known = len(call.views)
        _need(0 <= node.view < known, f"view {node.view} does not exist; there are {known}")
    elif isinstance(node, ReceiverNode):
        _need(
            0 <= node.id <= call.sequence,
            f"receiver {node.id} is not of a call up to {call.sequence}",
        )
    elif isinstance(node, IntNode) and isinstance(node.value, str):
        _need(_HEX.fullmatch(node.value) is not None, f"int {node.value[:40]!r} is not hexadecimal")
    elif isinstance(node, FloatNode):
        _check_float(node.value)
    elif isinstance(node, ComplexNode):
        _check_float(node.real)
        _check_float(node.imag)


def _check_float(value: float | str) -> None:
    if not isinstance(value, str):
        _need(math.isfinite(value), "a float is too large")
    else:
        _need(_FLOAT.fullmatch(value) is not None, f"float {value[:40]!r} is not inf or nan")


def _check_storage(number: int, storage: Storage) -> None:
    name = f"storage {number}"
    _need(0 <= storage.nbytes <= _MAX_BYTES, f"{name} of {storage.nbytes} bytes is absurd")
    _need(0 <= storage.address < _MAX_NUMBER, f"{name} at address {storage.address} is absurd")
    end = 0
    for segment in storage.segments:
        _check_span(segment, number, storage)
        _need(segment.start >= end, f"segment {segment.entry!r} overlaps the one before it")
        end = segment.start + segment.nbytes


def _check_span(span: Segment | Change, number: int, storage: Storage) -> None:
    _need(
        span.start >= 0 and span.nbytes > 0 and span.start + span.nbytes <= storage.nbytes,
        f"entry {span.entry[:80]!r}, bytes {span.start} to {span.start + span.nbytes}, "
        f"leaves storage {number} of {storage.nbytes} bytes",
    )


def _check_storage_number(what: str, number: int, storages: tuple[Storage, ...]) -> None:
    known = len(storages)
    _need(0 <= number < known, f"{what}: storage {number} does not exist; there are {known}")


def _check_view(number: int, view: View, storages: tuple[Storage, ...]) -> None:
    name = f"view {number} ({view.path[:80]})"
    _check_storage_number(name, view.storage, storages)
    rank = len(view.shape)
    _need(
        rank == len(view.stride) and rank <= _MAX_RANK,
        f"{name} has {rank} sizes and {len(view.stride)} strides; at most {_MAX_RANK} are read",
    )
    _need(0 < view.itemsize <= _MAX_ITEMSIZE, f"{name} has items of {view.itemsize} bytes")
    for what, values in (
        ("shape", view.shape),
        ("stride", view.stride),
        ("offset", (view.offset,)),
    ):
        for value in values:
            _need(0 <= value < _MAX_STEP, f"{name} has {value} in its {what}")
    reach = hull(view)
    nbytes = storages[view.storage].nbytes
    _need(
        reach is None or reach[1] <= nbytes,
        f"{name} reaches byte {reach and reach[1]} of storage {view.storage}, which has {nbytes}",
    )


def _check_unique(file: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        _need(name not in seen, f"two {file} entries are called {name[:80]!r}")
        seen.add(name)


def _need(holds: bool, problem: str) -> None:  # noqa: FBT001 - a condition is the argument
    if not holds:
        raise ValueError(problem)

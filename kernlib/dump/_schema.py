"""The capsule format, version 1, as frozen types.

Views, storages and receivers are referred to by number: a view or a storage by its position in
``Call.views`` and ``Call.storages``, a receiver by the sequence number of the call that made it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from kernlib.dump._nodes import Node  # noqa: TC001 - msgspec reads the annotations

__all__ = [
    "SCHEMA_VERSION",
    "SESSION_FORMAT",
    "Arguments",
    "BuildRef",
    "Call",
    "Change",
    "Dropped",
    "ExceptionInfo",
    "LibraryRef",
    "Process",
    "Receiver",
    "Segment",
    "Session",
    "Status",
    "Storage",
    "Thread",
    "View",
    "Yielded",
]

SCHEMA_VERSION = 1
SESSION_FORMAT = "kernlib-session"

#: Only bodies of generators and coroutines are suspended, and closed before their end.
Status: TypeAlias = Literal["started", "suspended", "returned", "raised", "closed"]


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of what a file holds: immutable, and strict about its fields."""


class View(_Record, frozen=True, kw_only=True):
    """A tensor: how it looks at its storage. ``offset`` and ``stride`` count elements."""

    path: str
    storage: int
    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int = 0
    requires_grad: bool = False
    parameter: bool = False
    conj: bool = False
    neg: bool = False
    inference: bool = False


class Segment(_Record, frozen=True, kw_only=True):
    """Bytes of a storage that ``inputs.safetensors`` holds under the name ``entry``."""

    entry: str
    start: int
    nbytes: int


class Storage(_Record, frozen=True, kw_only=True):
    """The memory behind views: its whole size, where it was, and the parts that were saved."""

    device: str
    nbytes: int
    address: int
    segments: tuple[Segment, ...] = ()


class Change(_Record, frozen=True, kw_only=True):
    """Bytes of a storage after the call, in ``outputs.safetensors`` under the name ``entry``."""

    storage: int
    entry: str
    start: int
    nbytes: int


class LibraryRef(_Record, frozen=True, kw_only=True):
    """The shared library that was loaded."""

    path: str
    size: int
    sha256: str


class BuildRef(_Record, frozen=True, kw_only=True):
    """A build that the call used; its sources are in the session's ``builds/<key>``."""

    key: str
    uri: str
    backend: str
    target: str
    mode: str
    reason: str
    library: LibraryRef | None = None
    problem: str | None = None


class Arguments(_Record, frozen=True, kw_only=True):
    """The arguments as they were passed, without the receiver.

    ``names`` are the parameters that the positional ones were bound to.
    """

    args: list[Node]
    kwargs: dict[str, Node]
    names: tuple[str, ...] = ()


class Receiver(_Record, frozen=True, kw_only=True):
    """The object whose method was called; ``id`` is the sequence number of its ``__init__``."""

    id: int
    class_name: str
    state: dict[str, Node]


class Thread(_Record, frozen=True, kw_only=True):
    """The thread that called."""

    name: str
    ident: int


class ExceptionInfo(_Record, frozen=True, kw_only=True):
    """The exception that left the call."""

    type: str
    message: str
    traceback: str = ""


class Yielded(_Record, frozen=True, kw_only=True):
    """How many items a generator gave, none of which is recorded.

    ``answered`` is whether anything was sent or thrown into it, which is not recorded either.
    """

    items: int
    answered: bool = False


class Call(_Record, frozen=True, kw_only=True):
    """One call: everything in ``call.json``. Times are UTC in ISO format."""

    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    sequence: int
    api: str
    status: Status
    yielded: Yielded | None = None  # beside the status: the two change together while it runs
    started_at: str
    finished_at: str | None = None
    parent: int | None = None
    setup: bool = False
    package: str
    module: str
    qualname: str
    kind: Literal["function", "method", "staticmethod", "classmethod"]
    arguments: Arguments
    receiver: Receiver | None = None
    result: Node | None = None
    views: tuple[View, ...] = ()
    storages: tuple[Storage, ...] = ()
    changed: tuple[Change, ...] = ()
    builds: tuple[BuildRef, ...] = ()
    device: str | None = None
    stream: int | None = None
    capturing: bool = False
    grad_mode: Literal["grad", "no_grad", "inference"] = "grad"
    thread: Thread
    caller: str
    exception: ExceptionInfo | None = None
    device_error: str | None = None
    notes: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()


class Dropped(_Record, frozen=True, kw_only=True):
    """What the session does not hold, though it was called.

    ``calls`` and ``bytes`` were not recorded for lack of room, ``errors`` could not be. Recorded
    and removed again were ``evicted`` for lack of room, ``over_quota`` because of others with the
    same api and shapes (where the first calls are kept, these were not recorded either).
    ``skipped`` were kept away by a rule. ``cleared`` are capsules of ended sessions that were
    removed to make room for this one.
    """

    calls: int = 0
    bytes: int = 0
    errors: int = 0
    evicted: int = 0
    over_quota: int = 0
    skipped: int = 0
    cleared: int = 0


class Process(_Record, frozen=True, kw_only=True):
    """The recording process; ``controls`` are the variables that are not at their default."""

    host: str
    pid: int
    argv: tuple[str, ...]
    python: str
    versions: dict[str, str]
    rank: int | None = None
    devices: tuple[str, ...] = ()
    driver: str | None = None
    controls: dict[str, str] = msgspec.field(default_factory=dict)


class Session(_Record, frozen=True, kw_only=True):
    """One recording process: everything in ``session.json``."""

    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    format: str = msgspec.field(default_factory=lambda: SESSION_FORMAT)
    id: str
    started_at: str
    process: Process
    dropped: Dropped = msgspec.field(default_factory=Dropped)

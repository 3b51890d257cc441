"""What the replaying child is asked and tells.

The child appends one JSON line per event to a file, each in a single write, so that whatever it
said before it died can be read.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "BuildFailed",
    "Built",
    "Compared",
    "Diagnosed",
    "Event",
    "EventLog",
    "Found",
    "Here",
    "Memory",
    "Noted",
    "Placed",
    "PlacedView",
    "Raised",
    "Refused",
    "Request",
    "Scratch",
    "Stage",
    "Trampled",
    "read_events",
]


Memory = Literal["plain", "fence-end", "fence-start"]
Scratch = Literal["recorded", "zeroed", "poisoned"]


class Request(msgspec.Struct, frozen=True):
    """Which call to run, and how.

    ``memory`` says on what memory its storages lie, ``scratch`` what its declared outputs and
    workspaces hold before it, ``previous`` how many recorded calls before it run first. ``judge``
    asks for what the api declares of its arguments to be evaluated as well.
    """

    capsule: str
    packages: list[str]
    device: str | None = None
    compare: bool = True
    memory: Memory = "plain"
    scratch: Scratch = "recorded"
    previous: int = 0
    judge: bool = True


class Stage(msgspec.Struct, frozen=True, tag_field="event", tag="stage"):
    """The child enters a stage; ``call`` is the sequence number it works on."""

    name: str
    call: int = 0
    api: str = ""


class Found(msgspec.Struct, frozen=True, tag_field="event", tag="found"):
    """A declared precondition does not hold for a recorded argument.

    ``origin`` says which recorded call wrote the argument, if that is known.
    """

    argument: str
    message: str
    origin: str = ""


class Diagnosed(msgspec.Struct, frozen=True, tag_field="event", tag="diagnosed"):
    """What the recorded arguments say of "bad input or kernel bug?", before anything runs."""

    answer: str
    confidence: str
    text: str


class Noted(msgspec.Struct, frozen=True, tag_field="event", tag="noted"):
    """Something a reader of the report should know."""

    text: str


class Built(msgspec.Struct, frozen=True, tag_field="event", tag="built"):
    """A kernel is built and loaded.

    ``recorded_key`` is the key in the capsule; ``same_record_key`` what the installed sources
    give in the recorded mode; ``differences`` what keeps the two apart. ``machine_code`` is
    whether another mode made other code, None where that cannot be told.
    """

    uri: str
    target: str
    mode: str
    key: str
    library: str
    size: int
    sha256: str
    recorded_key: str | None
    same_record_key: str | None
    differences: list[str]
    machine_code: str | None = None


class BuildFailed(msgspec.Struct, frozen=True, tag_field="event", tag="build_failed"):
    """A kernel could not be built."""

    message: str


class PlacedView(msgspec.Struct, frozen=True):
    """A tensor on a placed storage; ``stride`` and ``offset`` count elements.

    ``unit`` is what an index of the first dimension counts, in the singular.
    """

    path: str
    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int = 0
    unit: str = "row"


class Placed(msgspec.Struct, frozen=True, tag_field="event", tag="placed"):
    """Where a storage lies in the child.

    ``storage`` is its number in the call, -1 for memory that the api allocates itself. ``before``
    and ``after`` are the bytes of padding that touch it, ``guard`` those beyond the padding, on
    either side, where every access faults; all are 0 on plain memory.
    """

    storage: int
    device: str
    address: int
    nbytes: int
    views: tuple[PlacedView, ...] = ()
    before: int = 0
    after: int = 0
    guard: int = 0

    @property
    def paths(self) -> list[str]:
        """The names of the tensors on this storage."""
        return [view.path for view in self.views]


class Trampled(msgspec.Struct, frozen=True, tag_field="event", tag="trampled"):
    """Padding of a storage was overwritten.

    ``offset`` counts bytes from the storage to the nearest of those: 0 is the byte that touches
    it. ``nbytes`` is how many there are, up to the farthest.
    """

    argument: str
    where: Literal["before", "after"]
    offset: int
    nbytes: int


class Refused(msgspec.Struct, frozen=True, tag_field="event", tag="refused"):
    """The call cannot be run again."""

    reasons: list[str]


class Raised(msgspec.Struct, frozen=True, tag_field="event", tag="raised"):
    """The call raised a Python exception."""

    type: str
    message: str
    traceback: str


class Here(msgspec.Struct, frozen=True, tag_field="event", tag="here"):
    """What the child runs on: versions and devices as a session records them."""

    versions: dict[str, str]
    devices: list[str]


class Compared(msgspec.Struct, frozen=True, tag_field="event", tag="compared"):
    """One tensor of the result, or one input changed in place, against the recording.

    ``unchanged`` marks an input that the recorded call left as it was.
    """

    name: str
    dtype: str
    matches: bool
    identical: bool
    detail: str
    tolerance: str
    unchanged: bool = False


Event = (
    Stage
    | Found
    | Diagnosed
    | Noted
    | Built
    | BuildFailed
    | Refused
    | Raised
    | Compared
    | Placed
    | Trampled
    | Here
)


class EventLog:
    """The child's side: appends events to a file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, event: Event) -> None:
        """Append one event in one write."""
        os.write(self._file, msgspec.json.encode(event) + b"\n")


def read_events(path: Path) -> list[Event]:
    """Return the events of a child, up to the first line that is torn."""
    events: list[Event] = []
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return events
    for line in lines:
        try:
            events.append(msgspec.json.decode(line, type=Event))
        except msgspec.DecodeError:
            break
    return events

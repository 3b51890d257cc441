"""One record of a ring."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from kernlib.ring._format import LATE, Kind
from kernlib.ring._values import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernlib.ring._values import Value

__all__ = ["Entry", "Record"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a writer is given: the start, the return or the exception of a call."""

    kind: Kind
    api: str
    call: int
    values: Mapping[str, Value]
    parent: int = 0
    nanoseconds: int = 0
    stream: int | None = None
    capturing: bool = False
    thread: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Entry):
    """What a reader finds: an entry, when it was written (ns since 1970), and its place."""

    time: int
    position: int
    ordinal: int
    length: int

    @property
    def timestamp(self) -> str:
        """The time, UTC, as it stands in a log line."""
        seconds, rest = divmod(self.time, 1_000_000_000)
        moment = datetime.fromtimestamp(seconds, timezone.utc)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest // 1000:06d}Z"

    def event(self) -> dict[str, object]:
        """Return the record as the JSON log line that tells the same."""
        event: dict[str, object] = {"event": self.kind.name.lower(), "api": self.api}
        event["call"] = self.call
        values = {name: plain(value) for name, value in self.values.items()}
        if self.kind in LATE:
            group = "args" if self.kind is Kind.ARG_STATS else "outputs"
            event |= {"event": "stats", group: {n: {"stats": v} for n, v in values.items()}}
        elif self.kind is Kind.CALL:
            if self.parent:
                event["parent"] = self.parent
            if self.capturing:
                event["capturing"] = True
            if values:
                event["args"] = values
        else:
            event["microseconds"] = round(self.nanoseconds / 1000, 1)
            if values:
                event |= {"outputs": values} if self.kind is Kind.RETURN else values
        event["timestamp"] = self.timestamp
        return event

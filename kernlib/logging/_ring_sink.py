"""Writes every recorded call into a ring file."""

from __future__ import annotations

import logging
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kernlib import ring
from kernlib.config import Config, Level
from kernlib.errors import ConfigError
from kernlib.logging._awaited import AwaitedStatistics
from kernlib.logging._describe import describe, error_line, statistics
from kernlib.logging._destination import call_in_forked_children, expand_destination
from kernlib.logging._filter import NameFilter
from kernlib.logging._short_way import NativeRecorder, NativeTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from kernlib.logging._awaited import Awaited, Group, Measured
    from kernlib.logging._call import Call, RecordedApi, SteppedCall

__all__ = ["RingSink"]

_logger = logging.getLogger("kernlib.recorder")
_DEFAULT_PLACE = "kernlib-%h-%p.ring"
_RETRY_SECONDS = 1.0
_MOST_ITEMS = 16
_DEEPEST = 4


class RingSink:
    """Writes a record when a call starts and one when it ends.

    Python writes them until ``native`` gives the native recorder, which takes the ring over.
    ``native`` is that ring once it has, for the short way of a call.
    """

    def __init__(
        self,
        config: Config,
        facts: Callable[[], object],
        native: Callable[[], NativeRecorder | None],
        measured: Callable[[torch.Tensor], Measured] = statistics,
    ) -> None:
        if config.log_dest == "stdout":
            raise ConfigError(
                "KERNLIB_LOG_DEST", config.log_dest, "a path, as KERNLIB_LOG_FORMAT is ring"
            )
        self.level = config.log_level
        self._filter = NameFilter(config.include, config.exclude)
        template = _DEFAULT_PLACE if config.log_dest == "stderr" else config.log_dest
        self._template = str(Path(template).absolute())
        self._capacity = config.ring_bytes // ring.ALIGNMENT * ring.ALIGNMENT
        self._facts = facts
        self._functions = native
        self._measured = measured
        self._awaited = AwaitedStatistics(self._told_late)
        self._lock = threading.Lock()
        self._pid = 0
        self._path: Path | None = None
        self._writer: ring.RingWriter | None = None
        self._refusal: OSError | None = None
        self._retry_at = 0.0
        self.native: NativeTarget | None = None
        self._loaded: NativeRecorder | None = None
        call_in_forked_children(weakref.WeakMethod(self._forked))

    @property
    def path(self) -> Path | None:
        """The file of this process, once there is one."""
        return self._path

    def wants(self, api: RecordedApi) -> bool:
        """Return whether the filters admit the api."""
        return self._filter.admits(api.name)

    def started(self, call: Call) -> None:
        """Write the name and, from level ``args`` on, the arguments."""
        named = call.named() if self.level >= Level.ARGS else {}
        self._append(ring.Kind.CALL, call, self._values(call, "args", named))

    def returned(self, call: Call, result: object) -> None:
        """Write the time the call took on the host and, from level ``args`` on, the outputs."""
        named = {"result": result} if self.level >= Level.ARGS else {}
        self._append(ring.Kind.RETURN, call, self._values(call, "outputs", named))

    def raised(self, call: Call, error: BaseException) -> None:
        """Write the exception's type and first line; at every level."""
        self._append(ring.Kind.RAISE, call, {"error": error_line(error)})

    def suspended(self, call: SteppedCall) -> None:
        """Write that a body waits for its caller: it is not what ends the process."""
        self._append(ring.Kind.SUSPEND, call, {})

    def resumed(self, call: SteppedCall) -> None:
        """Write that a body goes on."""
        self._append(ring.Kind.RESUME, call, {})

    def failed(self) -> None:
        """Do nothing: the recorder warns and counts."""

    def _append(self, kind: ring.Kind, call: Call, values: Mapping[str, ring.Value]) -> None:
        entry = ring.Entry(
            kind=kind,
            api=call.api.name,
            call=call.sequence,
            values=values,
            parent=call.parent.sequence if call.parent is not None else 0,
            nanoseconds=round(call.seconds * 1e9),
            stream=_stream(values),
            capturing=call.capturing,
        )
        self._put(entry)

    def _put(self, entry: ring.Entry) -> None:
        if self.native is None:
            with self._lock:
                if self._writer is None:
                    self._writer = self._created()
                if not self._handed_over():
                    self._writer.append(entry)
                    return
        self._append_natively(entry)

    def _handed_over(self) -> bool:
        """Return whether the native recorder has the ring, and let it take over when it can.

        Under the lock: no other thread is writing in Python, and none will after this.
        """
        if self.native is None and (loaded := self._functions()) is not None:
            number = loaded.map_ring(str(self._path))
            self._loaded = loaded
            # A target holds the sink, so nobody writes any more when the sink goes.
            weakref.finalize(self, loaded.unmap_ring, number).atexit = False
            self.native = NativeTarget(number, loaded.started, loaded.ended, loaded.add_site, self)
        return self.native is not None

    def _append_natively(self, entry: ring.Entry) -> None:
        """Append what has been described in Python."""
        if self._loaded is None or self.native is None:
            return  # forked meanwhile
        flags, names, values = ring.entry_fields(entry)
        fields = [int(entry.kind), flags, entry.call, entry.parent, entry.nanoseconds,
                  entry.stream or 0]  # fmt: skip
        self._loaded.append(self.native.number, fields, names, values)

    def _created(self) -> ring.RingWriter:
        """Create the ring of this process; where that failed, it is tried again after a while."""
        if self._refusal is not None and time.monotonic() < self._retry_at:
            raise self._refusal
        try:
            path = expand_destination(self._template)
            self._path = ring.create_ring(path, self._capacity, msgspec.to_builtins(self._facts()))
            writer = ring.RingWriter(self._path)
        except OSError as error:
            self._refusal, self._retry_at = error, time.monotonic() + _RETRY_SECONDS
            raise
        _logger.info("calls are recorded in %s; look at it with kernlib ring show", self._path)
        return writer

    def _forked(self) -> None:
        """Let a forked child have a ring of its own: this one is its parent's."""
        self._lock = threading.Lock()
        self._writer = self._path = self._refusal = self.native = None

    def _values(
        self, call: Call, group: Group, named: Mapping[str, object]
    ) -> dict[str, ring.Value]:
        values = {name: _value(value) for name, value in named.items()}
        if self.level >= Level.STATS:
            late: dict[str, Awaited] = {}
            for name, value in values.items():
                if not isinstance(value, ring.Tensor):
                    continue
                found = "capturing" if call.capturing else self._measured(named[name])  # type: ignore[arg-type]
                if isinstance(found, (dict, str)):
                    values[name] = ring.with_statistics(value, found)
                else:
                    late[name] = found
            if late:
                self._awaited.add(call, group, late)
        return values

    def _told_late(self, api: str, call: int, group: Group, found: Mapping[str, object]) -> None:
        """Write statistics that were not there when the call was described."""
        values = {name: ring.Described(stats) for name, stats in found.items()}
        kind = ring.Kind.ARG_STATS if group == "args" else ring.Kind.OUTPUT_STATS
        self._put(ring.Entry(kind=kind, api=api, call=call, values=values))


def _value(value: object, depth: int = 0) -> ring.Value:
    """Return a value in the form it has in a ring; tensors by their metadata."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):  # of subclasses, such as enums, the number
        return int(value) if isinstance(value, int) else float(value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        facts: Any = describe(value)
        if "align" not in facts:  # no memory of its own: sparse, meta, fake
            return ring.Described(facts)
        address = value.data_ptr()
        return ring.Tensor(
            facts["dtype"], facts["device"], address, facts["shape"], facts["stride"]
        )
    if isinstance(value, (list, tuple)) and depth < _DEEPEST:
        items = [_value(item, depth + 1) for item in value[:_MOST_ITEMS]]
        return items if len(value) <= _MOST_ITEMS else [*items, f"... {len(value)} items"]
    described = describe(value, depth)
    return described if isinstance(described, str) else ring.Described(described)


def _stream(values: Mapping[str, ring.Value]) -> int | None:
    """Return the current stream of the first CUDA tensor's device."""
    for value in values.values():
        if isinstance(value, ring.Tensor) and value.device.startswith("cuda"):
            torch = sys.modules["torch"]
            return int(torch.cuda.current_stream(torch.device(value.device)).cuda_stream)
    return None

"""The log line of a call, rendered by structlog."""

from __future__ import annotations

import os
import time
import weakref
from typing import TYPE_CHECKING, Any

import msgspec

from kernlib.config import Config, Level
from kernlib.logging._awaited import AwaitedStatistics
from kernlib.logging._call import SteppedCall
from kernlib.logging._describe import (
    LateStatistics,
    TensorFacts,
    console_text,
    describe_all,
    error_line,
    statistics,
)
from kernlib.logging._destination import call_in_forked_children, open_destination
from kernlib.logging._filter import NameFilter
from kernlib.logging._short_way import NativeTarget

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    import torch

    from kernlib.logging._awaited import Awaited, Group, Measured
    from kernlib.logging._call import Call, RecordedApi
    from kernlib.logging._destination import FileLogger, StreamLogger
    from kernlib.logging._short_way import NativeRecorder

_encode = msgspec.json.Encoder().encode

__all__ = ["LogSink"]


class _Clock:
    """A structlog processor that adds the time, UTC; the date's text is kept for a second."""

    def __init__(self) -> None:
        self._kept = (-1, "")  # second and text together: other threads read them

    def __call__(
        self, _: object, __: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Add ``timestamp``."""
        second, rest = divmod(time.time_ns(), 1_000_000_000)
        kept, text = self._kept
        if second != kept:
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._kept = (second, text)
        event["timestamp"] = f"{text}.{rest // 1000:06d}Z"
        return event


def _console(_: object, __: str, event: MutableMapping[str, Any]) -> bytes:
    head = f"{event.pop('timestamp')} kernlib {event.pop('event')} #{event.pop('call')}"
    parts = [head, event.pop("api")]
    for group in ("args", "outputs"):
        for name, value in event.pop(group, {}).items():
            parts.append(f"{name}={console_text(value)}")
    parts.extend(f"{name}={value}" for name, value in event.items())
    return (" ".join(parts) + "\n").encode(errors="backslashreplace")


def _json(_: object, __: str, event: MutableMapping[str, Any]) -> bytes:
    return _encode(event) + b"\n"


def _never() -> None:
    """Give no native recorder."""


class LogSink:
    """Writes a line when a call starts and, from level ``args`` on, one when it ends.

    Statistics that a device has yet to write come in a line of their own.
    """

    def __init__(
        self,
        config: Config,
        measured: Callable[[torch.Tensor], Measured] = statistics,
        native: Callable[[], NativeRecorder | None] = _never,
    ) -> None:
        self.level = config.log_level
        self._measured = measured
        self._awaited = AwaitedStatistics(self._told_late)
        self._functions = native
        self._filter = NameFilter(config.include, config.exclude)
        self._destination = config.log_dest
        self._json = config.log_format == "json"
        self._pid = 0
        self._logger: Any = None
        self._target: FileLogger | StreamLogger | None = None
        self._file: int | None = None
        self.native: NativeTarget | None = None
        call_in_forked_children(weakref.WeakMethod(self._forked))

    def wants(self, api: RecordedApi) -> bool:
        """Return whether the filters admit the api."""
        return self._filter.admits(api.name)

    def started(self, call: Call) -> None:
        """Write the name and, from level ``args`` on, the arguments."""
        facts: dict[str, Any] = {"api": call.api.name, "call": call.sequence}
        if call.parent is not None:
            facts["parent"] = call.parent.sequence
        if call.capturing:
            facts["capturing"] = True
        if self.level >= Level.ARGS:
            facts["args"] = self._described(call, "args", call.named())
        self._write("call", facts)

    def returned(self, call: Call, result: object) -> None:
        """Write the outputs and the time the call took on the host."""
        if self.level >= Level.ARGS:
            facts = self._end(call)
            if "closed" not in facts:
                facts["outputs"] = self._described(call, "outputs", {"result": result})
            self._write("return", facts)

    def raised(self, call: Call, error: BaseException) -> None:
        """Write the exception's type and first line; at every level."""
        facts = self._end(call)
        facts["error"] = error_line(error)
        self._write("raise", facts)

    def failed(self) -> None:
        """Do nothing: the recorder warns and counts."""

    def _end(self, call: Call) -> dict[str, Any]:
        facts = {
            "api": call.api.name,
            "call": call.sequence,
            "microseconds": round(call.seconds * 1e6, 1),
        }
        if isinstance(call, SteppedCall):
            if call.items is not None:
                facts["items"] = call.items
            if call.closed:
                facts["closed"] = True
        return facts

    def _described(self, call: Call, group: Group, values: dict[str, Any]) -> dict[str, Any]:
        described = describe_all(values)
        if self.level >= Level.STATS:
            late: dict[str, Awaited] = {}
            for name, facts in described.items():
                if not isinstance(facts, TensorFacts):
                    continue
                found = "capturing" if call.capturing else self._measured(values[name])
                if isinstance(found, (dict, str)):
                    facts["stats"] = found
                else:
                    late[name] = found
            if late:
                self._awaited.add(call, group, late)
        return described

    def _told_late(self, api: str, call: int, group: Group, found: dict[str, Any]) -> None:
        stats = {name: LateStatistics(stats=value) for name, value in found.items()}
        self._write("stats", {"api": api, "call": call, group: stats})

    def _write(self, event: str, facts: dict[str, Any]) -> None:
        if self._pid != os.getpid():  # first use, or a forked child whose name has %p in it
            self._connect()
        elif self.native is None and self.level <= Level.ARGS and self._file is not None:
            self._hand_over(self._file)
        self._logger.write(event, facts)

    def _connect(self) -> None:
        import structlog

        class CallLogger(structlog.BoundLoggerBase):
            """A bound logger of our own, whatever the application configures."""

            def write(self, event: str, facts: dict[str, Any]) -> None:
                """Render and write one line."""
                self._proxy_to_logger("msg", event, **facts)

        self._target = open_destination(self._destination)
        self._file = self._target.file
        self._logger = CallLogger(self._target, [_Clock(), _json if self._json else _console], {})
        self._pid = os.getpid()  # only now: a destination that failed is tried again

    def _hand_over(self, file: int) -> None:
        """Let the native recorder write the lines of the calls that it can describe."""
        if (loaded := self._functions()) is not None:
            number = loaded.add_lines(file, self._json)
            ended = loaded.line_ended if self.level >= Level.ARGS else None
            self.native = NativeTarget(
                number, loaded.line_started, ended, loaded.add_site, self._target
            )

    def _forked(self) -> None:
        self.native = self._file = None

"""Writes every recorded call as a capsule."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from kernlib import dump
from kernlib.logging._call import SteppedCall
from kernlib.logging._call_facts import describe_call, exception_info, with_memory, yielded
from kernlib.logging._filter import NameFilter
from kernlib.logging._sessions import Sessions
from kernlib.logging._shapes import shapes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernlib.config import Config
    from kernlib.logging._call import Call, RecordedApi
    from kernlib.logging._rules import CallRules
    from kernlib.logging._sessions import Recording

    CaptureBuilds = Callable[["Call"], "list[CapturedBuild]"]

__all__ = ["CapturedBuild", "DumpSink"]

_logger = logging.getLogger("kernlib.recorder")


class CapturedBuild(NamedTuple):
    """A kernel that a call will use: how it is referred to, and its files."""

    ref: dump.BuildRef
    record: bytes
    manifest: str
    sources: Mapping[str, bytes]


@dataclass(slots=True)
class _Open:
    """A capsule between the start and the end of its call."""

    recording: Recording
    writer: dump.CapsuleWriter
    encoder: dump.Encoder
    call: dump.Call


class DumpSink:
    """Publishes a capsule before a call can launch anything, and completes it at its end.

    ``facts`` describes the process for ``session.json``; ``capture_builds`` returns what a call
    will build; ``rules`` count what they kept from this sink.
    """

    def __init__(
        self,
        config: Config,
        facts: Callable[[], dump.Process],
        capture_builds: CaptureBuilds,
        rules: CallRules | None = None,
    ) -> None:
        self._folder = config.dump_dir
        self._sessions = Sessions(config, facts, rules)
        self._capture_builds = capture_builds
        self._recorded = NameFilter(config.include, config.exclude)
        self._dumped = NameFilter(config.dump_include, config.dump_exclude)
        self._device_lost = ""

    def wants(self, api: RecordedApi) -> bool:
        """Return whether the filters admit the api, or a method that needs it for set-up."""
        if self._recorded.admits(api.name) and self._dumped.admits(api.name):
            return True
        return (
            api.setup
            and api.owner is not None
            and self._recorded.needs_setup_of(api.owner)
            and self._dumped.needs_setup_of(api.owner)
        )

    def started(self, call: Call) -> None:
        """Publish the capsule with its inputs, its kernels and the status ``started``.

        Where somebody has removed the session, a new one takes the call.
        """
        recording = self._sessions.current()
        if self._device_lost:
            recording.session.count_error()
            return
        try:
            self._publish(call, recording)
        except OSError:
            if not recording.session.lost:
                raise
            self._sessions.leave(recording)
            self._publish(call, self._sessions.current())

    def _publish(self, call: Call, recording: Recording) -> None:
        session, receivers = recording.session, recording.receivers
        number = receivers.entered(call)
        encoder = dump.Encoder(receivers.number)
        record = describe_call(call, encoder, number)
        record = with_memory(record, encoder)
        recording.note_skipped()
        # Set-up calls share no quota: where the first calls are kept, no receiver may lack its own.
        kind = (call.api.name, shapes_of(call.args, call.kwargs)) if not call.api.setup else None
        nbytes = dump.input_bytes(record.storages)
        writer = session.begin(call.sequence, call.api.name, nbytes, kind)
        if writer is None:
            return
        receivers.pin_setup(call)
        with contextlib.ExitStack() as undo:
            undo.callback(writer.abandon)
            builds = self._capture_builds(call)
            for build in builds:
                session.add_build(build.ref.key, build.record, build.manifest, build.sources)
            record = msgspec.structs.replace(record, builds=tuple(build.ref for build in builds))
            try:
                blobs = () if record.capturing else dump.input_blobs(encoder.memory, record)
                undo.pop_all()
                writer.start(record, blobs, stepped=isinstance(call, SteppedCall))
            except RuntimeError as error:
                if not _is_device_error(error):
                    raise
                self._lost_before(record, error)
                session.count_error()
                return
        call.state[self] = _Open(recording, writer, encoder, record)

    def returned(self, call: Call, result: object) -> None:
        """Add the result and what the call changed in place."""
        opened = self._left(call)
        if opened is None:
            return
        closed = isinstance(call, SteppedCall) and call.closed
        opened.recording.receivers.left(call, worked=not closed)
        record = msgspec.structs.replace(
            opened.call,
            status="closed" if closed else "returned",
            result=opened.encoder.encode(result, "result"),
            yielded=yielded(call),
        )
        self._finish(opened, record)

    def raised(self, call: Call, error: BaseException) -> None:
        """Add the exception and what the call changed in place."""
        opened = self._left(call)
        if opened is None:
            return
        opened.recording.receivers.left(call, worked=False)
        record = msgspec.structs.replace(
            opened.call,
            status="raised",
            exception=exception_info(error),
            yielded=yielded(call),
        )
        self._finish(opened, record)

    def suspended(self, call: SteppedCall) -> None:
        """Say that the call is not running, or it would be taken for what ended the process."""
        self._update(call, "suspended")

    def resumed(self, call: SteppedCall) -> None:
        """Say that the call is running."""
        self._update(call, "started")

    def _left(self, call: Call) -> _Open | None:
        """Return the capsule to complete, which for a child forked inside the call is none."""
        opened: _Open | None = call.state.pop(self, None)
        mine = opened is not None and opened.recording.is_of_this_process
        return opened if mine else None

    def _update(self, call: SteppedCall, status: Literal["started", "suspended"]) -> None:
        opened = call.state.get(self)
        if opened is not None and opened.recording.is_of_this_process:
            opened.writer.update(dump.State(status=status, yielded=yielded(call)))

    def failed(self) -> None:
        """Count a call that could not be recorded; a full disk is no reason to fail again."""
        if (recording := self._sessions.made) is not None:
            with contextlib.suppress(OSError):
                recording.session.count_error()

    def _lost_before(self, record: dump.Call, error: RuntimeError) -> None:
        """Tell, once, that the device is in error, and that it is not this call's doing."""
        self._device_lost = _first_line(error)
        _logger.warning(
            "the device was already in error before call %d (%s) began, so the fault lies in "
            "a launch outside of recorded calls: %s; nothing more is dumped",
            record.sequence, record.api, self._device_lost,
        )  # fmt: skip

    def _lost_by(self, record: dump.Call, error: Exception) -> dump.Call:
        """Tell that a call left the device in error, and return it as the suspect it is."""
        self._device_lost = _first_line(error)
        _logger.warning(
            "call %d (%s) left the device in error: %s; nothing more is dumped. Replay it "
            "with: kernlib-replay %s",
            record.sequence, record.api, self._device_lost, self._folder,
        )  # fmt: skip
        status = "raised" if record.exception is not None else "started"
        return msgspec.structs.replace(
            record, status=status, result=None, changed=(), device_error=self._device_lost
        )

    def _finish(self, opened: _Open, record: dump.Call) -> None:
        """Complete a capsule, so that a call that ended is never left as one that did not."""
        record = msgspec.structs.replace(record, finished_at=dump.utc_now())
        record = with_memory(record, opened.encoder)
        blobs: list[dump.Blob] = []
        if not record.capturing:
            if opened.writer.reserve(dump.output_bytes(record)):
                record, blobs = self._read_outcome(opened, record)
            else:
                record = _lacking(record, "no room in KERNLIB_DUMP_MAX_BYTES")
        try:
            opened.writer.finish(record, blobs)
        except (OSError, RuntimeError) as error:
            if opened.recording.session.lost:
                self._sessions.leave(opened.recording)
                return
            if _is_device_error(error):
                opened.writer.finish(self._lost_by(record, error))
                return
            if blobs:
                opened.writer.finish(_lacking(record, str(error)))
            raise

    def _read_outcome(self, opened: _Open, record: dump.Call) -> tuple[dump.Call, list[dump.Blob]]:
        """Read back what the call left; a device error while doing so makes it the suspect."""
        try:
            outcome = dump.outcome(opened.encoder.memory, record, opened.writer.stored)
        except (RuntimeError, OSError) as error:
            if not _is_device_error(error):
                return _lacking(record, _first_line(error)), []
            return self._lost_by(record, error), []
        lacks = (*record.incomplete, *outcome.incomplete)
        found = msgspec.structs.replace(record, changed=outcome.changed, incomplete=lacks)
        return found, outcome.blobs


def _lacking(record: dump.Call, reason: str) -> dump.Call:
    """Return the call without its outputs, and with the reason for their absence."""
    lacks = (*record.incomplete, f"outputs: {reason}")
    return msgspec.structs.replace(record, changed=(), incomplete=lacks)


def _is_device_error(error: Exception) -> bool:
    return type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error)


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__

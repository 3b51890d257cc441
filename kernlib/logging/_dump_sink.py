"""Writes every recorded call as a capsule."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kernlib import dump
from kernlib.logging._filter import NameFilter
from kernlib.logging._receivers import Receivers, state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernlib.config import Config
    from kernlib.logging._call import Call, RecordedApi

    CaptureBuilds = Callable[["Call"], "list[CapturedBuild]"]

__all__ = ["CapturedBuild", "DumpSink"]

_logger = logging.getLogger("kernlib.recorder")
_LONGEST_TRACEBACK = 1 << 16


class CapturedBuild(NamedTuple):
    """A kernel that a call will use: how it is referred to, and its files."""

    ref: dump.BuildRef
    record: bytes
    manifest: str
    sources: Mapping[str, bytes]


@dataclass(slots=True)
class _Open:
    """A capsule between the start and the end of its call."""

    writer: dump.CapsuleWriter
    encoder: dump.Encoder
    call: dump.Call


class _Recording(NamedTuple):
    """The session of one process, and the receivers it has seen."""

    pid: int
    session: dump.SessionWriter
    receivers: Receivers


class DumpSink:
    """Publishes a capsule before a call can launch anything, and completes it at its end.

    ``facts`` describes the process for ``session.json``; ``capture_builds`` returns what a call
    will build.
    """

    def __init__(
        self, config: Config, facts: Callable[[], dump.Process], capture_builds: CaptureBuilds
    ) -> None:
        self._config = config
        self._facts = facts
        self._capture_builds = capture_builds
        self._recorded = NameFilter(config.include, config.exclude)
        self._dumped = NameFilter(config.dump_include, config.dump_exclude)
        self._lock = threading.Lock()
        self._recording: _Recording | None = None
        self._device_lost = ""

    def wants(self, api: RecordedApi) -> bool:
        """Return whether the filters admit the api, or a method that needs it for set-up."""
        if self._recorded.admits(api.name) and self._dumped.admits(api.name):
            return True
        filters = [names for names in (self._recorded, self._dumped) if names.include]
        return (
            api.setup
            and api.owner is not None
            and all(names.needs_setup_of(api.owner) for names in filters)
        )

    def started(self, call: Call) -> None:
        """Publish the capsule with its inputs, its kernels and the status ``started``."""
        session, receivers = self._of_this_process()[1:]
        if self._device_lost:
            session.count_error()
            return
        number = receivers.entered(call)
        encoder = dump.Encoder(receivers.number)
        record = _describe(call, encoder, number)
        record = _with_memory(record, encoder)
        writer = session.begin(call.sequence, call.api.name, dump.input_bytes(record.storages))
        if writer is None:
            return
        with contextlib.ExitStack() as undo:
            undo.callback(writer.abandon)
            builds = self._capture_builds(call)
            for build in builds:
                session.add_build(build.ref.key, build.record, build.manifest, build.sources)
            record = msgspec.structs.replace(record, builds=tuple(build.ref for build in builds))
            blobs = self._read_inputs(encoder, record)
            undo.pop_all()
            writer.start(record, blobs)
        call.state[self] = _Open(writer, encoder, record)

    def returned(self, call: Call, result: object) -> None:
        """Add the result and what the call changed in place."""
        opened = call.state.pop(self, None)
        if opened is None:
            return
        self._of_this_process().receivers.left(call, worked=True)
        record = msgspec.structs.replace(
            opened.call, status="returned", result=opened.encoder.encode(result, "result")
        )
        self._finish(opened, record)

    def raised(self, call: Call, error: BaseException) -> None:
        """Add the exception and what the call changed in place."""
        opened = call.state.pop(self, None)
        if opened is None:
            return
        self._of_this_process().receivers.left(call, worked=False)
        text = "".join(traceback.format_exception(error))[-_LONGEST_TRACEBACK:]
        exception = dump.ExceptionInfo(
            type=type(error).__qualname__, message=str(error), traceback=text
        )
        self._finish(
            opened, msgspec.structs.replace(opened.call, status="raised", exception=exception)
        )

    def failed(self) -> None:
        """Count a call that could not be recorded; a full disk is no reason to fail again."""
        if self._recording is not None:
            with contextlib.suppress(OSError):
                self._recording.session.count_error()

    def _of_this_process(self) -> _Recording:
        """Return the session, a new one at first use and in a forked child."""
        with self._lock:
            if self._recording is None or self._recording.pid != os.getpid():
                budget = dump.Budget(
                    max_calls=self._config.dump_max_calls,
                    max_bytes=self._config.dump_max_bytes,
                    keep=self._config.dump_keep,
                )
                session = dump.SessionWriter(self._config.dump_dir, self._facts(), budget)
                receivers = Receivers(session.pin, session.unpin)
                self._recording = _Recording(os.getpid(), session, receivers)
            return self._recording

    def _read_inputs(self, encoder: dump.Encoder, record: dump.Call) -> list[dump.Blob]:
        if record.capturing:
            return []
        try:
            return dump.input_blobs(encoder.memory, record)
        except RuntimeError as error:
            if not _is_device_error(error):
                raise
            self._device_lost = _first_line(error)
            _logger.warning(
                "the device was already in error before call %d (%s) began, so the fault lies in "
                "a launch outside of recorded calls: %s; nothing more is dumped",
                record.sequence, record.api, self._device_lost,
            )  # fmt: skip
            raise

    def _finish(self, opened: _Open, record: dump.Call) -> None:
        """Complete a capsule; a device error while reading back makes the call the suspect."""
        record = msgspec.structs.replace(record, finished_at=dump.utc_now())
        record = _with_memory(record, opened.encoder)
        if record.capturing:
            opened.writer.finish(record)
            return
        if not opened.writer.reserve(dump.output_bytes(record)):
            lack = (*record.incomplete, "outputs: no room in KERNLIB_DUMP_MAX_BYTES")
            opened.writer.finish(msgspec.structs.replace(record, incomplete=lack))
            return
        try:
            outcome = dump.outcome(opened.encoder.memory, record, opened.writer.stored)
        except RuntimeError as error:
            if not _is_device_error(error):
                raise
            self._device_lost = _first_line(error)
            status = "raised" if record.exception is not None else "started"
            lost = msgspec.structs.replace(
                record, status=status, result=None, device_error=self._device_lost
            )
            opened.writer.finish(lost)
            _logger.warning(
                "call %d (%s) left the device in error: %s; nothing more is dumped. Replay it "
                "with: kernlib-replay %s",
                record.sequence, record.api, self._device_lost, self._config.dump_dir,
            )  # fmt: skip
            return
        record = msgspec.structs.replace(
            record,
            changed=outcome.changed,
            incomplete=(*record.incomplete, *outcome.incomplete),
        )
        opened.writer.finish(record, outcome.blobs)


def _is_device_error(error: RuntimeError) -> bool:
    return type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error)


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


def _with_memory(record: dump.Call, encoder: dump.Encoder) -> dump.Call:
    """Return the call with the views and storages met so far.

    During graph capture no data may be read, so the storages promise none.
    """
    storages = encoder.storages()
    incomplete = tuple(encoder.incomplete)
    if record.capturing:
        storages = tuple(msgspec.structs.replace(storage, segments=()) for storage in storages)
        incomplete += ("all tensors: a CUDA graph was being captured, so no data was read",)
    return msgspec.structs.replace(
        record, views=encoder.views, storages=storages, incomplete=incomplete
    )


def _describe(call: Call, encoder: dump.Encoder, number: int | None) -> dump.Call:
    """Return everything about a call that is known before it runs, but for its memory."""
    torch = sys.modules["torch"]
    api, receiver = call.api, None
    arguments = _arguments(call, encoder)
    if number is not None:
        state = {
            name: encoder.encode(value, f"self.{name}")
            for name, value in state_of(call.receiver).items()
        }
        receiver = dump.Receiver(
            id=number, class_name=type(call.receiver).__qualname__, state=state
        )
    thread = threading.current_thread()
    device, stream = _place(torch, encoder)
    return dump.Call(
        sequence=call.sequence,
        api=api.name,
        status="started",
        started_at=dump.utc_now(),
        parent=call.parent.sequence if call.parent is not None else None,
        setup=api.setup,
        package=api.package,
        module=api.module,
        qualname=api.function.__qualname__,
        kind=api.kind,
        arguments=arguments,
        receiver=receiver,
        device=device,
        stream=stream,
        capturing=call.capturing,
        grad_mode=_grad_mode(torch),
        thread=dump.Thread(name=thread.name, ident=thread.ident or 0),
        caller=_caller(),
    )


def _arguments(call: Call, encoder: dump.Encoder) -> dump.Arguments:
    names = list(call.api.signature.parameters)
    shift = len(call.args) - len(call.plain_args)
    args, bound = [], []
    for at, value in enumerate(call.plain_args):
        place = at + shift
        name = names[place] if place < len(names) else f"args[{at}]"
        bound.append(name)
        args.append(encoder.encode(value, name))
    kwargs = {name: encoder.encode(value, name) for name, value in call.kwargs.items()}
    return dump.Arguments(args=args, kwargs=kwargs, names=tuple(bound))


def _place(torch: Any, encoder: dump.Encoder) -> tuple[str | None, int | None]:  # noqa: ANN401
    """Return the device of the call's tensors, a CUDA device first, and its current stream."""
    devices = {str(memory.device) for memory in encoder.memory if memory is not None}
    cuda = sorted(device for device in devices if device.startswith("cuda"))
    if cuda:
        return cuda[0], int(torch.cuda.current_stream(torch.device(cuda[0])).cuda_stream)
    return min(devices, default=None), None


def _grad_mode(torch: Any) -> Any:  # noqa: ANN401 - one of the schema's literals
    if torch.is_inference_mode_enabled():
        return "inference"
    return "grad" if torch.is_grad_enabled() else "no_grad"


def _caller() -> str:
    """Return the place that called the api: the innermost frame outside of this package."""
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to a frame without a traceback
    own = __name__.rpartition(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(own):
        frame = frame.f_back
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} {code.co_name}"

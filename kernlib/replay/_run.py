"""Runs a child process and classifies its end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from kernlib import jit
from kernlib.config import Mode
from kernlib.replay._compute_sanitizer import (
    read_compute_sanitizer,
    read_compute_sanitizer_text,
)
from kernlib.replay._coredump import core_dump_environment, read_core_dump
from kernlib.replay._crash import fault_of_crash
from kernlib.replay._protocol import Raised, Stage, read_events
from kernlib.replay._sanitizers import (
    Fault,
    read_address_sanitizer,
    read_device_assertion,
    read_thread_sanitizer,
    read_undefined,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kernlib.config import Config
    from kernlib.replay._protocol import Event, Request
    from kernlib.replay._tools import Tool

__all__ = ["ChildEnd", "by_tool", "run_child", "stop_child"]

#: The child that each thread of this process waits for.
_children: dict[int, subprocess.Popen[bytes]] = {}

_READERS = (
    read_address_sanitizer,
    read_undefined,
    read_thread_sanitizer,
    read_device_assertion,
    read_compute_sanitizer_text,
)
_DEVICE_ERRORS = (
    "CUDA error", "CUDA driver error", "AcceleratorError", "cudaError", "device-side assert",
)  # fmt: skip
#: What a launch raises that finds the device in error; other numbers say that it was refused.
_LAUNCH_ERROR = re.compile(r" on cuda:\d+: .* \(error 7(?:00|1[0-9])\)")
#: What CUDA says of a device that is full, taken or of another kind: no fault of a kernel.
_NO_FAULT = re.compile(
    r"out of memory|no kernel image|invalid configuration|busy or unavailable|invalid device"
    r"|initialization error|no CUDA-capable|unsupported",
    re.IGNORECASE,
)
#: Of a log that is longer, the first and the last half are read; a line is read so far.
_LOG_BYTES, _LINE_BYTES = 16 << 20, 8 << 10


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """How a child ended: its events, and the fault if it had one."""

    events: tuple[Event, ...]
    fault: Fault | None
    exit_status: int | None
    timed_out: bool
    seconds: float
    log: str

    @property
    def stage(self) -> Stage | None:
        """The last stage the child entered."""
        stages = [event for event in self.events if isinstance(event, Stage)]
        return stages[-1] if stages else None

    @property
    def raised(self) -> Raised | None:
        """The Python exception that ended the call."""
        return next((event for event in self.events if isinstance(event, Raised)), None)


def is_device_error(text: str) -> bool:
    """Return whether an exception's text speaks of a fault on the device."""
    head = text.partition("\n")[0]
    if _NO_FAULT.search(head):
        return False
    return any(word in text for word in _DEVICE_ERRORS) or bool(_LAUNCH_ERROR.search(text))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _signal_fault(status: int, folder: Path, config: Config) -> Fault:
    """Return what the child told of its signal before it ended, else the signal's name."""
    name = _signal_name(-status)
    told = fault_of_crash(folder, jit.artifacts_dir(config).resolve())
    # The handler has itself ended by an alarm, should its report wait for good.
    if told is not None and name in {told.kind, "SIGALRM"}:
        return told
    return Fault(name, f"the process was ended by {name}", "operating system")


def _device_fault(message: str, folder: Path) -> Fault:
    """Return what the runtime says of a device in error, and what its core dump adds."""
    text = (message.splitlines() or ["the device was in error"])[0]
    dumped = read_core_dump(folder)
    if dumped is None:
        return Fault("device error", text, "CUDA runtime")
    said = f"{text} ({dumped.kind})" if dumped.kind != "device error" else text
    return replace(dumped, kind="device error", text=said)


def _fault_of(log: str, tool: Tool, events: Sequence[Event], folder: Path) -> Fault | None:
    """Return the most telling of: a sanitizer's report, a device error."""
    if tool.report is not None and tool.report.exists():
        xml = tool.report.read_text(encoding="utf-8", errors="replace")
        if (fault := read_compute_sanitizer(xml)) is not None:
            return fault
    for read in _READERS:
        if (fault := read(log)) is not None:
            return fault
    for event in events:
        if isinstance(event, Raised) and is_device_error(f"{event.type}: {event.message}"):
            return _device_fault(event.message, folder)
    return None


def _stop(child: subprocess.Popen[bytes]) -> None:
    """End a child that still runs and its group: a sanitizer may stand between us and it."""
    if child.poll() is None:
        _kill(child)
        child.wait()


def _kill(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _read_log(path: Path) -> str:
    """Return what a child wrote, as far as a reader of reports may have to look at it."""
    half = _LOG_BYTES // 2
    with path.open("rb") as file:
        text = file.read(half)
        size = os.fstat(file.fileno()).st_size
        if size > 2 * half:
            file.seek(size - half)
            text += b"\n"
        text += file.read(half)
    lines = text.decode("utf-8", errors="replace").split("\n")
    return "\n".join(line[:_LINE_BYTES] for line in lines)


def stop_child(thread: int) -> None:
    """End the child that a thread waits for, if it has one."""
    if (child := _children.get(thread)) is not None:
        _kill(child)


def run_child(
    request: Request, config: Config, tool: Tool, *, folder: Path, timeout: float
) -> ChildEnd:
    """Run one request in a fresh process with recording off and ``config`` in its environment.

    ``folder`` is private to this run and keeps what the child wrote. ``timeout`` in seconds.
    """
    (folder / "request.json").write_bytes(msgspec.json.encode(request))
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("KERNLIB_")
    }
    environment.update(config.to_env())
    # To write a dump takes the driver seconds, and a tool in front is the debugger itself.
    if not tool.command and config.jit_mode is Mode.LINEINFO:
        environment.update(core_dump_environment(folder))
    environment.update(tool.environment)
    environment["PYTHONUNBUFFERED"] = "1"
    command = [*tool.command, sys.executable, "-m", "kernlib.replay._worker", str(folder)]
    begin = time.monotonic()
    with (folder / "child.log").open("wb") as log_file:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log_file, stderr=subprocess.STDOUT,
            env=environment, start_new_session=True,
        )  # fmt: skip
        _children[threading.get_ident()] = child
        timed_out = False
        try:
            child.wait(timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            del _children[threading.get_ident()]
            _stop(child)
    log = _read_log(folder / "child.log")
    events = read_events(folder / "events.jsonl")
    status = None if timed_out else child.returncode
    fault = None if timed_out else _fault_of(log, tool, events, folder)
    if fault is None and not timed_out:
        # A dump there is only of a device in error, whatever it made of the process.
        fault = read_core_dump(folder)
    if fault is None and status is not None and status < 0:
        fault = _signal_fault(status, folder, config)
    return ChildEnd(
        tuple(events),
        fault,
        status,
        timed_out,
        time.monotonic() - begin,
        log,
    )


def by_tool(end: ChildEnd, tool: str) -> ChildEnd:
    """Name the tool of compute-sanitizer that spoke: it decides whether a finding is a crash."""
    if end.fault is None or end.fault.tool != "compute-sanitizer":
        return end
    return replace(end, fault=replace(end.fault, tool=tool))

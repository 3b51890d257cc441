"""The child process that runs one recorded call.

Started as ``python -m kernlib.replay._worker FOLDER`` with recording off and the wanted
configuration in its environment: from there on it is the ordinary call in an ordinary process.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kernlib import dump
from kernlib._facts import devices, versions
from kernlib.config import Mode, get_config
from kernlib.errors import (
    BuildError,
    KernlibError,
    MissingArtifactError,
    NotReplayableError,
    ToolchainError,
    UnsupportedTargetError,
)
from kernlib.replay._apis import api_of, import_apis
from kernlib.replay._catch import catch_signals
from kernlib.replay._chain import Step
from kernlib.replay._coredump import core_dumps
from kernlib.replay._diagnose import judge_step
from kernlib.replay._memory import CallMemory
from kernlib.replay._outcome import compare_outcome
from kernlib.replay._passing import Passing
from kernlib.replay._protocol import (
    BuildFailed,
    Diagnosed,
    EventLog,
    Found,
    Here,
    Noted,
    Raised,
    Refused,
    Request,
    Stage,
)
from kernlib.replay._rebuild import device_map, rebuild_call
from kernlib.replay._sequence import sequence_of
from kernlib.replay._steps import can_compare, compare_items, run_out, step_notes, step_obstacles
from kernlib.replay._streams import Streams
from kernlib.replay._used import describe_builds

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from kernlib._registry import Api
    from kernlib.replay._protocol import Event
    from kernlib.replay._rebuild import Rebuilt

_DUMPED_SECONDS = 5.0
_BUILD_ERRORS = (BuildError, MissingArtifactError, ToolchainError, UnsupportedTargetError)


class _Worker:
    def __init__(self, request: Request, events: EventLog, folder: Path) -> None:
        self._request = request
        self._folder = folder
        self._events = events
        self._receivers: dict[int, object] = {}
        self._passing = Passing()
        self._streams = Streams()
        # As it was recorded, nothing stands between the api and torch.
        watch = get_config().jit_mode is not Mode.RELEASE
        self.memory = CallMemory(request.memory, request.scratch, events, watch=watch)
        self.running = False

    def run(self) -> None:
        """Run the whole chain; the last call is the one asked for."""
        events = self._events
        events.write(Stage("importing"))
        path = Path(self._request.capsule)
        target = Step(path, dump.read_call(path))
        import torch  # noqa: F401 - its loading belongs to this stage

        events.write(Here(versions(), devices() if self._on_cuda(target) else []))
        import_apis(target.call, self._request.packages)
        steps, left_out = sequence_of(target, self._request.previous, self._obstacles)
        apis = [api_of(step, self._request.packages) for step in steps]
        for step in steps:
            if reasons := _obstacles(step):
                raise NotReplayableError(step.text, reasons)
        events.write(Stage("checking the arguments", target.call.sequence, target.call.api))
        if self._request.judge:
            self._check(apis[-1], target)
        places, notes = device_map(target.call, self._request.device)
        for step in steps[:-1]:
            places |= device_map(step.call, self._request.device)[0]
        notes += [*left_out, *step_notes(target.call), *target.call.notes]
        notes += target.call.incomplete
        for note in notes:
            events.write(Noted(note))
        events.write(Stage("building", target.call.sequence, target.call.api))
        if problem := catch_signals(self._folder):
            events.write(Noted(problem))
        for step, api in zip(steps, apis, strict=True):
            self._run_step(step, api, places, last=step is target)

    def _on_cuda(self, step: Step) -> bool:
        """Return whether the call will use a device: to ask for devices starts CUDA."""
        wanted = self._request.device
        used = [storage.device for storage in step.call.storages]
        return any(device.startswith("cuda") for device in ([wanted] if wanted else used))

    def _obstacles(self, step: Step) -> list[str]:
        """Return why a call before the target cannot run; its api must be known as well."""
        import_apis(step.call, self._request.packages)
        api_of(step, self._request.packages)
        return _obstacles(step)

    def _check(self, api: Api, target: Step) -> None:
        judged = judge_step(api, target)
        for broken in judged.findings:
            origin = broken.origin.text if broken.origin is not None else ""
            self._events.write(Found(broken.argument, broken.message, origin))
        self._events.write(Diagnosed(judged.answer, judged.confidence, judged.text))

    def _run_step(self, step: Step, api: Api, devices: dict[str, str], *, last: bool) -> None:
        call, events = step.call, self._events
        events.write(Stage("rebuilding the arguments", call.sequence, call.api))
        given, notes = self._passing.given(step, devices)
        for note in notes if last else ():
            events.write(Noted(note))
        rebuilt = rebuild_call(step, devices, self._receivers, self.memory.allocate, given)
        self.memory.place(call, rebuilt.tensors, api, last=last)
        args = [*self._receiver(step, api, rebuilt), *rebuilt.args]
        if api.kernels is not None:
            events.write(Stage("building", call.sequence, call.api))
            for built in describe_builds(step, api.kernels(*args, **rebuilt.kwargs), last=last):
                events.write(built)
        events.write(Stage("running", call.sequence, call.api))
        self.running = True  # from here on an exception is the api's own
        stream = self._streams.of(call, devices)
        with stream, _grad_mode(call.grad_mode), self.memory.running():
            ended = run_out(api.function, api.function(*args, **rebuilt.kwargs), call)
        _wait(rebuilt, self._folder)
        self.memory.check()
        self.running = False
        if not last:
            if self._request.previous:
                self._passing.keep(step, rebuilt, ended.result)
            self.memory.collect()
            return
        events.write(Stage("comparing", call.sequence, call.api))
        if self._request.compare and can_compare(call):
            outcome = compare_outcome(step, rebuilt, ended.result)
            for compared in chain(compare_items(call, ended), outcome):
                events.write(compared)
        events.write(Stage("done", call.sequence, call.api))
        _leave(0)

    def _receiver(self, step: Step, api: Api, rebuilt: Rebuilt) -> list[object]:
        """Return what the language passes first, as a list: receiver, class, or nothing."""
        receiver = step.call.receiver
        if receiver is None:
            return [api.owner_class()] if api.kind == "classmethod" else []
        if receiver.id == step.call.sequence:
            owner: Any = api.owner_class()
            self._receivers[receiver.id] = owner.__new__(owner)
        found = self._receivers[receiver.id]
        for name, value in rebuilt.state.items():
            try:
                setattr(found, name, value)
            except AttributeError:
                self._events.write(Noted(f"self.{name} cannot be set; it is as the chain left it"))
        return [found]


def _obstacles(step: Step) -> list[str]:
    """Return why a call cannot be run again; empty if nothing stands in the way."""
    call = step.call
    reasons = [*dump.opaque_paths(call), *dump.missing_data(call), *step_obstacles(call)]
    if call.capturing:
        reasons.append("it was recorded while a CUDA graph was captured: no data was read")
    return reasons


def _grad_mode(mode: str) -> AbstractContextManager[Any]:
    import torch

    if mode == "inference":
        return torch.inference_mode()
    return torch.enable_grad() if mode == "grad" else torch.no_grad()


def _wait(rebuilt: Rebuilt, folder: Path) -> None:
    """Wait for the devices that are in use, so that their faults are raised here.

    The wait in which the driver writes a core dump ends without an error; a little later they do.
    """
    import torch

    deadline = time.monotonic() + _DUMPED_SECONDS
    while True:
        for device in {tensor.device for tensor in rebuilt.tensors.values()}:
            if device.type == "cuda":
                torch.cuda.synchronize(device)
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            for number in _devices_with_contexts():
                torch.cuda.synchronize(number)
        if not core_dumps(folder) or time.monotonic() > deadline:
            return
        time.sleep(0.01)


def _devices_with_contexts() -> list[int]:
    """Return the CUDA devices that this process uses; to wait for others would make a context."""
    import torch

    here = torch.cuda.current_device()
    in_use = getattr(torch._C, "_cuda_hasPrimaryContext", lambda number: number == here)  # noqa: SLF001
    return [number for number in range(torch.cuda.device_count()) if in_use(number)]


def _leave(status: int) -> None:
    """End the process without the interpreter's clean-up, which a device in error would abort."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _event_of(error: BaseException, *, running: bool) -> Event | None:
    """Return what an exception that ends the child says to the parent."""
    if running:
        text = "".join(traceback.format_exception(error))
        return Raised(type(error).__qualname__, str(error), text)
    if isinstance(error, NotReplayableError):
        return Refused(list(error.reasons))
    if isinstance(error, _BUILD_ERRORS):
        return BuildFailed(str(error))
    return Refused([str(error)]) if isinstance(error, KernlibError) else None


def main(folder: Path) -> None:
    """Run the request in ``folder``; everything there is to say goes to its event file."""
    request = msgspec.json.decode((folder / "request.json").read_bytes(), type=Request)
    events = EventLog(folder / "events.jsonl")
    worker = _Worker(request, events, folder)

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        event = _event_of(error, running=worker.running)
        if event is not None:
            events.write(event)
        worker.memory.check(after_fault=True)
        sys.__excepthook__(kind, error, trace)
        _leave(1)

    sys.excepthook = tell  # whatever ends the child is told, wherever it comes from
    worker.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

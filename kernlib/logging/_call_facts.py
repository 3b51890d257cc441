"""What a capsule says of a call before it runs."""

from __future__ import annotations

import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

import msgspec

from kernlib import dump
from kernlib.logging._call import SteppedCall
from kernlib.logging._receivers import state_of

if TYPE_CHECKING:
    from kernlib.logging._call import Call

__all__ = ["describe_call", "exception_info", "with_memory", "yielded"]

_LONGEST_TEXT = 1 << 16


def with_memory(record: dump.Call, encoder: dump.Encoder) -> dump.Call:
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


def describe_call(call: Call, encoder: dump.Encoder, number: int | None) -> dump.Call:
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
    names = call.api.parameters
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
    """Return the place that called the api: the innermost frame outside of this package.

    By file, because a switched function runs code of this package with its module's globals.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to a frame without a traceback
    own = __file__.removesuffix("_call_facts.py")
    while frame.f_back is not None and frame.f_code.co_filename.startswith(own):
        frame = frame.f_back
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} {code.co_name}"


def yielded(call: Call) -> dump.Yielded | None:
    """Return what a generator has given so far; None for other calls."""
    if not isinstance(call, SteppedCall) or call.items is None:
        return None
    return dump.Yielded(items=call.items, answered=call.answered)


def exception_info(error: BaseException) -> dump.ExceptionInfo:
    """Return an exception's facts, whatever its ``__str__`` does and however long its text is."""
    described = traceback.TracebackException.from_exception(error)
    return dump.ExceptionInfo(
        type=type(error).__qualname__,
        message=_shortened(str(described)),
        traceback=_shortened("".join(described.format())),
    )


def _shortened(text: str) -> str:
    """Return a text with its middle left out if it is too long: both of its ends matter."""
    if len(text) <= _LONGEST_TEXT:
        return text
    half = _LONGEST_TEXT // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"

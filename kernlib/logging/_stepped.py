"""Records calls that stop and go on: generators and coroutines."""

from __future__ import annotations

import time
import types
from typing import TYPE_CHECKING, Any

from kernlib.logging._call import SteppedSink

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from types import AsyncGeneratorType

    from kernlib.logging._call import Sink, SteppedCall
    from kernlib.logging._recorder import Recorder

__all__ = ["Steps", "Stream"]


class _Answer:
    """What a caller gives back to a body that has stopped: a value, or an exception."""

    def __init__(self, value: object = None, error: BaseException | None = None) -> None:
        self.value = value
        self.error = error

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        """Keep an exception: it belongs into the body, which alone may handle it."""
        self.error = error
        return True

    def take(self) -> tuple[BaseException | None, Any]:
        """Return the exception and the value, and forget them."""
        taken = self.error, self.value
        self.error = self.value = None
        return taken

    @property
    def empty(self) -> bool:
        """Whether the caller only asked to go on."""
        return self.error is None and self.value is None


class Steps:
    """One call of a generator (for ``yield from``) or of a coroutine (for ``await``).

    The call is current only while its body runs: what others do on this thread between two steps
    is no part of it, and every step may come from another context.
    """

    def __init__(self, recorder: Recorder, sinks: tuple[Sink, ...], call: SteppedCall) -> None:
        self._recorder = recorder
        self._sinks = sinks
        self._watching = tuple(sink for sink in sinks if isinstance(sink, SteppedSink))
        self._call = call

    def __iter__(self) -> Iterator[Any]:
        self._call.items = 0
        return self._whole(self._call)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._whole(None)

    def _whole(self, counted: SteppedCall | None) -> Generator[Any, Any, Any]:
        call = self._call
        self._tell("started")
        try:
            body = call.api.function(*call.args, **call.kwargs)
            result = yield from self._run(body, counted)
        except BaseException as error:
            self._tell_raised(error)
            raise
        self._tell_returned(result)
        return result

    def _run(
        self, body: Generator[Any, Any, Any], counted: SteppedCall | None = None
    ) -> Generator[Any, Any, Any]:
        """Run a body to its end as ``yield from`` does."""
        answer = _Answer()
        while True:
            done, value = self._step(body, answer)
            if done:
                return value
            self._stopped(counted)
            with answer:
                answer.value = yield value
            self._goes_on(answer, counted)

    def _step(self, body: Generator[Any, Any, Any], answer: _Answer) -> tuple[bool, Any]:
        """Run a body to where it stops; return whether that is its end, and what it gave."""
        recorder, call = self._recorder, self._call
        error, value = answer.take()
        token = recorder.current.set(call)
        begin = time.perf_counter()
        try:
            try:
                given = False, body.send(value) if error is None else body.throw(error)
            except StopIteration as end:
                given = True, end.value
            recorder.settle()
        finally:
            call.seconds += time.perf_counter() - begin
            token.var.reset(token)
        return given

    def _stopped(self, counted: SteppedCall | None) -> None:
        if counted is not None:
            counted.items = (counted.items or 0) + 1
        self._recorder.tell(self._watching, "suspended", self._call)

    def _goes_on(self, answer: _Answer, counted: SteppedCall | None) -> None:
        if isinstance(answer.error, GeneratorExit):
            self._call.closed = True
        elif counted is not None and not answer.empty:
            counted.answered = True
        self._recorder.tell(self._watching, "resumed", self._call)

    def _tell_returned(self, result: object) -> None:
        self._tell("returned", result)
        self._call.forget()

    def _tell_raised(self, error: BaseException) -> None:
        """Tell of an exception, unless it is how a body ends that was told to."""
        if self._call.closed and isinstance(error, GeneratorExit):
            self._tell_returned(None)
        else:
            self._tell("raised", error)
            self._call.forget()

    def _tell(self, event: str, *facts: object) -> None:
        self._recorder.tell(self._sinks, event, self._call, *facts)


class Stream(Steps):
    """One call of an asynchronous generator, with the methods of one."""

    def __init__(self, recorder: Recorder, sinks: tuple[Sink, ...], call: SteppedCall) -> None:
        super().__init__(recorder, sinks, call)
        call.items = 0
        self._body: AsyncGeneratorType[Any, Any] | None = None

    async def asend(self, value: object) -> Any:  # noqa: ANN401 - whatever the api yields
        """Run the body to its next item."""
        if self._body is None:
            self._tell("started")
        else:
            self._goes_on(_Answer(value), self._call)
        return await self._item("asend", value)

    async def athrow(self, error: BaseException) -> Any:  # noqa: ANN401 - whatever the api yields
        """Raise an exception where the body waits, and run it to its next item."""
        self._goes_on(_Answer(error=error), self._call)
        return await self._item("athrow", error)

    async def aclose(self) -> None:
        """Let the body end where it waits."""
        if self._body is None or self._body.ag_frame is None:
            return  # it has ended of itself
        self._goes_on(_Answer(error=GeneratorExit()), self._call)
        await self._awaited("aclose")
        self._tell_returned(None)

    async def _item(self, method: str, answer: object) -> Any:  # noqa: ANN401 - see asend
        item = await self._awaited(method, answer)
        self._stopped(self._call)
        return item

    async def _awaited(self, method: str, *answer: object) -> Any:  # noqa: ANN401 - see asend
        call = self._call
        try:
            if self._body is None:
                self._body = call.api.function(*call.args, **call.kwargs)
            step = getattr(self._body, method)(*answer)
            return await _awaitable(self._run(step.__await__()))
        except StopAsyncIteration:
            self._tell_returned(None)
            raise
        except BaseException as error:
            self._tell_raised(error)
            raise


@types.coroutine
def _awaitable(steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    return (yield from steps)

"""Generators and coroutines are recorded while their bodies run, and change in nothing."""

import asyncio
import contextvars
import gc
import inspect
import types
import weakref

import pytest
import torch
from recording_samples import Recording

from kernlib import dump


@pytest.fixture
def recording(tmp_path):
    return Recording(tmp_path)


def status(recording, number):
    return recording.call(number).status


def rows(recording, seen=None):
    """Return a generator api that records what it is answered, and doubles rows in place."""

    def rows(x):
        """Yield rows."""
        try:
            for row in x:
                row.mul_(2)
                answer = yield row
                if seen is not None:
                    seen.append(answer)
        except KeyError as error:
            seen.append(error)
            yield "caught"
        return x.shape[0]

    return recording.api(rows)


def test_decorated_functions_are_of_the_kind_they_were(recording):
    def generator():
        yield

    async def coroutine():
        pass

    async def asynchronous():
        yield

    kinds = {
        generator: inspect.isgeneratorfunction,
        coroutine: inspect.iscoroutinefunction,
        asynchronous: inspect.isasyncgenfunction,
    }
    for function, is_kind in kinds.items():
        recorded = recording.api(function)
        assert recorded is not function
        assert is_kind(recorded)
        assert [kind(recorded) for kind in kinds.values()].count(True) == 1
    assert asyncio.iscoroutinefunction(recording.api(coroutine))


def test_a_generator_begins_with_its_first_step_and_ends_with_its_last(recording):
    x = torch.arange(4.0).view(2, 2)
    body = rows(recording)(x)
    assert not recording.folder.exists(), "nothing of it has run"
    assert next(body).tolist() == [0, 2]
    assert status(recording, 1) == "suspended"
    assert recording.arguments(1)["x"].tolist() == [[0, 1], [2, 3]]
    next(body)
    with pytest.raises(StopIteration) as end:
        next(body)
    assert end.value.value == 2
    call = recording.call(1)
    assert (call.status, call.result) == ("returned", dump.IntNode(2))
    assert call.yielded == dump.Yielded(items=2)
    (piece,) = dump.read_outputs(recording.entries()[1].path, call)
    assert piece.data.view(torch.float32).tolist() == [0, 2, 4, 6]
    assert {"items=2", "result=2"} <= set(recording.lines()[-1].split())


def test_while_a_body_runs_its_capsule_says_so(recording):
    seen = []

    def work():
        for _ in range(2):
            seen.append(status(recording, 1))
            yield

    seen.extend(status(recording, 1) for _ in recording.api(work)())
    assert seen == ["started", "suspended"] * 2
    assert status(recording, 1) == "returned"


def test_what_is_sent_and_thrown_in_arrives_and_is_told_of(recording):
    seen = []
    body = rows(recording, seen)(torch.ones(3, 2))
    next(body)
    body.send("here")
    failure = KeyError("there")
    assert body.throw(failure) == "caught"
    assert list(body) == []
    assert seen == ["here", failure]
    assert recording.call(1).yielded == dump.Yielded(items=3, answered=True)


def test_a_generator_that_is_closed_is_neither_returned_nor_raised(recording):
    body = rows(recording)(torch.ones(3, 2))
    next(body)
    body.close()
    call = recording.call(1)
    assert (call.status, call.exception) == ("closed", None)
    assert call.yielded == dump.Yielded(items=1)
    assert "closed=True" in recording.lines()[-1]


def test_a_generator_that_is_dropped_is_closed(recording):
    for _ in rows(recording)(torch.ones(3, 2)):
        break
    gc.collect()
    assert status(recording, 1) == "closed"


def test_a_generator_may_end_in_its_own_way_when_it_is_closed(recording):
    left = []

    def stubborn():
        try:
            yield
        finally:
            left.append("cleaned up")

    def failing():
        try:
            yield
        except GeneratorExit:
            raise ValueError("not now") from None

    def unwilling():
        try:
            yield 1
        except GeneratorExit:
            yield 2

    body = recording.api(stubborn)()
    next(body)
    body.close()
    assert left == ["cleaned up"]
    body = recording.api(failing)()
    next(body)
    with pytest.raises(ValueError, match="not now"):
        body.close()
    body = recording.api(unwilling)()
    next(body)
    with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
        body.close()
    assert [status(recording, number) for number in (1, 2)] == ["closed", "raised"]


def test_an_exception_of_a_body_reaches_the_caller_unchanged(recording):
    failure = KeyError("page")

    def work():
        yield 1
        raise failure

    body = recording.api(work)()
    next(body)
    with pytest.raises(KeyError) as caught:
        next(body)
    assert caught.value is failure
    assert recording.call(1).exception.type == "KeyError"
    with pytest.raises(StopIteration):
        next(body)


def test_wrong_arguments_are_told_with_the_first_step(recording):
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrong'"):
        next(rows(recording)(wrong=1))
    assert recording.call(1).exception.type == "TypeError"


def test_calls_between_the_steps_of_a_body_are_no_part_of_it(recording):
    inner = recording.api(torch_add)

    def outer(n):
        for at in range(n):
            yield inner(at, at)

    for item in recording.api(outer)(2):
        inner(item, 1)
    parents = {number: entry.parent for number, entry in recording.entries().items()}
    assert parents == {1: None, 2: 1, 3: None, 4: 1, 5: None}


def torch_add(x, y):
    return x + y


def interleaved(recording):
    """Run coroutines in turns on one thread; return what each saw as its own number."""
    inner = recording.api(torch_add)

    @recording.api
    async def middle(x, pauses):
        for _ in range(pauses):
            await asyncio.sleep(0)
        return inner(x, x)

    @recording.api
    async def outer(x, pauses):
        await asyncio.sleep(0)
        first = await middle(x, pauses)
        return first + inner(x, 0)

    async def main():
        return await asyncio.gather(*(outer(at, 3 - at) for at in range(3)))

    return asyncio.run(main())


def test_coroutines_that_take_turns_keep_their_calls_apart(recording):
    assert interleaved(recording) == [0, 3, 6]
    calls = {number: recording.call(number) for number in recording.entries()}
    assert len(calls) == 12
    assert {call.status for call in calls.values()} == {"returned"}
    for call in calls.values():
        if call.parent is not None:
            mine, above = (recording.arguments(n)["x"] for n in (call.sequence, call.parent))
            assert mine == above
    parents = {call.api: calls[call.parent].api for call in calls.values() if call.parent}
    assert parents["middle"] == "outer"
    assert {calls[call.parent].api for call in calls.values() if call.api == "torch_add"} == {
        "middle", "outer",
    }  # fmt: skip


class Turn:
    """Waits once, whatever drives it."""

    def __await__(self):
        return (yield)


def test_coroutines_driven_by_hand_in_one_context_keep_their_calls_apart(recording):
    inner = recording.api(torch_add)

    @recording.api
    async def work(x):
        await Turn()
        inner(x, 0)
        await Turn()
        return x

    bodies = [work(at) for at in range(2)]
    for _ in range(2):
        for body in bodies:
            body.send(None)
    inner(9, 9)
    for at, body in enumerate(bodies):
        with pytest.raises(StopIteration) as end:
            body.send(None)
        assert end.value.value == at
    parents = {number: entry.parent for number, entry in recording.entries().items()}
    assert parents == {1: None, 2: None, 3: 1, 4: 2, 5: None}


def test_a_coroutine_may_go_on_in_another_context(recording):
    inner = recording.api(torch_add)

    @recording.api
    async def work(x):
        await Turn()
        return inner(x, x)

    body = work(1)
    contextvars.copy_context().run(body.send, None)
    with pytest.raises(StopIteration):
        contextvars.copy_context().run(body.send, None)
    assert recording.recorder.failures == {}
    assert [entry.parent for entry in recording.entries().values()] == [None, 1]


def test_a_cancelled_coroutine_raised_and_a_closed_one_was_closed(recording):
    @recording.api
    async def wait():
        await asyncio.sleep(60)

    async def main():
        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        assert status(recording, 1) == "suspended"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    body = asyncio_free(recording)()
    body.send(None)
    body.close()
    assert recording.call(1).exception.type == "CancelledError"
    assert [status(recording, number) for number in (1, 2)] == ["raised", "closed"]


def test_a_task_made_in_a_call_keeps_nothing_of_it_alive(recording):
    """Each call leaves a task whose context knows it: neither arguments nor calls pile up."""
    passed, calls = [], []

    @recording.api
    async def relay(x, left):
        passed.append(weakref.ref(x))
        calls.append(recording.recorder.current.get())
        if left:
            return asyncio.ensure_future(relay(torch.ones(2), left - 1))
        return None

    @recording.api
    def start():
        return asyncio.ensure_future(relay(torch.ones(2), 3))

    async def main():
        task, tasks = start(), []
        while task is not None:
            tasks.append(task)
            task = await task
        gc.collect()
        return [reference() for reference in passed]

    assert asyncio.run(main()) == [None] * 4
    assert [entry.parent for entry in recording.entries().values()] == [None, 1, 2, 3, 4]
    assert [call.parent for call in calls] == [None] * 4


def asyncio_free(recording):
    @recording.api
    async def wait():
        await Turn()

    return wait


def test_what_never_began_left_nothing(recording):
    rows(recording)(torch.ones(1))
    with pytest.warns(RuntimeWarning, match="wait' was never awaited"):
        asyncio_free(recording)()
    assert not recording.folder.exists()


def test_what_never_ended_is_suspended(recording):
    """No capsule says of a body that waits that it was running when its process ended."""
    body = rows(recording)(torch.ones(3, 2))
    next(body)
    waiting = asyncio_free(recording)()
    waiting.send(None)
    recording.api(torch_add)(1, 2)
    found = {entry.api: entry.status for entry in recording.entries().values()}
    assert found == {"rows": "suspended", "wait": "suspended", "torch_add": "returned"}
    waiting.close()


def counting(recording, seen):
    @recording.api
    async def counting(n):
        for at in range(n):
            await asyncio.sleep(0)
            try:
                seen.append((yield at))
            except KeyError as error:
                seen.append(error)
                yield "caught"

    return counting


def test_an_asynchronous_generator_gives_and_takes_as_before(recording):
    seen, failure = [], KeyError("there")

    async def main():
        assert [item async for item in counting(recording, seen)(2)] == [0, 1]
        body = counting(recording, seen)(3)
        assert await body.asend(None) == 0
        assert await body.asend("here") == 1
        assert await body.athrow(failure) == "caught"
        await body.aclose()
        with pytest.raises(StopAsyncIteration):
            await body.asend(None)

    asyncio.run(main())
    assert seen == [None, None, "here", failure]
    calls = [recording.call(number) for number in (1, 2)]
    assert [call.status for call in calls] == ["returned", "closed"]
    assert [call.yielded for call in calls] == [
        dump.Yielded(items=2), dump.Yielded(items=3, answered=True),
    ]  # fmt: skip


def test_an_asynchronous_generator_is_suspended_between_its_items(recording):
    async def main():
        body = counting(recording, [])(2)
        await body.asend(None)
        assert status(recording, 1) == "suspended"
        recording.api(torch_add)(1, 2)
        await body.aclose()

    asyncio.run(main())
    assert [entry.parent for entry in recording.entries().values()] == [None, None]
    assert status(recording, 1) == "closed"


def test_a_dropped_asynchronous_generator_is_closed_by_its_loop(recording):
    async def main():
        async for _ in counting(recording, [])(2):
            break
        gc.collect()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(main())
    assert status(recording, 1) == "closed"


def test_an_exception_of_an_asynchronous_generator_is_recorded_once(recording):
    @recording.api
    async def failing():
        yield 1
        raise KeyError("page")

    async def main():
        with pytest.raises(KeyError):
            async for _ in failing():
                pass

    asyncio.run(main())
    assert recording.call(1).exception.type == "KeyError"
    assert [line.split()[2] for line in recording.lines()] == ["call", "raise"]


def test_a_generator_that_is_awaited_stays_one(recording):
    @recording.api
    @types.coroutine
    def wait(x):
        yield
        return x

    async def main():
        return await wait(3)

    assert asyncio.run(main()) == 3
    assert status(recording, 1) == "returned"


def test_methods_of_every_kind_are_recorded_with_their_receiver(recording):
    class Model:
        @recording.api
        def __init__(self, size):
            self.size = size

        @recording.api
        def rows(self, x):
            yield from x[: self.size]

        @recording.api
        async def run(self, x):
            return x[self.size]

    model, x = Model(2), torch.arange(3.0)
    assert list(model.rows(x)) == [0, 1]
    assert asyncio.run(model.run(x)) == 2
    assert [recording.call(number).receiver.id for number in (1, 2, 3)] == [1, 1, 1]

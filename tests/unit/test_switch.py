"""A function whose code is exchanged is the same function to everybody but its caller's watcher."""

import abc
import asyncio
import copy
import functools
import inspect
import pickle
import threading
import types
import typing

import pytest

from kernlib.logging._switch import Switch, forwarding


class Watched:
    """A function that hands its calls over, and the calls that came."""

    def __init__(self, function, body=None):
        self.switch = Switch(function, body)
        self.calls = []

    def __enter__(self):
        body = self.switch.body

        def enter(args, kwargs):
            self.calls.append((args, kwargs))
            return body(*args, **kwargs)

        self.switch.divert(enter)
        return self.calls

    def __exit__(self, *_):
        self.switch.restore()


def sample(first, /, second=2, *rest, named=3, **others):
    """Return what came in."""
    return first, second, rest, named, others


def bound_before():
    """Return a class with every kind of method, made anew for each test."""

    class Base:
        def method(self, x):
            return type(self).__name__, x

        @staticmethod
        def static(x):
            return x

        @classmethod
        def of_class(cls, x):
            return cls.__name__, x

    class Derived(Base):
        def method(self, x):
            return (*super().method(x), __class__.__name__)

    return Base, Derived


def test_every_name_of_a_function_is_switched_at_once():
    def work(x, scale=2):
        return x * scale

    alias, part = work, functools.partial(work, 5)

    class Holder:
        kept = staticmethod(work)

        def default(self, function=work):
            return function(4)

    with Watched(work) as calls:
        assert [work(1), alias(2), part(), Holder.kept(3), Holder().default()] == [2, 4, 10, 6, 8]
        assert [args for args, _ in calls] == [(1,), (2,), (5,), (3,), (4,)]
    assert alias(2) == 4
    assert len(calls) == 5


def test_off_nothing_of_a_function_is_other_than_before():
    def facts():
        names = ("__code__", "__defaults__", "__kwdefaults__", "__closure__", "__annotations__")
        return [getattr(sample, name) for name in names], dict(sample.__dict__)

    before = facts()
    with Watched(sample):
        assert facts() != before
    assert facts() == before


def test_arguments_arrive_as_they_were_passed():
    with Watched(sample) as calls:
        assert sample(1) == (1, 2, (), 3, {})
        assert sample(1, 5, 6, named=7, other=8) == (1, 5, (6,), 7, {"other": 8})
        assert sample(1, first=9, args=1, kwargs=2, self=3)[4] == {
            "first": 9, "args": 1, "kwargs": 2, "self": 3,
        }  # fmt: skip
        with pytest.raises(TypeError, match="sample"):
            sample()
    assert calls[0] == ((1,), {})


def test_what_a_function_tells_of_itself_stays():
    def told():
        return (
            str(inspect.signature(sample)), inspect.getfullargspec(sample),
            inspect.getsource(sample), typing.get_type_hints(sample), sample.__doc__,
            sample.__name__, sample.__qualname__, sample.__module__, pickle.dumps(sample),
            copy.copy(sample) is sample,
        )  # fmt: skip

    before = told()
    with Watched(sample):
        assert told() == before
        assert pickle.loads(pickle.dumps(sample)) is sample  # noqa: S301 - its own
    assert told() == before


def test_closures_hold_and_go_on_being_shared():
    def counter(_args, _kernlib_enter):
        count = 0

        def step(by):
            nonlocal count
            count += by
            return count, _args, _kernlib_enter

        return step

    step = counter("a", "b")
    assert step(1) == (1, "a", "b")
    with Watched(step):
        assert step(1) == (2, "a", "b")
    assert step(1) == (3, "a", "b")


@pytest.mark.parametrize("name", ["method", "static", "of_class"])
def test_methods_are_switched_for_objects_that_hold_them_bound(name):
    base, _ = bound_before()
    held = getattr(base(), name)
    function = vars(base)[name]
    with Watched(getattr(function, "__func__", function)) as calls:
        held(1)
        getattr(base, name)(*([base()] if name == "method" else []), 2)
    held(3)
    assert [args[-1] for args, _ in calls] == [1, 2]


def test_overrides_and_super_go_their_own_ways():
    base, derived = bound_before()
    with Watched(base.method) as calls:
        assert base().method(1) == ("Base", 1)
        assert derived().method(2) == ("Derived", 2, "Derived")
    assert len(calls) == 2
    with Watched(derived.method) as calls:
        assert base().method(1) == ("Base", 1)
        assert derived().method(2) == ("Derived", 2, "Derived")
    assert len(calls) == 1


def test_recursion_hands_every_level_over():
    def factorial(n):
        return 1 if n < 2 else n * factorial(n - 1)

    with Watched(factorial) as calls:
        assert factorial(5) == 120
    assert len(calls) == 5


def test_abstract_methods_stay_abstract():
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self):
            return 1

    class Square(Shape):
        def area(self):
            return super().area() + 3

    with Watched(Shape.area) as calls:
        assert Shape.area.__isabstractmethod__
        with pytest.raises(TypeError, match="abstract"):
            Shape()
        assert Square().area() == 4
    assert len(calls) == 1
    assert Shape.area.__isabstractmethod__


def test_a_decorated_function_keeps_its_inner_one():
    def inner(x: int) -> int:
        return x

    @functools.wraps(inner)
    def outer(*args):
        return inner(*args) + 1

    before = str(inspect.signature(outer))
    with Watched(outer) as calls:
        assert outer(1) == 2
        assert str(inspect.signature(outer)) == before
    assert outer.__wrapped__ is inner
    assert len(calls) == 1


def test_attributes_that_are_set_meanwhile_stay():
    def work():
        return work.state

    with Watched(work):
        work.state = 5
        assert work() == 5
    assert work() == 5
    assert vars(work) == {"state": 5}


def test_an_exception_and_its_traceback_name_the_function():
    def fails():
        raise KeyError("here")

    with Watched(fails), pytest.raises(KeyError, match="here") as caught:
        fails()
    assert caught.traceback[-1].path.name == "test_switch.py"


def test_generators_are_generators_and_hear_all_they_are_told():
    def steps(n):
        got = yield n
        try:
            yield got
        except KeyError:
            yield "caught"
        return "end"

    def use():
        made = steps(1)
        heard = [next(made), made.send("sent"), made.throw(KeyError("x"))]
        with pytest.raises(StopIteration) as end:
            next(made)
        return [*heard, end.value.value]

    with Watched(steps) as calls:
        assert inspect.isgeneratorfunction(steps)
        assert use() == [1, "sent", "caught", "end"]
    assert len(calls) == 1
    assert use() == [1, "sent", "caught", "end"]


def test_coroutines_are_coroutines():
    async def add(x):
        await asyncio.sleep(0)
        return x + 1

    @types.coroutine
    def old_style():
        yield
        return 3

    async def use():
        return await add(1), await old_style()

    with Watched(add) as calls, Watched(old_style) as old_calls:
        assert inspect.iscoroutinefunction(add)
        assert asyncio.run(use()) == (2, 3)
    assert (len(calls), len(old_calls)) == (1, 1)
    assert asyncio.run(use()) == (2, 3)


def test_asynchronous_generators_hear_all_they_are_told_and_end_with_their_caller():
    ended = []

    async def steps(n):
        try:
            got = yield n
            try:
                yield got
            except KeyError:
                yield "caught"
            yield "last"
        finally:
            ended.append(n)

    async def use():
        made = steps(1)
        heard = [await made.__anext__(), await made.asend("sent"), await made.athrow(KeyError())]
        await made.aclose()
        whole = [item async for item in steps(2)]
        broken = steps(3)
        await broken.__anext__()
        with pytest.raises(ValueError, match="mine"):
            await broken.athrow(ValueError("mine"))
        return heard, whole

    expected = [1, "sent", "caught"], [2, None, "last"]
    with Watched(steps) as calls:
        assert inspect.isasyncgenfunction(steps)
        assert asyncio.run(use()) == expected
        assert ended == [1, 2, 3]
    assert len(calls) == 3
    assert asyncio.run(use()) == expected


def test_a_thread_inside_finishes_what_it_has_begun():
    entered, go_on, results = threading.Event(), threading.Event(), []

    def work(x):
        entered.set()
        assert go_on.wait(30)
        return x

    thread = threading.Thread(target=lambda: results.append(work("old")))
    thread.start()
    assert entered.wait(30)
    with Watched(work) as calls:
        go_on.set()
        thread.join()
        assert (results, calls) == (["old"], [])
        assert work("new") == "new"
    assert len(calls) == 1


def test_calls_go_on_while_another_thread_switches():
    """No call may meet a function that is half exchanged."""

    def work(x, *, named=1):
        return x + named

    stop, wrong = threading.Event(), []

    def call():
        while not stop.is_set():
            wrong.extend(x for x in range(100) if work(x) != x + 1)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        with Watched(work):
            work(1)
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_has_no_code_is_called_by_a_function_that_has():
    @functools.lru_cache
    def cached(x):
        return x * 2

    public = forwarding(cached)
    assert public(2) == 4
    with Watched(public, cached) as calls:
        assert public(3) == 6
    assert calls == [((3,), {})]
    assert public(4) == 8


def test_code_that_another_tool_has_put_there_stays():
    def work():
        return "own"

    def reloaded():
        return "reloaded"

    with Watched(work) as calls:
        work.__code__ = reloaded.__code__
        assert work() == "reloaded"
    assert calls == []
    assert work() == "reloaded"
    assert "__wrapped__" not in vars(work)


def test_defaults_that_change_between_two_times_count():
    def work(x=1, *, y=1):
        return x, y

    watched = Watched(work)
    with watched:
        assert work() == (1, 1)
    work.__defaults__, work.__kwdefaults__ = (2,), {"y": 2}
    with watched:
        assert work() == (2, 2)
    assert work() == (2, 2)

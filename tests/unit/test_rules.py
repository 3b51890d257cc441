"""Rules skip calls by count: all sinks alike, the api unchanged, set-up calls never."""

import asyncio
import sys
import threading

import pytest
import torch
from recording_samples import Recording

from kernlib import dump
from kernlib._registry import Api
from kernlib.config import Config, Level
from kernlib.logging import CallRules, Recorder, recorded
from kernlib.logging._rules import _MOST_SHAPES
from kernlib.logging._shapes import shapes_of


def double(x, **_):
    return x * 2


class Fake:
    """A sink that keeps the numbers of the calls it is handed, and of their parents."""

    def __init__(self):
        self.parents = {}
        self.ended = []

    def wants(self, _api):
        return True

    def started(self, call):
        self.parents[call.sequence] = call.parent and call.parent.sequence

    def returned(self, call, _result):
        self.ended.append(call.sequence)

    raised = returned

    def failed(self):
        raise AssertionError("no step of this sink fails")


class Ruled:
    """Functions recorded into a fake sink under rules."""

    def __init__(self, **settings):
        self.sink = Fake()
        self.rules = CallRules.of(Config(**settings))
        self.recorder = Recorder([self.sink], rules=self.rules)

    def api(self, function, **facts):
        return recorded(function, Api(function.__name__, function, **facts), self.recorder)

    @property
    def calls(self):
        return list(self.sink.parents)


def test_without_rules_there_is_nothing_to_ask():
    assert CallRules.of(Config()) is None
    assert Ruled().recorder._rules is None


def test_every_nth_call_of_each_api_is_recorded():
    ruled = Ruled(every=3)
    first, second = ruled.api(double), ruled.api(lambda x: x + 1)
    assert [first(at) for at in range(7)] == [0, 2, 4, 6, 8, 10, 12]
    assert [second(at) for at in range(2)] == [1, 2]
    assert ruled.calls == [1, 4, 7, 8]
    assert ruled.rules.skipped == 5


def test_nothing_is_recorded_before_the_call_asked_for():
    """The number is the process's: it counts the calls of all apis, recorded or not."""
    ruled = Ruled(from_call=4)
    first, second = ruled.api(double), ruled.api(lambda x: x + 1)
    for call in (first, second, first, second, first):
        call(1)
    assert ruled.calls == [4, 5]
    assert ruled.rules.skipped == 3


def test_the_first_calls_of_each_shape_and_dtype_are_recorded():
    ruled = Ruled(first_per_shape=2)
    call = ruled.api(double)
    small, large = torch.ones(2), torch.ones(3)
    for x in (small, large, small, small, large, large, small.to(torch.int32), small):
        call(x)
    assert ruled.calls == [1, 2, 3, 5, 7]


def test_rules_stand_in_a_row_and_count_what_those_before_let_through():
    ruled = Ruled(from_call=4, every=3, first_per_shape=2)
    call = ruled.api(double)
    for _ in range(20):
        call(torch.ones(2))
    assert ruled.calls == [4, 7]
    call(torch.ones(2))
    call(torch.ones(3))
    assert ruled.calls == [4, 7, 22]


def test_set_up_calls_always_pass_and_are_not_counted():
    ruled = Ruled(from_call=100, every=100, first_per_shape=1)
    plan = ruled.api(double, setup=True)
    assert [plan(1), plan(1)] == [2, 2]
    assert ruled.calls == [1, 2]
    assert ruled.rules.skipped == 0


def test_a_call_inside_a_skipped_one_belongs_to_the_recorded_one_around_it():
    ruled = Ruled(every=2)
    inner = ruled.api(double)

    def middle(x):
        return inner(x) + inner(x)

    middle = ruled.api(middle)

    def outer(x):
        return middle(x) + middle(x) + inner(x)

    assert ruled.api(outer)(1) == 10
    # 1 outer: 2 middle: 3 and 4 double; 5 middle: 6 and 7 double; 8 double
    assert ruled.sink.parents == {1: None, 2: 1, 3: 2, 6: 1, 8: 1}
    assert ruled.rules.skipped == 3


def test_a_call_whose_callers_were_all_skipped_has_no_parent():
    ruled = Ruled(from_call=2)
    inner = ruled.api(double)

    def outer(x):
        return inner(x)

    assert ruled.api(outer)(1) == 2
    assert ruled.sink.parents == {2: None}


def test_a_skipped_call_raises_what_the_api_raises():
    failure = KeyError("page")

    def work():
        raise failure

    with pytest.raises(KeyError) as caught:
        Ruled(from_call=2).api(work)()
    assert caught.value is failure


def test_generators_and_coroutines_are_skipped_whole():
    ruled = Ruled(every=2)

    def numbers(count):
        got = yield from range(count)
        return got

    async def add(x):
        await asyncio.sleep(0)
        return x + 1

    async def stream(count):
        for at in range(count):
            yield at

    numbers, add, stream = ruled.api(numbers), ruled.api(add), ruled.api(stream)

    async def collected():
        return [item async for item in stream(3)]

    for _ in range(2):
        assert list(numbers(3)) == [0, 1, 2]
        assert asyncio.run(add(1)) == 2
        assert asyncio.run(collected()) == [0, 1, 2]
    assert sorted(ruled.calls) == sorted(ruled.sink.ended) == [1, 2, 3]
    assert ruled.rules.skipped == 3


def test_lines_and_dumps_are_skipped_alike(tmp_path):
    recording = Recording(tmp_path, every=3)
    call = recording.api(double)
    for _ in range(7):
        call(torch.ones(2))
    assert sorted(recording.entries()) == [1, 4, 7]
    begun = [line.split()[3] for line in recording.lines() if " kernlib call " in line]
    assert begun == ["#1", "#4", "#7"]


def test_the_session_tells_how_many_calls_were_skipped(tmp_path):
    recording = Recording(tmp_path, every=3)
    call = recording.api(double)
    for _ in range(8):
        call(torch.ones(2))
    recording.recorder._sinks[1]._sessions.made.note_skipped()
    recording.recorder._sinks[1]._sessions.made.session.close()
    assert dump.read_session(recording.session).dropped == dump.Dropped(skipped=5)


def test_a_chain_is_whole_although_its_runs_are_skipped(tmp_path):
    recording = Recording(tmp_path, log_level=Level.DUMP, from_call=4)

    class Planner:
        @recording.api
        def __init__(self, size):
            self.size = size

        @recording.api
        def run(self, x):
            return x + self.size

    made = Planner(2)
    assert [made.run(at) for at in range(4)] == [2, 3, 4, 5]
    assert sorted(recording.entries()) == [1, 4, 5]
    assert recording.call(5).receiver.id == 1


def test_the_table_of_shapes_is_bounded_and_counts_what_it_forgets():
    rules = CallRules.of(Config(first_per_shape=1))
    api = Api("double", double)

    def admit(size):
        return rules.admit(1, api, (torch.empty(size, device="meta"),), {})

    assert all(admit(size) for size in range(_MOST_SHAPES))
    assert not admit(0), "it was seen, and from now on is the last to be forgotten"
    assert admit(_MOST_SHAPES)
    assert (rules.forgotten, len(rules._seen)) == (1, _MOST_SHAPES)
    assert not admit(0)
    assert admit(1), "it made room, so it is new again"


def test_threads_never_record_less_than_asked_for():
    ruled = Ruled(first_per_shape=3, every=2)
    call = ruled.api(double)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(target=lambda: [call(torch.ones(2)) for _ in range(200)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert 3 <= len(ruled.calls) <= 3 + len(threads)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ((torch.ones(2),), (torch.zeros(2),), True),
        ((torch.ones(2),), (torch.ones(1, 2),), False),
        ((torch.ones(2),), (torch.ones(2).double(),), False),
        ((torch.ones(2), 1), (torch.ones(2), 7), True),
        ((torch.ones(2), None), (None, torch.ones(2)), False),
        (([torch.ones(2)],), ([torch.ones(2)] * 2,), False),
        (({"a": (torch.ones(2),)},), ({"a": (torch.ones(2),)},), True),
        ((torch.nn.Parameter(torch.ones(2)),), (torch.nn.Parameter(torch.ones(3)),), False),
        ((torch.ones(2), object()), (torch.ones(2), {1, 2}), True),
    ],
)
def test_what_makes_two_calls_alike(one, other, same):
    assert (shapes_of(one, {}) == shapes_of(other, {})) is same
    assert (shapes_of((), {"x": one}) == shapes_of((), {"x": other})) is same
    assert shapes_of((), {"x": one}) != shapes_of((), {"y": one})


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_tensor_without_a_shape_is_no_obstacle():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert shapes_of((nested,), {}) == 0
    ruled = Ruled(first_per_shape=1)
    call = ruled.api(lambda x: x)
    assert call(nested) is nested
    assert call(nested) is nested
    assert ruled.calls == [1]

"""A receiver's set-up calls stay with it; filters, budgets and lost devices do as they say."""

import gc
import logging

import pytest
import torch
from recording_samples import Recording

from kernlib import dump
from kernlib.replay._select import select

ILLEGAL = "CUDA error: an illegal memory access was encountered\nCompile with TORCH_USE_CUDA_DSA"


@pytest.fixture
def recording(tmp_path):
    return Recording(tmp_path)


def planner(recording):
    """Return a class as PagedDecode is: made, planned, run."""

    class Planner:
        @recording.api
        def __init__(self, size):
            self.size = size

        @recording.api(setup=True)
        def plan(self, indices):
            self.indices = indices

        @recording.api
        def run(self, x):
            return x[self.indices]

    return Planner


def numbers(*values):
    return torch.tensor(values, dtype=torch.int32)


def test_the_calls_on_a_receiver_share_its_number(recording):
    first = planner(recording)(4)
    first.plan(numbers(1, 0))
    second = planner(recording)(5)
    first.run(torch.arange(4.0))
    ids = [recording.call(number).receiver.id for number in range(1, 5)]
    assert ids == [1, 1, 3, 1]
    assert [entry.setup for entry in recording.entries().values()] == [True, True, True, False]
    receiver = recording.call(4).receiver
    assert (receiver.class_name.rpartition(".")[2], receiver.state["size"].value) == ("Planner", 4)
    assert recording.call(1).receiver.state == {}
    del second


def test_the_state_is_recorded_with_its_memory_before_the_run(recording):
    made = planner(recording)(4)
    made.plan(numbers(1, 0))
    made.run(torch.arange(4.0))
    call = recording.call(3)
    views = dump.input_views(call, state=True)
    pieces = dump.read_inputs(recording.entries()[3].path, call)
    tensors = dump.rebuild(call.storages, views, pieces)
    assert dump.decode(call.receiver.state["indices"], tensors).tolist() == [1, 0]


def test_a_recorded_object_as_an_argument_is_known_by_its_number(recording):
    def use(made, other):
        return made.size, other

    made = planner(recording)(4)
    recording.api(use)(made, object())
    arguments = recording.call(2).arguments.args
    assert arguments[0] == dump.ReceiverNode(1)
    assert isinstance(arguments[1], dump.OpaqueNode)


def test_budgets_keep_the_set_up_calls_of_a_living_receiver(tmp_path):
    recording = Recording(tmp_path, dump_max_calls=2)
    made = planner(recording)(4)
    made.plan(numbers(0))
    for _ in range(5):
        made.run(torch.ones(4))
    assert sorted(recording.entries()) == [1, 2, 6, 7]


def test_a_later_plan_lets_the_earlier_one_go(tmp_path):
    recording = Recording(tmp_path, dump_max_calls=1)
    made = planner(recording)(4)
    for at in range(3):
        made.plan(numbers(at))
        made.run(torch.ones(4))
    assert sorted(recording.entries()) == [1, 6, 7]
    assert recording.arguments(6)["indices"].tolist() == [2]


def test_a_plan_that_raised_does_not_replace_the_one_before(tmp_path):
    recording = Recording(tmp_path, dump_max_calls=1)

    class Planner:
        @recording.api(setup=True)
        def plan(self, good):
            assert good

        @recording.api
        def run(self):
            return 1

    made = Planner()
    made.plan(good=True)
    with pytest.raises(AssertionError):
        made.plan(good=False)
    made.run()
    assert sorted(recording.entries()) == [1, 3]


def test_a_receivers_death_lets_its_set_up_calls_go(tmp_path):
    recording = Recording(tmp_path, dump_max_calls=1)
    made = planner(recording)(4)
    made.plan(numbers(0))
    del made
    gc.collect()
    work = recording.api(torch_add)
    work(1, 2)
    work(1, 2)
    assert sorted(recording.entries()) == [4]


def torch_add(x, y):
    return x + y


def test_an_object_at_the_address_of_a_dead_one_gets_a_number_of_its_own(recording):
    kind = planner(recording)
    for at in range(20):
        kind(at)
    assert [call.receiver.id for call in map(recording.call, range(1, 21))] == [*range(1, 21)]


def test_a_subclass_that_calls_the_init_of_its_base_keeps_one_receiver(tmp_path):
    recording = Recording(tmp_path, dump_max_calls=1)

    class Child(planner(recording)):
        @recording.api
        def __init__(self, size):
            super().__init__(size)
            self.extra = 1

    made = Child(4)
    made.plan(numbers(0))
    for _ in range(3):
        made.run(torch.ones(4))
    assert sorted(recording.entries()) == [1, 2, 3, 6]
    calls = [recording.call(number) for number in (1, 2, 3, 6)]
    assert [call.receiver.id for call in calls] == [1, 1, 1, 1]
    assert [call.parent for call in calls] == [None, 1, None, None]


def test_the_first_calls_stay_where_they_are_asked_for(tmp_path):
    recording = Recording(tmp_path, dump_keep="first", dump_max_calls=2)
    work = recording.api(torch_add)
    for at in range(5):
        assert work(at, 1) == at + 1
    assert sorted(recording.entries()) == [1, 2]


def test_the_byte_budget_holds_and_says_what_it_left_out(tmp_path):
    recording = Recording(tmp_path, dump_max_bytes=64_000)
    work = recording.api(torch_add)
    for _ in range(20):
        work(torch.ones(2000), 1)
    entries = recording.entries()
    assert 20 in entries
    used = sum(path.stat().st_size for path in recording.session.glob("0*/*"))
    assert 8_000 < used <= 64_000
    work(torch.ones(20_000), 1)
    assert 21 not in recording.entries()
    assert recording.recorder.failures == {}


def test_a_hot_api_does_not_push_out_a_rare_one(tmp_path):
    recording = Recording(tmp_path, dump_max_calls=6)
    rare = recording.api(torch_add)

    def hot(x):
        return x

    hot = recording.api(hot)
    rare(torch.ones(2), 1)
    for _ in range(20):
        hot(torch.ones(2))
    hot(torch.ones(3))
    assert sorted(recording.entries()) == [1, 18, 19, 20, 21, 22]
    assert recording.apis() == ["torch_add"] + ["hot"] * 5


def test_an_api_with_the_same_shapes_has_a_quota(tmp_path):
    recording = Recording(tmp_path, dump_max_per_shape=2)
    work = recording.api(torch_add)
    for at in range(5):
        work(torch.ones(2), at)
        work(torch.ones(3), at)
    assert sorted(recording.entries()) == [7, 8, 9, 10]


@pytest.mark.parametrize(
    ("settings", "lines", "dumps"),
    [
        ({"include": ("torch_*",)}, ["torch_add"], ["torch_add"]),
        ({"include": ("Planner.run",)}, ["run"], ["__init__", "plan", "run"]),
        ({"include": ("*.run",)}, ["run"], ["__init__", "plan", "run"]),
        ({"exclude": ("Planner.run",)}, ["__init__", "plan", "torch_add"], None),
        ({"exclude": ("Planner.*",)}, ["torch_add"], None),
        ({"exclude": ("*",)}, [], None),
        ({"include": ("Planner.*",), "exclude": ("*.plan",)}, ["__init__", "run"],
         ["__init__", "plan", "run"]),
        ({"dump_include": ("torch_*",)}, ["__init__", "plan", "run", "torch_add"], ["torch_add"]),
        ({"dump_include": ("Planner.run",)}, ["__init__", "plan", "run", "torch_add"],
         ["__init__", "plan", "run"]),
        ({"dump_exclude": ("Planner.*",)}, ["__init__", "plan", "run", "torch_add"], ["torch_add"]),
        ({"include": ("Planner.*",), "dump_include": ("torch_*",)},
         ["__init__", "plan", "run"], []),
    ],
)  # fmt: skip
def test_filters_gate_lines_and_dumps_but_for_the_set_up_of_what_they_admit(
    tmp_path, settings, lines, dumps
):
    recording = Recording(tmp_path, **settings)
    made = planner(recording)(4)
    made.plan(numbers(0))
    made.run(torch.ones(4))
    recording.api(torch_add)(1, 2)
    logged = {line.split()[4].rpartition(".")[2] for line in open_lines(recording)}
    assert sorted(logged) == sorted(lines)
    kept = [name.rpartition(".")[2] for name in recording.apis()]
    assert kept == (lines if dumps is None else dumps)


def open_lines(recording):
    lines = recording.lines() if recording.log.exists() else []
    return [line for line in lines if " kernlib call " in line]


def test_while_a_graph_is_captured_no_data_is_read(recording, monkeypatch):
    monkeypatch.setattr("kernlib.logging._recorder.is_capturing", lambda: True)

    def forbidden(*_):
        raise AssertionError("data was read")

    for place in ("dump.input_blobs", "dump.outcome"):
        monkeypatch.setattr(f"kernlib.logging._dump_sink.{place}", forbidden)
    recording.api(torch_add)(torch.ones(3), 1)
    assert recording.recorder.failures == {}
    call = recording.call(1)
    assert (call.status, call.capturing) == ("returned", True)
    assert not any(storage.segments for storage in call.storages)
    assert dump.missing_data(call) == ("x: its data was not recorded",)
    assert [path.name for path in recording.entries()[1].path.iterdir()] == ["call.json"]
    assert "capturing=True" in recording.lines()[0]


def lose_device(monkeypatch, place):
    def fail(*_):
        raise RuntimeError(ILLEGAL)

    monkeypatch.setattr(f"kernlib.logging._dump_sink.dump.{place}", fail)


def call_around_a_loss(recording, caplog, lose):
    """Record a call before the device is lost and three after it, whose results stay right."""
    work = recording.api(torch_add)
    work(torch.ones(2), 1)
    lose()
    with caplog.at_level(logging.WARNING):
        results = [work(torch.ones(2), at).tolist() for at in range(3)]
    assert results == [[1, 1], [2, 2], [3, 3]]


def test_a_device_lost_by_a_call_leaves_it_the_suspect(recording, monkeypatch, caplog):
    call_around_a_loss(recording, caplog, lambda: lose_device(monkeypatch, "outcome"))
    assert sorted(recording.entries()) == [1, 2], "later calls would only hide the suspect"
    call = recording.call(2)
    assert (call.status, call.result) == ("started", None)
    assert call.device_error == ILLEGAL.splitlines()[0]
    (warning,) = caplog.messages
    assert "call 2 (torch_add) left the device in error: CUDA error: an illegal" in warning
    chosen = select(recording.session)
    assert [entry.sequence for entry in chosen.calls] == [2]
    assert chosen.why == "it left the device in error"
    assert len(open_lines(recording)) == 4, "lines go on"


def lose_device_while_writing(monkeypatch, name):
    """Have the device fail while its bytes are being written to files of a name."""
    real = dump._files.batches

    def fail_after_some(buffers):
        if any(name in bytes(buffer[:40]) for buffer in buffers):
            yield [b"some"]
            raise RuntimeError(ILLEGAL)
        yield from real(buffers)

    monkeypatch.setattr("kernlib.dump._files.batches", fail_after_some)


def test_a_device_that_is_lost_while_outputs_are_written_leaves_the_call_the_suspect(
    recording, monkeypatch, caplog
):
    call_around_a_loss(
        recording, caplog, lambda: lose_device_while_writing(monkeypatch, b'{"result":')
    )
    assert sorted(recording.entries()) == [1, 2]
    call = recording.call(2)
    assert (call.status, call.result, call.changed) == ("started", None, ())
    assert call.device_error == ILLEGAL.splitlines()[0]
    held = sorted(path.name for path in recording.entries()[2].path.iterdir())
    assert held == ["call.json", "inputs.safetensors"]
    (warning,) = caplog.messages
    assert "call 2 (torch_add) left the device in error" in warning


def test_a_device_that_is_lost_while_inputs_are_written_blames_no_call(
    recording, monkeypatch, caplog
):
    call_around_a_loss(recording, caplog, lambda: lose_device_while_writing(monkeypatch, b'{"x":'))
    assert sorted(recording.entries()) == [1]
    assert not [path.name for path in recording.session.iterdir() if path.suffix == ".tmp"]
    (warning,) = caplog.messages
    assert "already in error before call 2" in warning


def test_a_device_that_was_lost_before_is_told_once_and_blames_no_call(
    recording, monkeypatch, caplog
):
    call_around_a_loss(recording, caplog, lambda: lose_device(monkeypatch, "input_blobs"))
    assert sorted(recording.entries()) == [1]
    (warning,) = caplog.messages
    assert "already in error before call 2" in warning
    recording.recorder._sinks[1]._sessions.made.session.close()
    assert dump.read_session(recording.session).dropped.errors == 3

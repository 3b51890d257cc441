"""A call's capsule is there before it runs, tells how it ended, and misses nothing it did."""

import threading

import pytest
import torch
from recording_samples import Recording

from kernlib import dump


@pytest.fixture
def recording(tmp_path):
    return Recording(tmp_path)


def files(entry):
    return sorted(path.name for path in entry.path.iterdir())


def test_inputs_and_status_are_on_disk_before_the_function_runs(recording):
    seen = []

    def work(x, *, scale):
        seen.append((recording.entries()[1], recording.arguments(1)))
        return x * scale

    x = torch.arange(4.0)
    assert torch.equal(recording.api(work)(x, scale=3), x * 3)
    ((entry, inputs),) = seen
    assert (entry.status, entry.api, entry.sequence) == ("started", "work", 1)
    assert inputs["x"].tolist() == [0, 1, 2, 3]
    assert inputs["scale"] == 3


def test_a_returned_call_has_its_result(recording):
    recording.api(torch_add)(torch.ones(3), torch.arange(3))
    call = recording.call(1)
    assert (call.status, call.device, call.grad_mode) == ("returned", "cpu", "grad")
    assert call.finished_at >= call.started_at
    assert call.caller.endswith("test_a_returned_call_has_its_result")
    assert (call.module, call.qualname, call.kind) == (__name__, "torch_add", "function")
    assert recording.result(1).tolist() == [1, 2, 3]


def torch_add(x, y):
    return x + y


def test_a_raised_call_has_its_exception_and_what_it_changed(recording):
    failure = KeyError("page")

    def work(x):
        x[1] = 7
        raise failure

    x = torch.zeros(3)
    with pytest.raises(KeyError) as caught:
        recording.api(work)(x)
    assert caught.value is failure
    call = recording.call(1)
    assert (call.status, call.result) == ("raised", None)
    assert (call.exception.type, call.exception.message) == ("KeyError", "'page'")
    assert "raise failure" in call.exception.traceback
    assert recording.arguments(1)["x"].tolist() == [0, 0, 0]
    (piece,) = dump.read_outputs(recording.entries()[1].path, call)
    assert piece.data.view(torch.float32).tolist() == [0, 7, 0]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_error_is_recorded_too(recording, failure):
    def work():
        raise failure

    with pytest.raises(failure):
        recording.api(work)()
    assert recording.call(1).exception.type == failure.__name__


def test_a_change_in_place_is_found_and_saved_once(recording):
    def work(x, untouched):
        x.neg_()
        return untouched[0].item()

    x, other = torch.arange(4.0), torch.ones(5)
    recording.api(work)(x, other)
    call = recording.call(1)
    assert [change.entry for change in call.changed] == ["x"]
    (piece,) = dump.read_outputs(recording.entries()[1].path, call)
    assert piece.data.view(torch.float32).tolist() == [0, -1, -2, -3]
    assert recording.arguments(1)["x"].tolist() == [0, 1, 2, 3]


def test_out_that_is_an_input_shares_its_storage(recording):
    def scale(x, *, out):
        return torch.mul(x, 2, out=out)

    x = torch.arange(3.0)
    recording.api(scale)(x, out=x)
    call = recording.call(1)
    assert len(call.storages) == 1
    inputs = recording.arguments(1)
    assert inputs["x"].data_ptr() == inputs["out"].data_ptr()
    assert inputs["x"].tolist() == [0, 1, 2]
    assert recording.result(1).tolist() == [0, 2, 4]


def test_out_that_overlaps_an_input_does_so_again(recording):
    pool = torch.arange(6.0)

    def shift(x, *, out):
        out.copy_(x.clone())
        return out

    recording.api(shift)(pool[:4], out=pool[2:])
    inputs = recording.arguments(1)
    assert inputs["out"].data_ptr() == inputs["x"].data_ptr() + 8
    assert inputs["out"].tolist() == [2, 3, 4, 5]
    assert recording.result(1).tolist() == [0, 1, 2, 3]


def test_a_result_that_is_a_view_of_an_input_costs_no_bytes(recording):
    def last_rows(x):
        return x[2:].t()

    x = torch.arange(12.0).view(4, 3)
    recording.api(last_rows)(x)
    assert files(recording.entries()[1]) == ["call.json", "inputs.safetensors"]
    assert torch.equal(recording.result(1), x[2:].t())


def test_nested_calls_name_their_parent(recording):
    inner = recording.api(torch_add)

    def outer(x):
        return inner(inner(x, x), x)

    recording.api(outer)(torch.ones(2))
    assert {number: entry.parent for number, entry in recording.entries().items()} == {
        1: None,
        2: 1,
        3: 1,
    }


def test_an_argument_that_cannot_be_held_is_opaque_and_the_rest_is_there(recording):
    class Handle:
        def __repr__(self):
            raise AssertionError("a repr may be long, slow, or wrong")

    def work(handle, x):
        del handle
        return x

    recording.api(work)(Handle(), torch.ones(2))
    call = recording.call(1)
    (text,) = dump.opaque_paths(call)
    assert text.startswith("handle is a ")
    assert "Handle" in text
    (view,) = dump.input_views(call).values()
    assert view.path == "x"
    assert len(dump.read_inputs(recording.entries()[1].path, call)) == 1


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        (torch.no_grad, "no_grad"),
        (torch.inference_mode, "inference"),
        (torch.enable_grad, "grad"),
        (lambda: torch.autocast("cpu", dtype=torch.bfloat16), "grad"),
    ],
    ids=["no_grad", "inference_mode", "enable_grad", "autocast"],
)
def test_capsules_are_whole_under_every_mode(recording, mode, name):
    with mode():
        weight = torch.nn.Parameter(torch.eye(2))
        x = torch.ones(3, 2)
        got = recording.api(torch.matmul)(x, weight)
    assert recording.recorder.failures == {}
    assert recording.call(1).grad_mode == name
    assert torch.equal(recording.result(1).detach(), got.detach())
    assert got.dtype == recording.result(1).dtype


def test_a_tensor_that_is_part_of_a_graph_is_recorded_and_the_graph_stays_whole(recording):
    x = torch.ones(2, requires_grad=True)
    recording.api(torch_add)(x * 2, x).sum().backward()
    assert x.grad.tolist() == [3, 3]
    assert recording.result(1).tolist() == [3, 3]


def test_a_plain_subclass_is_kept_and_said_to_be_one(recording):
    class Tagged(torch.Tensor):
        pass

    x = torch.arange(3.0).as_subclass(Tagged)
    assert isinstance(recording.api(torch_add)(x, 1), Tagged)
    assert recording.recorder.failures == {}
    assert any("it was a" in text for text in recording.call(1).incomplete)
    assert recording.result(1).tolist() == [1, 2, 3]


def test_arguments_beyond_the_named_ones_keep_places_of_their_own(recording):
    def gather(first, *rest, last=None):
        return first, rest, last

    recording.api(gather)(1, 2, 3, last=4)
    assert recording.arguments(1) == {"first": 1, "args[1]": 2, "args[2]": 3, "last": 4}
    assert "first=1 args[1]=2 args[2]=3 last=4" in recording.lines()[0]


def test_threads_lose_no_call_and_mix_none(recording):
    call = recording.api(torch_add)

    def work(number):
        for _ in range(5):
            call(torch.full((3,), float(number)), number)

    threads = [threading.Thread(target=work, args=(at,), name=f"worker-{at}") for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(recording.entries()) == list(range(1, 41))
    for number in recording.entries():
        inputs, record = recording.arguments(number), recording.call(number)
        assert record.thread.name == f"worker-{inputs['y']}"
        assert inputs["x"].tolist() == [inputs["y"]] * 3
        assert recording.result(number).tolist() == [2 * inputs["y"]] * 3


class MuteError(Exception):
    def __str__(self):
        raise ValueError("not even this")


@pytest.mark.parametrize(
    "failure",
    [
        ValueError("x" * 70_000_000),
        ValueError("line\n" * 100_000),
        MuteError(),
        OSError("no \udcff"),
    ],
    ids=["long", "many lines", "mute", "no unicode"],
)
def test_an_exception_of_any_text_ends_its_call_and_keeps_its_place(recording, failure):
    def work():
        raise failure

    with pytest.raises(type(failure)) as caught:
        recording.api(work)()
    assert caught.value is failure
    call = recording.call(1)
    assert call.status == "raised"
    assert len(call.exception.message) < 1 << 17
    assert "raise failure" in call.exception.traceback
    assert recording.recorder.failures == {}
    assert len(recording.lines()[-1]) < 10_000

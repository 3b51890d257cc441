"""Recording writes what it promises, filters first, and never harms the application."""

import io
import json
import logging
import threading

import pytest
import torch

from kernlib._registry import Api
from kernlib.config import Config, Level
from kernlib.logging import LogSink, NameFilter, Recorder, describe, recorded, statistics
from kernlib.logging._describe import console_text
from kernlib.logging._destination import expand_destination


def double(x, *, scale=2):
    return x * scale


class Fake:
    """A sink that keeps what it is handed."""

    def __init__(self):
        self.seen = []

    def wants(self, api):
        return api.name != "unwanted"

    def started(self, call):
        self.seen.append(("started", call.api.name, call.sequence, call.parent))

    def returned(self, call, result):
        self.seen.append(("returned", call.sequence, result))

    def raised(self, call, error):
        self.seen.append(("raised", call.sequence, error))

    def failed(self):
        self.seen.append(("failed",))


class Broken(Fake):
    def started(self, _call, _outcome=None):
        raise OSError(28, "No space left on device")

    returned = raised = started


def wrapped(function, recorder, name=None, kind="function"):
    return recorded(function, Api(name or function.__name__, function, kind=kind), recorder)


def test_without_a_recorder_the_function_itself_comes_back():
    assert wrapped(double, None) is double


def test_a_filtered_function_itself_comes_back():
    assert wrapped(double, Recorder([Fake()]), name="unwanted") is double
    sink = LogSink(Config(log_level=Level.ARGS, exclude=("dou*",)))
    assert wrapped(double, Recorder([sink])) is double


def test_inputs_are_handed_over_before_the_call_and_results_after():
    sink = Fake()
    order = []

    def work():
        order.append(list(sink.seen))
        return 7

    assert wrapped(work, Recorder([sink]))() == 7
    assert order == [[("started", "work", 1, None)]]
    assert sink.seen[1:] == [("returned", 1, 7)]


def test_an_exception_of_the_api_reaches_the_caller_unchanged_and_is_recorded():
    sink = Fake()
    failure = KeyError("page")

    def work():
        raise failure

    with pytest.raises(KeyError) as caught:
        wrapped(work, Recorder([sink]))()
    assert caught.value is failure
    assert sink.seen[-1] == ("raised", 1, failure)


def test_a_broken_sink_costs_one_warning_and_the_call_goes_on(caplog):
    recorder, good = None, Fake()
    recorder = Recorder([Broken(), good])
    call = wrapped(double, recorder)
    with caplog.at_level(logging.WARNING, logger="kernlib.recorder"):
        assert [call(value) for value in (1, 2, 3)] == [2, 4, 6]
    assert len(caplog.records) == 1
    assert "No space left on device" in caplog.records[0].getMessage()
    assert recorder.failures == {("Broken", "OSError"): 6}
    assert len(good.seen) == 6


def test_a_nested_call_names_its_parent():
    sink = Fake()
    recorder = Recorder([sink])
    inner = wrapped(double, recorder)

    def outer(x):
        return inner(x) + 1

    assert wrapped(outer, recorder)(2) == 5
    parents = {entry[1]: entry[3] for entry in sink.seen if entry[0] == "started"}
    assert parents["outer"] is None
    assert parents["double"].sequence == 1


def test_threads_do_not_become_each_others_parents():
    sink = Fake()
    call = wrapped(double, Recorder([sink]))
    threads = [threading.Thread(target=call, args=(1,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    started = [entry for entry in sink.seen if entry[0] == "started"]
    assert sorted(entry[2] for entry in started) == list(range(1, 9))
    assert all(entry[3] is None for entry in started)


@pytest.fixture
def lines(monkeypatch):
    """Return a function that runs calls under a config and gives back the lines written."""

    def run(action, **settings):
        stream = io.StringIO()
        monkeypatch.setattr("sys.stderr", stream)
        recorder = Recorder([LogSink(Config(**settings))])
        action(wrapped(double, recorder))
        return stream.getvalue().splitlines()

    return run


def test_level_calls_writes_one_line_with_the_name(lines):
    (line,) = lines(lambda call: call(torch.ones(3)), log_level=Level.CALLS)
    assert line.endswith("kernlib call #1 double")


def test_level_args_writes_shapes_strides_alignment_values_and_outputs(lines):
    x = torch.ones(4, 6, dtype=torch.bfloat16).t()
    start, end = lines(lambda call: call(x, scale=3), log_level=Level.ARGS)
    assert "x=bfloat16[6,4] stride(1,6) cpu align" in start
    assert "scale=3" in start
    assert "result=bfloat16[6,4] stride(1,6) cpu" in end
    assert "microseconds=" in end


def test_level_stats_counts_nan_and_inf(lines):
    x = torch.tensor([1.0, float("nan"), float("inf"), -3.0])
    start, _ = lines(lambda call: call(x), log_level=Level.STATS)
    assert "min=-3 max=1 mean=-1 absmax=3 nan=1 inf=1 zero=0" in start


def test_json_lines_hold_the_same_facts(lines):
    x = torch.ones(2, 3)
    texts = lines(lambda call: call(x), log_level=Level.ARGS, log_format="json")
    start, end = map(json.loads, texts)
    assert (start["event"], start["api"], start["call"]) == ("call", "double", 1)
    assert start["args"]["x"]["shape"] == [2, 3]
    assert start["args"]["x"]["stride"] == [3, 1]
    assert start["args"]["x"]["dtype"] == "float32"
    assert end["event"] == "return"
    assert end["outputs"]["result"]["shape"] == [2, 3]


def test_an_exception_is_a_line_at_every_level(lines):
    def action(call):
        with pytest.raises(TypeError):
            call(None)

    assert "error=TypeError" in lines(action, log_level=Level.CALLS)[-1]


@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode])
def test_lines_are_written_under_no_grad_and_inference_mode(lines, grad):
    def action(call):
        with grad():
            call(torch.ones(2))

    assert len(lines(action, log_level=Level.STATS)) == 2


def test_a_path_takes_pid_rank_and_host(monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", "3")
    path = expand_destination(f"{tmp_path}/%h-%r-%p.log")
    assert "-3-" in path.name
    assert "%" not in path.name


def test_a_line_is_on_disk_before_the_call_runs(tmp_path):
    path = tmp_path / "folder" / "calls.log"
    seen = []

    def work():
        seen.append(path.read_text())

    wrapped(work, Recorder([LogSink(Config(log_level=Level.CALLS, log_dest=str(path)))]))()
    assert "call #1 work" in seen[0]


@pytest.mark.parametrize(
    ("include", "exclude", "name", "admitted"),
    [
        ((), (), "rms_norm", True),
        (("rms_*",), (), "rms_norm", True),
        (("rms_*",), (), "silu", False),
        (("*",), ("rms_*",), "rms_norm", False),
        (("PagedDecode.*",), (), "PagedDecode.run", True),
        (("RMS_*",), (), "rms_norm", False),
    ],
)
def test_filters_match_names_with_case(include, exclude, name, admitted):
    assert NameFilter(include, exclude).admits(name) is admitted


def test_a_filter_on_a_method_still_needs_its_class_set_up():
    names = NameFilter(("PagedDecode.run",))
    assert names.needs_setup_of("PagedDecode")
    assert not names.needs_setup_of("Other")


def test_values_are_described_without_reading_tensors():
    meta = torch.empty(3, device="meta")
    assert describe(meta)["device"] == "meta"
    assert describe([meta, 1, None, "x"])[1:] == [1, None, "x"]
    assert describe("y" * 500).endswith("...")
    assert describe(object()) == "<object>"
    assert describe(list(range(100)))[-1] == "... 100 items"
    assert describe(torch.float16) == "float16"


def test_size_one_dimensions_with_odd_strides_count_as_contiguous_text():
    odd = torch.ones(1, 4).as_strided((1, 4), (77, 1))
    assert "stride" not in console_text(describe(odd))


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
     torch.float8_e5m2, torch.int32, torch.uint8, torch.bool],
)  # fmt: skip
def test_statistics_of_every_common_dtype(dtype):
    values = torch.tensor([0, 1, 1, 0], dtype=torch.float32).to(dtype)
    found = statistics(values)
    counts = {"nan": 0, "inf": 0, "zero": 2}
    assert found == {"min": 0, "max": 1, "mean": 0.5, "absmax": 1, **counts}
    assert list(found) == ["min", "max", "mean", "absmax", "nan", "inf", "zero"]


def test_statistics_of_hard_cases():
    assert statistics(torch.empty(0)) == "empty"
    assert statistics(torch.full((3,), float("nan"))) == {"nan": 3, "inf": 0, "zero": 0}
    infinities = torch.tensor([float("inf"), -float("inf")])
    assert statistics(infinities) == {"nan": 0, "inf": 2, "zero": 0}
    assert statistics(torch.tensor([1 + 2j]))["max"] == 2
    assert "no statistics" in statistics(torch.empty(2, device="meta"))

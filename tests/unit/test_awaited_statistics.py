"""Statistics that a device writes later are told once they are there, and nothing waits."""

import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from kernlib import ring
from kernlib._registry import Api
from kernlib.config import Config, Level
from kernlib.logging import LogSink, Recorder, RingSink, recorded


class Device:
    """Stands for a device: gives its statistics when it is told to."""

    def __init__(self):
        self.done = threading.Event()
        self.polls = 0

    def measure(self, tensor):
        return Under(self, tensor)


class Under:
    def __init__(self, device, tensor):
        self.device, self.found = device, {"max": tensor.max().item(), "nan": 0}
        self.taken = False

    def poll(self):
        self.device.polls += 1
        if not self.device.done.is_set():
            return None
        assert not self.taken, "what has come is taken once"
        self.taken = True
        return self.found


def scaled(x, factor):
    return x * factor


@pytest.fixture
def device():
    return Device()


@pytest.fixture
def config(tmp_path):
    return Config(log_level=Level.STATS, log_format="json", log_dest=str(tmp_path / "log"))


def api_on(sink):
    return recorded(scaled, Api("scaled", scaled), Recorder([sink]))


def lines(config):
    return [json.loads(line) for line in Path(config.log_dest).read_text().splitlines()]


def wait_for(holds):
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_they_come_in_a_line_of_their_own(config, device):
    api = api_on(LogSink(config, device.measure))
    api(torch.ones(3), 2)
    started, ended = lines(config)
    assert "stats" not in started["args"]["x"]
    assert "stats" not in ended["outputs"]["result"]
    device.done.set()
    wait_for(lambda: len(lines(config)) == 4)
    of_args, of_result = lines(config)[2:]
    assert of_args.pop("timestamp") <= of_result.pop("timestamp")
    assert of_args == {
        "event": "stats", "api": "scaled", "call": 1,
        "args": {"x": {"stats": {"max": 1.0, "nan": 0}}},
    }  # fmt: skip
    assert of_result["outputs"] == {"result": {"stats": {"max": 2.0, "nan": 0}}}


def test_on_the_console(config, device):
    api = api_on(LogSink(config.replace(log_format="console"), device.measure))
    device.done.set()
    api(torch.ones(3), 2)
    path = Path(config.log_dest)
    wait_for(lambda: path.read_text().count("\n") == 4)
    assert " kernlib stats #1 scaled x=(max=1 nan=0)\n" in path.read_text()


def test_a_capture_is_not_measured(config, device, monkeypatch):
    monkeypatch.setattr("kernlib.logging._recorder.is_capturing", lambda: True)
    api_on(LogSink(config, device.measure))(torch.ones(3), 2)
    assert lines(config)[0]["args"]["x"]["stats"] == "capturing"
    assert device.polls == 0


def test_they_join_their_call_in_a_ring(config, device):
    sink = RingSink(config.replace(log_format="ring"), dict, lambda: None, device.measure)
    api_on(sink)(torch.ones(3), 2)
    device.done.set()
    wait_for(lambda: len(ring.read_ring(sink.path).records) == 4)
    found = ring.read_ring(sink.path)
    assert found.unfinished() == ()
    (args,) = (r for r in found.records if r.kind is ring.Kind.ARG_STATS)
    assert args.event()["args"] == {"x": {"stats": {"max": 1.0, "nan": 0}}}
    shown = subprocess.run(
        [sys.executable, "-m", "kernlib._commands", "ring", "show", str(sink.path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert re.search(r"x=float32\[3\] cpu align\d+ max=1 nan=0 factor=2\n", shown.stdout)
    assert "No call that is left was running" in shown.stdout


def test_a_failure_to_tell_is_told_once_and_the_next_are_tried(config, device, caplog):
    sink = LogSink(config, device.measure)
    api = api_on(sink)
    write, refused = sink._write, []

    def full(event, facts):
        if event == "stats" and len(refused) < 3:
            refused.append(facts)
            raise OSError(28, "No space left on device")
        write(event, facts)

    sink._write = full
    device.done.set()
    with caplog.at_level(logging.WARNING, logger="kernlib.recorder"):
        api(torch.ones(3), 2)
        api(torch.ones(3), 3)
        wait_for(lambda: sum(line["event"] == "stats" for line in lines(config)) == 1)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "call 1 (scaled) could not be told" in caplog.text


PROCESS = """
import os, sys, torch
sys.path.insert(0, sys.argv[1])
from test_awaited_statistics import Device, api_on
from kernlib.config import Config, Level
from kernlib.logging import LogSink

device = Device()
config = Config(log_level=Level.STATS, log_format="json", log_dest=sys.argv[2])
api = api_on(LogSink(config, device.measure))
api(torch.ones(3), 2)
if sys.argv[3] == "fork":
    child = os.fork()
    if not child:
        device.done.set()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
if sys.argv[3] == "done":
    device.done.set()
"""


@pytest.mark.parametrize("end", ["done", "never", "fork"])
def test_at_the_end_of_the_process_what_never_came_is_said(config, end):
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROCESS, str(Path(__file__).parent),
         config.log_dest, end],
        check=True, env=os.environ, timeout=60,
    )  # fmt: skip
    stats = [line for line in lines(config) if line["event"] == "stats"]
    found = [next(iter((line.get("args") or line["outputs"]).values()))["stats"] for line in stats]
    if end == "done":
        assert found == [{"max": 1.0, "nan": 0}, {"max": 2.0, "nan": 0}]
    else:
        assert found == ["the device did not get to it"] * 2

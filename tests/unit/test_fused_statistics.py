"""Where the fused statistics are not to be had, Python's serve; and nothing waits for them."""

import json
import logging
import sys
from pathlib import Path

import pytest
import torch

from kernlib._registry import Api
from kernlib._runtime import build_recorder
from kernlib._statistics import FusedStatistics, statistics_spec
from kernlib.config import Config, Level, Mode
from kernlib.logging import LogSink, Recorder, recorded, statistics
from kernlib.ops._catalogue import matching_specs

NAMES = ["min", "max", "mean", "absmax", "nan", "inf", "zero"]


def by_python(tensor):
    return {"by": "Python", "elements": tensor.numel()}


def negated(x):
    return -x


@pytest.fixture
def config(tmp_path):
    return Config(workspace=tmp_path / "workspace", log_dest=str(tmp_path / "log"))


@pytest.fixture
def compiler(tmp_path):
    """Return a compiler that waits for a file before it fails."""
    script = tmp_path / "g++"
    script.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, sys, time\n"
        "if sys.argv[1:] in (['--version'], ['-dumpmachine'], ['-dumpfullversion']):\n"
        "    sys.exit(print('g++ 12.2.0'))\n"
        f"while not pathlib.Path({str(tmp_path / 'go')!r}).exists():\n    time.sleep(0.01)\n"
        "sys.exit('error: this compiler only waits')\n"
    )
    script.chmod(0o755)
    return script


def test_a_call_does_not_wait_for_the_build(config, compiler, caplog):
    fused = FusedStatistics(config.replace(cxx=str(compiler)), by_python)
    assert fused(torch.ones(3)) == {"by": "Python", "elements": 3}
    assert fused.kernel.wait(0) is None
    compiler.with_name("go").touch()
    with caplog.at_level(logging.INFO, logger="kernlib.recorder"):
        assert fused.kernel.wait(60) is None
        assert fused(torch.ones(4)) == {"by": "Python", "elements": 4}
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert "statistics-cpu" in record.getMessage()
    assert "this compiler only waits" in record.getMessage()


@pytest.mark.parametrize(
    "changes",
    [{"jit_disable": True}, {"cxx": "/no/such/compiler"}],
    ids=["disabled", "no compiler"],
)
def test_without_the_kernel_python_serves_and_warns_of_nothing(config, changes, caplog, capfd):
    fused = FusedStatistics(config.replace(**changes), statistics)
    for _ in range(3):
        assert fused(torch.ones(3))["max"] == 1
        assert fused.kernel.wait(60) is None
    assert [record.levelno for record in caplog.records if record.levelno > logging.INFO] == []
    assert capfd.readouterr() == ("", "")


def test_the_kernel_is_of_mode_release_whatever_is_watched(config, monkeypatch):
    from kernlib import jit

    asked = []

    def refuse(choice, _config, mode):
        asked.append((choice.spec, choice.target, mode))
        raise jit_error()

    def jit_error():
        from kernlib.errors import LoadError

        return LoadError(Path("nowhere"), "a test")

    monkeypatch.setattr(jit, "prepare", refuse)
    fused = FusedStatistics(config.replace(jit_mode=Mode.SANITIZE), by_python)
    assert fused.kernel.wait(60) is None
    assert asked == [(statistics_spec(), "cpu", Mode.RELEASE)]


def test_what_is_shipped_holds_the_statistics():
    assert matching_specs("statistics") == [statistics_spec("cpu"), statistics_spec("cuda")]


def test_a_line_has_what_the_callable_measured(config):
    sink = LogSink(config.replace(log_level=Level.STATS, log_format="json"), by_python)
    call = recorded(negated, Api("negated", negated), Recorder([sink]))
    call(torch.ones(3))
    started, ended = map(json.loads, Path(config.log_dest).read_text().splitlines())
    assert started["args"]["x"]["stats"] == {"by": "Python", "elements": 3}
    assert ended["outputs"]["result"]["stats"] == {"by": "Python", "elements": 3}


def test_the_recorder_of_a_process_measures(config):
    """Until the kernel is there, and here it never is, a line has the same numbers in order."""
    disabled = config.replace(log_level=Level.STATS, log_format="json", jit_disable=True)

    call = recorded(negated, Api("negated", negated), build_recorder(disabled))
    call(torch.tensor([0.0, -3.0, 1.0, float("nan")]))
    started = json.loads(Path(config.log_dest).read_text().splitlines()[0])
    stats = started["args"]["x"]["stats"]
    assert list(stats) == NAMES
    assert stats == {
        "min": -3, "max": 1, "mean": pytest.approx(-2 / 3), "absmax": 3, "nan": 1, "inf": 0,
        "zero": 1,
    }  # fmt: skip
    json.dumps(started, allow_nan=False)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint64])
def test_python_keeps_large_integers_exact(dtype):
    edge = torch.iinfo(dtype)
    found = statistics(torch.tensor([edge.max, edge.max - 1, edge.min], dtype=dtype))
    assert (found["min"], found["max"]) == (edge.min, edge.max)
    assert found["absmax"] == max(edge.max, -edge.min)
    assert isinstance(found["min"], int)


def test_python_tells_minus_zero_as_zero():
    found = statistics(torch.tensor([-0.0, -0.0]))
    assert str(found["min"]) == str(found["absmax"]) == "0.0"
    assert found["zero"] == 2

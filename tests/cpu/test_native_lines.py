"""Lines that are written natively are those of the structlog sink, byte for byte."""

import math
import os
import random
import re
import signal
import struct
import subprocess
import sys
import textwrap

import pytest
import torch
from native_samples import (
    DTYPES,
    OTHER_VALUES,
    PLAIN_VALUES,
    Opaque,
    Pages,
    X,
    attend,
    native_functions,
)

from kernlib._registry import Api
from kernlib.config import Config, Level
from kernlib.logging import LogSink, Recorder, recorded, statistics

pytestmark = pytest.mark.requires("gxx")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
TOOK = re.compile(r"(microseconds[=\":]+)\d+\.\d")
FORMATS = pytest.mark.parametrize("form", ["console", "json"])


@pytest.fixture(scope="module")
def native():
    return native_functions()


class Pair:
    """The same calls as lines of the native recorder and of structlog."""

    def __init__(self, folder, native, form, level=Level.ARGS):
        self.paths = [folder / "native", folder / "structlog"]
        self.sinks = []
        for path, functions in zip(self.paths, (lambda: native, lambda: None), strict=True):
            config = Config(log_level=level, log_format=form, log_dest=str(path))
            self.sinks.append(LogSink(config, statistics, functions))
        self.recorders = [Recorder([sink]) for sink in self.sinks]

    def call(self, function, *args, api=None, **kwargs):
        api = api or Api("attend", function)
        for recorder in self.recorders:
            public = recorded(function, api, recorder)
            for _ in range(3):  # connect, hand over, natively
                try:
                    public(*args, **kwargs)
                except ValueError:
                    continue

    def check(self):
        """Compare the lines, times left out, and return them."""
        texts = [TOOK.sub(r"\1T", TIME.sub("TIME", path.read_text())) for path in self.paths]
        assert texts[0] == texts[1]
        assert self.sinks[0].native is not None
        assert self.sinks[1].native is None
        return texts[0].splitlines()


@FORMATS
@pytest.mark.parametrize("name", [*PLAIN_VALUES, *OTHER_VALUES])
def test_a_value_is_written_alike(tmp_path, native, form, name):
    pair = Pair(tmp_path, native, form)
    value = {**PLAIN_VALUES, **OTHER_VALUES}[name]
    pair.call(attend, value, give=value)
    assert len(pair.check()) == 6


@FORMATS
def test_every_dtype_is_written_alike(tmp_path, native, form):
    pair = Pair(tmp_path, native, form)
    for dtype in DTYPES:
        pair.call(attend, torch.zeros(64, dtype=torch.uint8).view(dtype))
    assert len(pair.check()) == 6 * len(DTYPES)


@FORMATS
def test_floats_are_written_alike(tmp_path, native, form):
    """Powers of ten around every change of notation, extremes, and random bits."""
    rng = random.Random(7)  # noqa: S311 - bits, no secrets
    values = [sign * 10.0**power for power in range(-25, 25) for sign in (1, -1)]
    values += [1.5 * 10.0**power for power in range(-8, 20)]
    values += [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, sys.float_info.max, 0.1, 123.0]
    values += [struct.unpack("d", rng.randbytes(8))[0] for _ in range(2000)]
    pair = Pair(tmp_path, native, form)
    for at in range(0, len(values), 16):
        pair.call(attend, values[at : at + 16])
    pair.check()


@FORMATS
@pytest.mark.parametrize("level", [Level.CALLS, Level.ARGS])
def test_methods_exceptions_parents_and_every_way_of_calling(tmp_path, native, form, level):
    pair = Pair(tmp_path, native, form, level)
    pair.call(Pages.attend, Pages(), X, 3, scale=0.5, api=Api("P.a", Pages.attend, kind="method"))
    pair.call(attend, x=X, y=1)
    pair.call(attend, X, fail="page 7 of 4\nand more")
    pair.call(lambda: None)
    for recorder in pair.recorders:
        inner = recorded(attend, Api("inner", attend), recorder)

        def outer(x, inner=inner):
            return inner(x)

        recorded(outer, Api("outer", outer), recorder)(X)
    lines = pair.check()
    assert any("parent" in line for line in lines)
    assert any("page 7 of 4" in line for line in lines)


@FORMATS
@pytest.mark.parametrize(
    "text", ["it's", '"quoted"', "back\\slash", "new\nline", "caf\xe9", "\x7f", ""]
)
def test_texts_that_need_escapes_are_written_alike(tmp_path, native, form, text):
    pair = Pair(tmp_path, native, form)
    pair.call(attend, text, **{f"name {text}": 1})
    pair.check()


def test_plain_values_never_reach_structlog(tmp_path, native, monkeypatch):
    """Were they described in Python, the tests above would compare Python with itself."""
    pair = Pair(tmp_path, native, "json")
    pair.call(attend, X)
    described = []
    monkeypatch.setattr(LogSink, "_write", lambda sink, _, facts: described.append((sink, facts)))
    for name, value in PLAIN_VALUES.items():
        if name != "letters":  # what needs escapes in one of the formats is left to Python
            pair.call(attend, value)
    assert pair.sinks[0] not in {sink for sink, _ in described}
    pair.call(attend, Opaque())
    assert pair.sinks[0] in {sink for sink, _ in described}


PROGRAM = textwrap.dedent(
    """
    import os, sys, time
    import torch
    from kernlib import kernel_api
    from kernlib.logging import process

    @kernel_api
    def step(x, number):
        if number == 300:
            {end}
        return x

    sink = process.recorder.sinks_for(step.__kernlib_api__.api)[0]
    x = torch.zeros(4, 8)
    begin = time.monotonic()
    while sink.native is None and time.monotonic() - begin < float(sys.argv[1]):
        step(x, -1)
        time.sleep(0.01)
    for number in range(400):
        step(x, number)
    """
)


def run_program(tmp_path, end, destination):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.replace("{end}", end))
    recording = {"KERNLIB_LOG_LEVEL": "args", "KERNLIB_LOG_DEST": destination}
    patience = "0" if destination == "stdout" else "60"  # that stream is left to structlog
    return subprocess.run(
        [sys.executable, str(script), patience], env={**os.environ, **recording},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("destination", ["stderr", "stdout", "file"])
def test_the_line_of_the_call_that_dies_is_out(tmp_path, destination):
    path = tmp_path / "lines"
    place = str(path) if destination == "file" else destination
    done = run_program(tmp_path, "os.kill(os.getpid(), 9)", place)
    assert done.returncode == -signal.SIGKILL, done.stderr
    text = path.read_text() if destination == "file" else getattr(done, destination)
    assert text.splitlines()[-1].endswith("number=300")
    assert len(re.findall(r"number=\d+", text)) == 301


def test_a_forked_child_writes_a_file_of_its_own(tmp_path):
    done = run_program(
        tmp_path, "(pid := os.fork()) and os.waitpid(pid, 0)", str(tmp_path / "%p.log")
    )
    assert done.returncode == 0, done.stderr
    counts = sorted(path.read_text().count("number=") for path in tmp_path.glob("*.log"))
    # The child writes the 99 calls that come after the one in which it was forked.
    assert counts[0] == 99
    assert counts[1] >= 400


def test_a_full_disk_costs_lines_and_no_result(tmp_path, native, caplog):
    """/dev/full takes nothing."""
    config = Config(log_level=Level.ARGS, log_dest=str(tmp_path / "lines"))
    sink = LogSink(config, statistics, lambda: native)
    public = recorded(attend, Api("attend", attend), Recorder([sink]))
    assert all(public(X) is X for _ in range(3))
    assert sink.native is not None
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, sink._target.file)
    os.close(full)
    assert all(public(X) is X for _ in range(50))
    assert [record.message.count("No space left") for record in caplog.records] == [1]

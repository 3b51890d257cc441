"""Lines agree with capsules, sessions name their controls, filters and kinds of apis hold."""

import json
import os
import subprocess
import sys

import pytest
import torch
from recording_samples import Recording

from kernlib import dump
from kernlib.config import variables


@pytest.fixture
def recording(tmp_path):
    return Recording(tmp_path)


def torch_add(x, y):
    return x + y


def test_a_dict_with_the_words_of_a_tensor_is_no_tensor(recording):
    options = {"dtype": "float16", "shape": 3}

    def work(x, options):
        return x.to(getattr(torch, options["dtype"]))

    recording.api(work)(torch.ones(2), options)
    assert recording.recorder.failures == {}
    assert "options={dtype: 'float16', shape: 3}" in recording.lines()[0]
    assert recording.arguments(1)["options"] == options


@pytest.mark.parametrize("style", ["console", "json"])
def test_log_lines_agree_with_the_capsule(tmp_path, style):
    recording = Recording(tmp_path, log_format=style)
    inner = recording.api(torch_add)

    def outer(x, *, alpha):
        return inner(x, alpha)

    x = torch.arange(12.0).view(4, 3).t()
    recording.api(outer)(x, alpha=2)
    lines = recording.lines()
    assert len(lines) == 4
    for line, number in zip(lines[:2], (1, 2), strict=True):
        call = recording.call(number)
        (view,) = dump.input_views(call).values()
        if style == "json":
            facts = json.loads(line)
            assert (facts["event"], facts["api"], facts["call"]) == ("call", call.api, number)
            assert facts.get("parent") == call.parent
            assert facts["args"][view.path]["shape"] == list(view.shape)
            assert facts["args"][view.path]["stride"] == list(view.stride)
            assert facts["args"][view.path]["dtype"] == view.dtype
        else:
            shape, stride = (",".join(map(str, part)) for part in (view.shape, view.stride))
            assert f"call #{number} {call.api} x={view.dtype}[{shape}] stride({stride})" in line
            assert (f"parent={call.parent}" in line) == (call.parent is not None)


CONTROLS = {
    "KERNLIB_LOG_LEVEL": "dump",
    "KERNLIB_LOG_FORMAT": "json",
    "KERNLIB_DUMP_MAX_CALLS": "17",
    "KERNLIB_DUMP_MAX_BYTES": "3MiB",
    "KERNLIB_DUMP_KEEP": "first",
    "KERNLIB_EXCLUDE": "Else.*,other",
    "KERNLIB_JIT_MODE": "lineinfo",
    "KERNLIB_EXTRA_CFLAGS": "-DLEVEL=2 '-DTEXT=a b'",
}

PROGRAM = """
import torch
from kernlib import kernel_api

class Thing:
    @kernel_api
    @staticmethod
    def fixed(x):
        return x + 1

    @kernel_api
    @classmethod
    def made(cls, x):
        return cls, x * 2

    @staticmethod
    @kernel_api
    def bare(x):
        return x + 3

class Other(Thing):
    pass

@kernel_api
def other(x):
    return x

x = torch.ones(2)
assert Thing.fixed(x).tolist() == [2, 2] == Thing().fixed(x).tolist()
assert Other.made(x)[0] is Other and Thing().made(x)[1].tolist() == [2, 2]
assert Thing.bare(x).tolist() == [4, 4]
assert hasattr(Thing.fixed, "__wrapped__") and not hasattr(other, "__wrapped__")
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """Return the session that PROGRAM records under CONTROLS."""
    folder = tmp_path_factory.mktemp("controls")
    variables = CONTROLS | {
        "KERNLIB_DUMP_DIR": str(folder / "dumps"),
        "KERNLIB_LOG_DEST": str(folder / "%p.log"),
        "RANK": "3",
    }
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    (entry,) = dump.list_sessions(folder / "dumps")
    return entry


def test_every_control_that_is_not_at_its_default_is_in_the_session(session):
    controls = session.session.process.controls
    for name, value in CONTROLS.items():
        assert controls.pop(name) == value
    assert controls.pop("KERNLIB_DUMP_DIR") == str(session.path.parent)
    assert set(controls) == {"KERNLIB_LOG_DEST", "KERNLIB_WORKSPACE"}
    assert {*CONTROLS, *controls} <= {row.name for row in variables()}


def test_a_session_describes_its_process(session):
    process = session.session.process
    assert process.rank == 3
    assert session.path.name.endswith(f"-{process.pid}-r3")
    assert process.argv == ("-c",)
    assert process.versions["torch"].startswith(torch.__version__.partition("+")[0])
    assert process.devices == (), "nothing here started CUDA"


def test_static_and_class_methods_are_recorded_as_what_they_are(session):
    calls = [dump.read_call(entry.path) for entry in dump.list_calls(session.path)]
    kinds = [(call.api, call.kind, call.status, call.receiver) for call in calls]
    assert kinds == [
        ("Thing.fixed", "staticmethod", "returned", None),
        ("Thing.fixed", "staticmethod", "returned", None),
        ("Thing.made", "classmethod", "returned", None),
        ("Thing.made", "classmethod", "returned", None),
        ("Thing.bare", "staticmethod", "returned", None),
    ]
    assert [dump.input_views(call)[0].path for call in calls] == ["x"] * 5

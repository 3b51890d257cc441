"""A recorded fault on a device comes back in a replay, in every build that a replay offers."""

from types import SimpleNamespace

import capabilities
import pytest
import replay_runs as runs

pytestmark = pytest.mark.requires("gxx", "nvcc", "sm_80+")

SOUND = """
faultlib.take_rows(floats(6, 5), ints(4, 2))
faultlib.put(floats(7), ints(3), floats(1))
faultlib.look_back(floats(4), ints(0, 1, 2, 0))
faultlib.sum_rows(floats(4, 3), 3)
"""


@pytest.fixture(scope="module", params=runs.PLANTED, ids=lambda planted: planted.marker)
def recorded(request, tmp_path_factory):
    """Record a fault once for all builds: the child ends in error, its capsule names the call."""
    dumps = tmp_path_factory.mktemp("dumps")
    done = runs.record(request.param.code, dumps, device="cuda")
    return SimpleNamespace(planted=request.param, dumps=dumps, done=done)


def test_the_capsule_says_that_the_device_was_in_error(recorded):
    """A fault is told later than it happens: at the first wait, which is the recorder's own."""
    assert recorded.done.returncode != 0
    assert "CUDA error" in recorded.done.stderr
    call = runs.recorded_call(runs.capsule(recorded.dumps))
    assert (call["status"], call["api"]) == ("started", recorded.planted.api)
    assert "CUDA error" in call["device_error"]
    assert call["device"].startswith("cuda")


@pytest.mark.parametrize("mode", ["lineinfo", "debug"])
def test_a_fault_comes_back_with_its_line_and_argument(recorded, mode):
    planted = recorded.planted
    replayed = runs.replay(recorded.dumps, "--mode", mode)
    assert (replayed.status, replayed.verdict) == (10, "reproduced"), replayed.call
    assert replayed.call["api"] == planted.api
    assert replayed.findings == ([planted.finding] if planted.finding else [])
    (build,) = replayed.builds
    assert (build["mode"], build["same_sources_and_flags"]) == (mode, True)
    assert not build["is_recorded"]
    if capabilities.missing("compute-sanitizer"):
        assert any("compute-sanitizer was not found" in note for note in replayed.call["notes"])
        return
    (attempt,) = replayed.call["attempts"]
    assert attempt["tool"] == "compute-sanitizer"
    source = replayed.call["source"]
    assert source is not None, attempt["log"]
    assert (source["line"], source["text"]) == runs.fault_line(planted.marker)
    assert (source["file"], source["certain"]) == (runs.ELEMENTS, True)
    assert replayed.call["where"].startswith("block (")


def test_a_crash_is_tried_as_recorded_and_then_where_the_line_is_named(recorded):
    replayed = runs.replay(recorded.dumps)
    assert replayed.verdict == "reproduced"
    first, *_, last = replayed.call["attempts"]
    assert (first["rung"], first["verdict"]) == ("recorded", "reproduced")
    assert last["rung"] in {"lineinfo", "memcheck"}
    assert replayed.call["source"]["line"] == runs.fault_line(recorded.planted.marker)[0]


def test_the_release_build_is_the_recorded_one(recorded):
    """Without a tool in front the device's own error is what comes back."""
    (ref,) = runs.recorded_call(runs.capsule(recorded.dumps))["builds"]
    replayed = runs.replay(recorded.dumps, "--mode", "release")
    assert (replayed.status, replayed.verdict) == (10, "reproduced"), replayed.call
    (build,) = replayed.builds
    assert build["is_recorded"]
    assert build["key"] == build["recorded_key"] == ref["key"]
    assert build["sha256"] == ref["library"]["sha256"]
    assert "CUDA error" in replayed.call["reason"]


def test_sound_arguments_pass_in_the_same_builds(tmp_path):
    done = runs.record(SOUND, tmp_path, device="cuda")
    assert done.returncode == 0, done.stderr
    for mode in ("release", "debug"):
        replayed = runs.replay(tmp_path, "--mode", mode)
        assert (replayed.status, replayed.verdict) == (0, "passed"), replayed.calls


def test_a_crash_on_a_device_is_looked_into_on_the_cpu(recorded):
    """The same arguments fault in the CPU's kernel too, where a sanitizer names the line."""
    if recorded.planted.marker != "read-past-pool":
        pytest.skip("one fault shows it")
    replayed = runs.replay(recorded.dumps, "--device", "cpu")
    assert replayed.verdict == "reproduced", replayed
    assert replayed.call["source"]["line"] == runs.fault_line(recorded.planted.marker)[0]

"""The ladder on a device: recorded, fenced, after other calls, under every tool."""

import pytest
import replay_runs as runs

pytestmark = pytest.mark.requires("gxx", "nvcc", "sm_80+")

OVER_READ, FIRST, FED = range(1, 4)
#: The recorded calls return: the caching allocator hides the over-read.
SESSION = """
faultlib.take_rows(floats(128, 1), ints(15, 128))
rows = faultlib.take_rows(floats(16, 4), ints(3, 2, 1))
faultlib.take_rows(rows, ints(1))
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    dumps = tmp_path_factory.mktemp("session")
    done = runs.record(SESSION, dumps, device="cuda")
    assert done.returncode == 0, done.stderr
    return dumps


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    dumps = tmp_path_factory.mktemp("crashed")
    runs.record(runs.PLANTED[0].code, dumps, device="cuda")
    return dumps


def rung(replayed):
    (row,) = replayed.call["attempts"]
    return row


@pytest.mark.parametrize("name", ["recorded", "blocking", "fence-end", "fence-start", "previous"])
def test_a_wild_read_is_reproduced_on_every_memory(crashed, name):
    replayed = runs.replay(crashed, "--rung", name)
    assert (replayed.status, replayed.verdict) == (10, "reproduced"), replayed.call
    assert rung(replayed)["hits"] == 1
    assert replayed.findings == [runs.PLANTED[0].finding]


@pytest.mark.requires("compute-sanitizer")
@pytest.mark.parametrize("name", ["memcheck", "debug"])
def test_memcheck_names_the_line(crashed, name):
    replayed = runs.replay(crashed, "--rung", name)
    assert (replayed.status, replayed.verdict) == (10, "reproduced"), replayed.call
    line, text = runs.fault_line(runs.PLANTED[0].marker)
    assert (replayed.call["source"]["line"], replayed.call["source"]["text"]) == (line, text)


@pytest.mark.requires("compute-sanitizer")
@pytest.mark.parametrize("name", ["racecheck", "initcheck", "synccheck"])
def test_the_other_tools_find_nothing_in_a_sound_call(session, name):
    replayed = runs.replay(session, "--call", FIRST, "--rung", name)
    assert (replayed.status, replayed.verdict) == (0, "passed"), replayed.call
    assert rung(replayed)["tool"] == "compute-sanitizer"


def test_an_over_read_that_plain_memory_hides_faults_at_the_fence(session):
    replayed = runs.replay(session, "--call", OVER_READ, "--rung", "fence-end")
    assert (replayed.status, replayed.verdict) == (11, "different_fault"), replayed.call
    assert "recorded, the call returned; replayed: " in replayed.call["reason"]


@pytest.mark.requires("compute-sanitizer")
def test_the_ladder_names_whose_fence_it_was_and_the_line(session):
    replayed = runs.replay(session, "--call", OVER_READ, "--ladder")
    shown = [(row["rung"], row["verdict"]) for row in replayed.call["attempts"]]
    assert shown[:3] == [
        ("recorded", "passed"), ("blocking", "passed"), ("fence-end", "different_fault"),
    ]  # fmt: skip
    assert shown[3:] == [("memcheck", "different_fault")]
    target = replayed.call["target"]
    assert (target["argument"], target["certain"]) == ("pool", True)
    assert replayed.call["source"]["line"] == runs.fault_line("read-past-pool")[0]
    assert replayed.call["where"].startswith("block (")


def test_the_crash_has_its_line_at_the_end_of_the_ladder(crashed):
    replayed = runs.replay(crashed)
    assert (replayed.status, replayed.call["rung"]) == (10, "recorded"), replayed.call
    assert replayed.call["source"]["line"] == runs.fault_line(runs.PLANTED[0].marker)[0]
    assert "NVIDIA" in replayed.call["machine"]
    assert replayed.call["machine_differences"] == []


def test_a_result_that_stays_on_the_device_is_passed_on(session):
    replayed = runs.replay(session, "--call", FED, "--with-previous", "1")
    assert replayed.verdict == "passed", replayed.call
    assert f"pool is the memory that call {FIRST} (take_rows) left" in replayed.call["notes"]

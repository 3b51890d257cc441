"""The command: which call it picks, what it lists and shows, and how it refuses."""

import hashlib
import shutil
from pathlib import Path

import pytest
import replay_runs as runs

from kernlib.replay._select import select

pytestmark = pytest.mark.requires("gxx")

SOUND = "faultlib.take_twice(floats(4, 3), ints(3, 2, 1, 0)); faultlib.row_means(floats(2, 2))"
RAISING = """
for x in (floats(4, 3), "neither", "a tensor"):
    try:
        faultlib.row_means(x)
    except AttributeError:
        pass
faultlib.row_means(floats(1, 1))
"""
NESTED_CRASH = f"{SOUND}; faultlib.take_twice(floats(6, 5), ints({runs.FAR}))"
THREADS = """
in_a_thread(faultlib.pause, floats(2), 3600.0)
in_a_thread(faultlib.pause, floats(2), 3600.0)
os._exit(9)
"""


def recorded(tmp_path_factory, code, status):
    dumps = tmp_path_factory.mktemp("dumps")
    done = runs.record(code, dumps)
    assert done.returncode == status, done.stderr
    return dumps


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Record calls that return, one of them inside another."""
    return recorded(tmp_path_factory, SOUND, 0)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """Record the same, and then a call that dies inside another."""
    return recorded(tmp_path_factory, NESTED_CRASH, -11)


def chosen(path, **wish):
    return [(entry.sequence, entry.api) for entry in select(path, **wish).calls]


def test_the_innermost_call_that_was_still_running_is_chosen(crashed):
    selection = select(crashed)
    assert [(entry.sequence, entry.api) for entry in selection.calls] == [(6, "take_rows")]
    assert selection.why == "it was still running when its process ended"
    assert selection.notes == ()


def test_of_two_threads_the_last_call_is_chosen_and_the_other_one_named(tmp_path_factory):
    selection = select(recorded(tmp_path_factory, THREADS, 9))
    assert [entry.sequence for entry in selection.calls] == [2]
    assert selection.notes == ("also running when the process ended: call 1 (pause)",)


def test_else_the_last_call_that_raised_is_chosen(tmp_path_factory):
    assert chosen(recorded(tmp_path_factory, RAISING, 0)) == [(3, "row_means")]


def test_else_all_calls_are_chosen(sound):
    calls = [(1, "take_twice"), (2, "take_rows"), (3, "take_rows"), (4, "row_means")]
    assert chosen(sound) == calls
    assert chosen(sound, api="take_*") == calls[:3]
    assert chosen(sound, call=4) == calls[3:]
    assert chosen(runs.capsule(sound, "row_means")) == calls[3:]


def test_the_newest_session_is_chosen_and_an_older_one_by_its_folder(sound, crashed, tmp_path):
    (old,), (new,) = crashed.iterdir(), sound.iterdir()
    for session, stamp in ((old, "20200101T000000Z"), (new, "20210101T000000Z")):
        shutil.copytree(session, tmp_path / f"{stamp}-host-1")
    assert [sequence for sequence, _ in chosen(tmp_path)] == [1, 2, 3, 4]
    assert chosen(tmp_path / "20200101T000000Z-host-1") == [(6, "take_rows")]


def test_all_calls_are_replayed_and_counted(sound):
    done = runs.command(sound, "--import", "faultlib", "--api", "take_*")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "3 calls: 3 passed"
    assert "compared    result: float32 agrees: identical bits" in done.stdout


def test_a_replay_follows_no_control_file(sound, tmp_path):
    control = tmp_path / "control"
    control.write_text(f"KERNLIB_LOG_LEVEL=calls\nKERNLIB_LOG_DEST={tmp_path}/lines\n")
    control.chmod(0o600)
    done = runs.command(sound, "--import", "faultlib", "--call", 4, KERNLIB_CONTROL=str(control))
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "lines").exists()


def test_a_list_needs_no_torch(crashed):
    done = runs.command(crashed, "--list", python=("-X", "importtime"))
    assert done.returncode == 0, done.stderr
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "kernlib.dump" in loaded
    assert not {"torch", "tvm_ffi", "safetensors", "structlog", "kernlib.ops"} & loaded
    rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("session ")]
    assert [row[:3] for row in rows] == [
        ["1", "take_twice", "returned"],
        ["2", "take_rows", "returned"],
        ["3", "take_rows", "returned"],
        ["4", "row_means", "returned"],
        ["5", "take_twice", "started"],
        ["6", "take_rows", "started"],
    ]
    assert rows[5][-2:] == ["in", "5"]


def test_a_call_is_shown_beside_its_build(sound, workspace):
    done = runs.command(sound, "--show", "2")
    assert done.returncode == 0, done.stderr
    (ref,) = runs.recorded_call(runs.capsule(sound, number=2))["builds"]
    library = Path(ref["library"]["path"])
    assert library.is_relative_to(workspace)
    assert ref["library"]["size"] == library.stat().st_size
    assert ref["library"]["sha256"] == hashlib.sha256(library.read_bytes()).hexdigest()
    (sources,) = sound.glob(f"*/builds/{ref['key']}/sources")
    elements = sources / runs.ELEMENTS
    assert elements.read_bytes() == (runs.TESTS / "faultlib" / runs.ELEMENTS).read_bytes()
    metadata = (library.parent / "build.json").read_text().splitlines()
    for expected in (
        "call 2, take_rows (faultlib, faultlib._apis)",
        "argument    pool = float32[4,3] on cpu",
        f"key         {ref['key']}",
        f"library     {library}",
        f"{ref['library']['size']} bytes, sha256 {ref['library']['sha256']}",
        f"sources     {sources}",
        f"{runs.ELEMENTS} ({elements.stat().st_size} bytes)",
        "build manifest:",
        "csrc/faults/faults_cpu.cc",
        "cache metadata:",
        f"| {metadata[-1]}",
    ):
        assert expected in done.stdout


@pytest.mark.parametrize(
    ("path", "arguments", "said"),
    [
        ("nowhere", [], "is not a folder"),
        (".", [], "holds no recorded session"),
        ("dumps", ["--call", "99"], "holds no call 99"),
        ("dumps", ["--show", "99"], "holds no call 99"),
        ("dumps", ["--api", "rms_*"], "holds no api 'rms_*'"),
        ("dumps", ["--timeout", "0"], "expected a number of seconds above 0"),
        ("dumps", ["--mode", "fastest"], "invalid choice: 'fastest'"),
        ("dumps", ["--call", "first"], "invalid int value: 'first'"),
        ("dumps", ["--list", "--nonsense"], "unrecognized arguments"),
    ],
)
def test_a_usage_error_is_one_line_and_status_2(sound, tmp_path, path, arguments, said):
    """What argparse finds has the usage before it."""
    (tmp_path / "dumps").symlink_to(sound)
    done = runs.command(tmp_path / path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert said in lines[-1]
    assert len(lines) == 1 or lines[0].startswith("usage: ")


def test_help_names_the_exit_statuses_and_needs_no_torch():
    done = runs.command("--help", python=("-X", "importtime"))
    assert done.returncode == 0
    assert " torch\n" not in done.stderr
    for said in ("1 mismatch", "10 reproduced", "12 not reproduced", "13 timed out"):
        assert said in done.stdout

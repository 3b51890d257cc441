"""The ladder with real children: what each rung finds that the one before it does not."""

import json
import shutil

import pytest
import replay_runs as runs

pytestmark = pytest.mark.requires("gxx", "asan")

OVER_READ, ADD_UP, FIRST, FED, COPIED, PUT = range(1, 7)
SESSION = """
pool = floats(16, 1)
faultlib.take_rows(pool, ints(15, 16))
faultlib.add_up(floats(3), torch.zeros(()))
rows = faultlib.take_rows(pool, ints(3, 2, 1))
rows = faultlib.take_rows(rows, ints(1))
faultlib.take_rows(rows.clone(), ints(0))
faultlib.put(floats(17), ints(3, 17), floats(2))  # the second lies behind the end
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    dumps = tmp_path_factory.mktemp("session")
    done = runs.record(SESSION, dumps)
    assert done.returncode == 0, done.stderr
    return dumps


def died(call):
    """Make a recorded return a death: then only a rung that sees the fault can reproduce it."""
    call["status"] = "started"
    for name in ("finished_at", "result", "changed"):
        call.pop(name, None)


@pytest.fixture
def hidden(session, tmp_path):
    """Return a capsule whose call reads one element too far, and is recorded to have died."""
    capsule = runs.copy_of(runs.capsule(session, number=OVER_READ), tmp_path)
    runs.change_call(capsule, died)
    return capsule


def rungs(replayed):
    return [(row["rung"], row["verdict"]) for row in replayed.call["attempts"]]


def test_an_over_read_by_one_is_seen_by_the_fence_alone(hidden):
    replayed = runs.replay(hidden)
    assert (replayed.status, replayed.call["rung"]) == (10, "fence-end")
    # Optimised host code names a line near by: the fault's own is asked of a build that is not.
    assert rungs(replayed) == [
        ("recorded", "not_reproduced"), ("fence-end", "reproduced"), ("address", "reproduced"),
    ]  # fmt: skip
    line, text = runs.fault_line("read-past-pool")
    assert (replayed.call["source"]["line"], replayed.call["source"]["text"]) == (line, text)
    assert replayed.call["target"]["argument"] == "pool"
    assert "first byte past the end of pool" in replayed.call["target"]["text"]
    assert replayed.findings == [("pages", "pages[1] = 16, but the pool has 16 rows")]
    assert replayed.call["findings"][0]["origin"].startswith("pages was written by none")
    judged = replayed.call["diagnosis"]
    assert (judged["answer"], judged["confidence"]) == ("bad input", "certain")


def test_children_of_one_rung_on_different_memory_have_folders_of_their_own(hidden, tmp_path):
    """The sanitizer's child that is begun at once, and the one for the fence that faulted."""
    kept = tmp_path / "kept"
    done = runs.command(hidden, "--import", "faultlib", "--keep", str(kept))
    assert done.returncode == 10, done.stdout + done.stderr
    memory = {
        path.name: json.loads((path / "request.json").read_text()).get("memory", "plain")
        for path in kept.glob("call-1-*")
    }
    fenced = [name for name, kind in memory.items() if kind == "fence-end"]
    assert sorted(name.removeprefix("call-1-").split("-again")[0] for name in fenced) == [
        "address", "fence-end",
    ]  # fmt: skip
    assert set(memory.values()) == {"plain", "fence-end"}


def test_a_write_behind_the_end_that_nothing_faults_at_is_silent_corruption(session):
    replayed = runs.replay(session, "--call", PUT, "--rung", "fence-end")
    assert (replayed.status, replayed.verdict) == (14, "silent_corruption")
    assert "wrote 4 bytes after out, from 0 bytes away on" in replayed.call["reason"]
    plain = runs.replay(session, "--call", PUT, "--rung", "recorded")
    assert (plain.status, plain.verdict) == (0, "passed")


def test_a_rung_is_repeated_and_its_hits_are_counted(hidden):
    replayed = runs.replay(hidden, "--rung", "fence-end", "--repeat", "2")
    (row,) = replayed.call["attempts"]
    assert (row["rung"], row["hits"], row["times"]) == ("fence-end", 2, 2)


def test_a_missing_tool_is_a_rungs_result_and_said(hidden, tmp_path):
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    done = runs.command(
        hidden, "--import", "faultlib", "--rung", "address", KERNLIB_CXX=str(compiler)
    )
    assert done.returncode == 3, done.stdout
    text = " ".join(done.stdout.split())
    assert "rungs address not run: AddressSanitizer:" in text


def test_a_build_that_fails_is_a_rungs_result(hidden, tmp_path):
    """No other build is taken in its place."""
    library = tmp_path / "library"
    shutil.copytree(runs.TESTS / "faultlib", library / "faultlib")
    header = library / "faultlib" / runs.ELEMENTS
    guard = "#ifdef __SANITIZE_ADDRESS__\n#error not under a sanitizer\n#endif\n"
    header.write_text(header.read_text().replace("#pragma once\n", f"#pragma once\n{guard}"))
    replayed = runs.replay(hidden, "--rung", "address", library=library)
    assert (replayed.status, replayed.verdict) == (4, "build_failed")
    (row,) = replayed.call["attempts"]
    assert (row["rung"], row["verdict"]) == ("address", "build_failed")
    assert "not under a sanitizer" in row["reason"]


def test_a_stale_workspace_is_told_from_bad_input(session):
    sound = runs.replay(session, "--call", ADD_UP)
    assert sound.verdict == "passed"
    stale = runs.replay(session, "--call", ADD_UP, "--rung", "poison")
    assert (stale.status, stale.verdict) == (1, "mismatch")
    assert "total was poisoned before the call" in stale.call["notes"]
    zeroed = runs.replay(session, "--call", ADD_UP, "--scratch", "zeroed")
    assert zeroed.verdict == "passed"


def test_the_result_of_a_call_before_it_is_passed_on_as_the_same_memory(session):
    replayed = runs.replay(session, "--call", FED, "--with-previous", "1")
    assert replayed.verdict == "passed"
    left = f"pool is the memory that call {FIRST} (take_rows) left"
    assert left in replayed.call["notes"]
    alone = runs.replay(session, "--call", FED)
    assert left not in alone.call["notes"]
    copied = runs.replay(session, "--call", COPIED, "--with-previous", "1")
    assert not any("pool is the memory" in note for note in copied.call["notes"])


def test_what_was_changed_in_between_is_not_passed_on(session, tmp_path):
    """Other bytes than those that the call before it left: somebody wrote to them."""
    capsule = runs.copy_of(runs.capsule(session, number=FED), tmp_path)
    inputs = capsule / "inputs.safetensors"
    (outputs,) = capsule.parent.glob(f"{FIRST:06d}-*/outputs.safetensors")
    outputs.write_bytes(outputs.read_bytes()[:-4] + b"\0\0\0\x41")
    assert inputs.exists()
    replayed = runs.replay(capsule, "--with-previous", "1")
    assert not any("pool is the memory" in note for note in replayed.call["notes"])


def test_a_call_that_cannot_run_before_it_is_named(session, tmp_path):
    capsule = runs.copy_of(runs.capsule(session, number=FED), tmp_path)
    (before,) = capsule.parent.glob(f"{FIRST:06d}-*")
    runs.change_call(before, lambda call: call.update(api="gone"))
    replayed = runs.replay(capsule, "--with-previous", "1")
    assert replayed.verdict == "passed"
    assert any(f"call {FIRST} (gone) does not run before it" in n for n in replayed.call["notes"])


def test_a_rung_of_another_device_is_a_usage_error(session):
    done = runs.command(session, "--call", ADD_UP, "--rung", "memcheck")
    assert done.returncode == 2
    assert "a call on cpu has no rung 'memcheck'" in done.stderr


def test_the_thread_sanitizer_runs_a_call_that_returns(session):
    replayed = runs.replay(session, "--call", FIRST, "--rung", "thread")
    assert (replayed.status, replayed.verdict) == (0, "passed"), replayed.call
    assert [build["mode"] for build in replayed.builds] == ["thread"]


def test_the_schema_names_every_field_of_a_report(session):
    done = runs.command("--json-schema")
    assert done.returncode == 0, done.stderr
    defined = json.loads(done.stdout)["$defs"]
    call = runs.replay(session, "--call", ADD_UP).call
    assert call.keys() == defined["CallReport"]["properties"].keys()
    assert call["attempts"][0].keys() == defined["Attempt"]["properties"].keys()
    assert call["machine"]
    assert call["machine_differences"] == []

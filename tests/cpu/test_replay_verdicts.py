"""What a replay concludes, from recordings of real processes."""

import shutil
import struct
from types import SimpleNamespace

import pytest
import replay_runs as runs

pytestmark = pytest.mark.requires("gxx", "asan")

TAKE, PUT, INIT, FIRST_PLAN, LAST_PLAN, RUN, OPAQUE, BARE, RAISED = range(1, 10)
SESSION = """
pool = floats(4, 3)
assert faultlib.take_rows(pool, ints(3, 0), 2.0).tolist() == [[18, 20, 22], [0, 2, 4]]
faultlib.put(floats(6), ints(5), floats(1))
table = faultlib.Table(3)
table.plan(ints(1), 2.0)
table.plan(ints(2, 3), 3.0)
assert table.run(pool).tolist() == [[18, 21, 24], [27, 30, 33]]
class Observer:
    def see(self, means):
        pass
faultlib.row_means(pool, Observer())
bare = faultlib.Table.__new__(faultlib.Table)  # as unpickling makes one
vars(bare).update(vars(table))
bare.run(pool)
faultlib.take_rows(pool, floats(2))
"""
HANG = "in_a_thread(faultlib.pause, floats(2), 3600.0); os._exit(9)"


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """Record one process that makes sound calls and ends with one that is refused."""
    dumps = tmp_path_factory.mktemp("session")
    done = runs.record(SESSION, dumps)
    assert "TypeError: pages is float32, but int64 is needed" in done.stderr
    return dumps


@pytest.fixture
def copied(session, tmp_path):
    """Return a copy of the session, to be tampered with."""
    return shutil.copytree(session, tmp_path / "copied")


def replay_call(dumps, number, *arguments, **options):
    return runs.replay(dumps, "--call", number, *arguments, **options)


def spoil_last_float(path):
    """Overwrite the last recorded number of a safetensors file."""
    path.write_bytes(path.read_bytes()[:-4] + struct.pack("<f", 12345.0))


def test_a_returned_call_passes_in_the_recorded_build(session):
    replayed = replay_call(session, TAKE)
    assert (replayed.status, replayed.verdict) == (0, "passed")
    assert replayed.call["comparisons"] == [
        {"name": "result", "text": "float32 agrees: identical bits"}
    ]
    (ref,) = runs.recorded_call(runs.capsule(session, number=TAKE))["builds"]
    (build,) = replayed.builds
    assert (build["is_recorded"], build["mode"], build["differences"]) == (True, "release", [])
    assert build["key"] == build["recorded_key"] == ref["key"]
    assert build["sha256"] == ref["library"]["sha256"]


def test_a_result_that_differs_is_a_mismatch(copied):
    capsule = runs.capsule(copied, number=TAKE)
    spoil_last_float(capsule / "outputs.safetensors")
    replayed = runs.replay(capsule)
    assert (replayed.status, replayed.verdict) == (1, "mismatch")
    assert "first result[1][2] = 4, recorded 12345" in replayed.call["reason"]


def test_what_a_call_changed_in_place_is_compared(copied):
    assert replay_call(copied, PUT).call["comparisons"][0]["name"] == "out"
    spoil_last_float(runs.capsule(copied, number=PUT) / "outputs.safetensors")
    replayed = replay_call(copied, PUT)
    assert replayed.verdict == "mismatch"
    assert "first out[5] = 0, recorded 12345" in replayed.call["reason"]


def test_a_chain_is_replayed_and_its_latest_plan_counts(copied):
    assert replay_call(copied, RUN).verdict == "passed"

    def halve(tree):
        assert tree["arguments"]["args"][1] == {"type": "float", "value": 3.0}
        tree["arguments"]["args"][1]["value"] = 1.5

    runs.change_call(runs.capsule(copied, number=LAST_PLAN), halve)
    replayed = replay_call(copied, RUN)
    assert replayed.verdict == "mismatch"
    assert "first result[0][0] = 9, recorded 18" in replayed.call["reason"]


def test_a_chain_without_its_making_is_not_replayable(copied):
    shutil.rmtree(runs.capsule(copied, number=INIT))
    replayed = replay_call(copied, RUN)
    assert (replayed.status, replayed.verdict) == (3, "not_replayable")
    assert "the making of Table, known since call 3, is not among" in replayed.call["reason"]


def test_an_object_that_was_not_made_by_its_init_is_not_replayable(session):
    """The first recorded call of such an object gives it its number."""
    replayed = replay_call(session, BARE)
    assert replayed.verdict == "not_replayable"
    assert "not by a recorded __init__" in replayed.call["reason"]


def test_an_opaque_argument_is_not_replayable(session):
    replayed = replay_call(session, OPAQUE)
    assert (replayed.status, replayed.verdict) == (3, "not_replayable")
    assert "observer" in replayed.call["reason"]
    assert "Observer" in replayed.call["reason"]


def test_a_package_that_is_not_imported_is_named(session):
    replayed = replay_call(session, TAKE, packages=())
    assert (replayed.status, replayed.verdict) == (3, "not_replayable")
    assert "import it with --import faultlib" in replayed.call["reason"]


def test_a_package_that_cannot_be_imported_is_named(session):
    replayed = replay_call(session, TAKE, packages=("faultlib", "no_such_package"))
    assert replayed.verdict == "not_replayable"
    assert "no_such_package" in replayed.call["reason"]


def test_a_recorded_exception_is_reproduced(session):
    """Of a session without a call that was still running, the last that raised is chosen."""
    replayed = runs.replay(session)
    assert (replayed.status, replayed.call["call"]) == (10, RAISED)
    assert replayed.call["reason"] == "TypeError: pages is float32, but int64 is needed"


def test_another_exception_is_a_different_fault(copied):
    def change(tree):
        tree["exception"]["message"] = "pages is missing"

    runs.change_call(runs.capsule(copied, number=RAISED), change)
    replayed = runs.replay(copied)
    assert (replayed.status, replayed.verdict) == (11, "different_fault")
    assert "recorded was TypeError: pages is missing; replayed" in replayed.call["reason"]


def test_a_missing_compiler_is_a_failed_build(session, tmp_path):
    """In a workspace of its own: what is built already needs no compiler."""
    missing = {"KERNLIB_CXX": "no-such-compiler", "KERNLIB_WORKSPACE": str(tmp_path)}
    replayed = replay_call(session, TAKE, **missing)
    assert (replayed.status, replayed.verdict) == (4, "build_failed")
    assert "no-such-compiler" in replayed.call["reason"]
    assert "KERNLIB_CXX" in replayed.call["reason"]


def test_a_hang_is_stopped(tmp_path):
    assert runs.record(HANG, tmp_path).returncode == 9
    replayed = runs.replay(tmp_path, "--mode", "release", "--timeout", "10")
    assert (replayed.status, replayed.verdict) == (13, "timed_out")
    assert replayed.call["reason"] == "the child was stopped after 10 s, while running"


@pytest.fixture(scope="module")
def crashed(tmp_path_factory, workspace):
    """Record a crash with a library of its own, and lay a repaired and a broken copy beside it.

    A comment makes its sources other ones than those of any other test.
    """
    base = tmp_path_factory.mktemp("crashed")
    planted = runs.PLANTED[0]
    for name in ("recorded", "repaired", "broken"):
        shutil.copytree(runs.TESTS / "faultlib", base / name / "faultlib")
        header = base / name / "faultlib" / runs.ELEMENTS
        header.write_text(f"{header.read_text()}// {base}\n")
    line, text = runs.fault_line(planted.marker, base / "recorded")
    for name, change in (("repaired", "from < 0 ? pool[0] : 0.0f"), ("broken", "pool[form]")):
        header = base / name / "faultlib" / runs.ELEMENTS
        header.write_text(header.read_text().replace(text, f"const float value = {change};"))
    done = runs.record(planted.code, base / "dumps", library=base / "recorded")
    assert done.returncode < 0, done.stderr

    def modes_built():
        return runs.modes_built(workspace, base / "recorded" / "faultlib" / runs.ELEMENTS)

    return SimpleNamespace(base=base, dumps=base / "dumps", line=line, modes_built=modes_built)


def test_a_crash_in_the_unchanged_release_build_is_the_recorded_build(crashed):
    replayed = runs.replay(crashed.dumps, "--mode", "release", library=crashed.base / "recorded")
    assert replayed.verdict == "reproduced"
    assert [build["is_recorded"] for build in replayed.builds] == [True]


def test_a_repaired_crash_is_not_reproduced_and_never_passed(crashed):
    """The installed sources are built, in both modes, and nothing of the recorded ones."""
    repaired = crashed.base / "repaired"
    for rung in ("address", "recorded"):
        replayed = runs.replay(crashed.dumps, "--rung", rung, library=repaired)
        assert (replayed.status, replayed.verdict) == (12, "not_reproduced")
    (build,) = replayed.builds
    assert (build["mode"], build["is_recorded"]) == ("release", False)
    (difference,) = build["differences"]
    assert difference.startswith(f"{runs.ELEMENTS}: recorded sha256 ")
    assert "changed" in difference
    assert any("--trust-sources" in command for command in replayed.call["next"])
    assert crashed.modes_built() == {"release"}
    trusted = runs.replay(crashed.dumps, "--trust-sources", library=crashed.base / "repaired")
    assert (trusted.status, trusted.verdict) == (10, "reproduced")
    assert trusted.call["source"]["line"] == crashed.line
    assert trusted.builds[0]["same_sources_and_flags"]
    assert crashed.modes_built() == {"release", "sanitize"}


def test_a_source_that_no_longer_compiles_is_a_failed_build(crashed):
    replayed = runs.replay(crashed.dumps, library=crashed.base / "broken")
    assert (replayed.status, replayed.verdict) == (4, "build_failed")
    assert f"elements.h:{crashed.line}:" in replayed.call["reason"]
    assert "form" in replayed.call["reason"]

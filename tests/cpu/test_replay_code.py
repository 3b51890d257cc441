"""A replay in another mode says whether it ran the recorded machine code."""

import shutil

import pytest
import replay_runs as runs

pytestmark = pytest.mark.requires("gxx", "asan")


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    dumps = tmp_path_factory.mktemp("session")
    done = runs.record("faultlib.take_rows(floats(4, 3), ints(3, 0), 2.0)", dumps)
    assert done.returncode == 0, done.stderr
    return dumps


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("release", None),  # it is the recorded build
        ("lineinfo", "the recorded build's"),
        ("debug", "differs from the recorded build"),
        ("sanitize", None),
    ],
)
def test_the_report_says_whether_it_ran_the_recorded_code(session, mode, told):
    replayed = runs.replay(session, "--mode", mode)
    assert replayed.verdict == "passed", replayed.call
    (build,) = replayed.builds
    assert (build["mode"], build["machine_code"]) == (mode, told)


def test_the_text_says_it_beside_the_mode(session):
    text = runs.command(session, "--import", "faultlib", "--mode", "lineinfo").stdout
    assert "by its mode alone" in " ".join(text.split())
    assert "but other code" not in " ".join(text.split())
    assert "  machine code: the recorded build's\n" in text


def test_without_the_recorded_library_nothing_is_said_or_built(session, workspace, tmp_path):
    (ref,) = runs.recorded_call(runs.capsule(session))["builds"]
    other = tmp_path / "workspace"
    replayed = runs.replay(session, "--mode", "lineinfo", KERNLIB_WORKSPACE=str(other))
    assert replayed.builds[0]["machine_code"] is None
    (built,) = (path.name for path in (other / "artifacts").iterdir() if path.name[0] != ".")
    assert built == replayed.builds[0]["key"]
    # Another library under the recorded key is not the one that ran.
    shutil.copytree(workspace / "artifacts" / ref["key"], other / "artifacts" / ref["key"])
    (library,) = (other / "artifacts" / ref["key"]).glob("*.so")
    library.write_bytes(library.read_bytes() + b"\0")
    replayed = runs.replay(session, "--mode", "lineinfo", KERNLIB_WORKSPACE=str(other))
    assert replayed.builds[0]["machine_code"] is None

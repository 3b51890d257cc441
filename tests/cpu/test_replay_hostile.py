"""A dump from somebody else cannot run anything, or lead anywhere else."""

import shutil
import struct

import pytest
import replay_runs as runs

pytestmark = pytest.mark.requires("gxx")

ONE_CALL = "faultlib.take_rows(floats(4, 3), ints(3, 0))"
EVIL_KEY = "../../../escaped_by_a_capsule"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Record one sound call."""
    dumps = tmp_path_factory.mktemp("sound")
    done = runs.record(ONE_CALL, dumps)
    assert done.returncode == 0, done.stderr
    return dumps


@pytest.fixture
def dumps(recorded, tmp_path):
    """Return a copy of the recording, to be spoilt."""
    return shutil.copytree(recorded, tmp_path / "dumps")


@pytest.fixture
def sentinel(tmp_path):
    """Return a path at which nothing may appear."""
    return tmp_path / "sentinel"


def refused(dumps, *arguments):
    """Replay; return the one line that refuses, from the report or from the error stream."""
    done = runs.command(dumps, "--import", "faultlib", *arguments)
    assert done.returncode in {2, 3}, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if done.returncode == 2:
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        return line
    replayed = runs.replay(dumps, *arguments)
    assert (replayed.status, replayed.verdict) == (3, "not_replayable")
    assert "\n" not in replayed.call["reason"]
    return replayed.call["reason"]


def refused_call(dumps, change, *arguments):
    runs.change_call(runs.capsule(dumps), change)
    return refused(dumps, *arguments)


def source_of(dumps, name):
    """Return the recorded copy of a source."""
    (path,) = dumps.glob(f"*/builds/*/sources/**/{name}")
    return path


def test_a_function_of_the_standard_library_is_no_api(dumps, sentinel):
    """Not even if the user imports the module: only what is registered runs."""

    def change(tree):
        tree |= {"api": "system", "package": "os", "module": "os", "qualname": "system"}
        command = {"type": "str", "value": f"touch {sentinel}"}
        tree["arguments"] = {"args": [command], "kwargs": {}}
        for name in ("builds", "changed", "result", "views", "storages"):
            tree.pop(name, None)

    assert "no api of package 'os' is registered" in refused_call(dumps, change, "--import", "os")
    assert not sentinel.exists()


def test_a_module_named_by_a_capsule_is_not_imported(dumps, sentinel):
    """It would be found: it lies in the folder from which the command is run."""
    evil = dumps.parent / "evil"
    shutil.copytree(runs.TESTS / "faultlib", evil / "faultlib")
    (evil / "evil_package.py").write_text(f"open({str(sentinel)!r}, 'w')\n")

    def change(tree):
        tree |= {"package": "evil_package", "module": "evil_package"}

    runs.change_call(runs.capsule(dumps), change)
    replayed = runs.replay(dumps, library=evil)
    assert (replayed.status, replayed.verdict) == (3, "not_replayable")
    assert "import it with --import evil_package" in replayed.call["reason"]
    assert not sentinel.exists()


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (["builds", 0, "key"], EVIL_KEY, "is not 16 to 64 hex digits"),
        (["builds", 0, "uri"], EVIL_KEY, "is no file name"),
        (["builds", 0, "uri"], ".", "is no file name"),
        (["builds", 0, "mode"], "evil", "evil"),
        (["surprise"], 1, "unknown field `surprise`"),
        (["status"], 7, "Expected `str`"),
        (["arguments"], [], "Expected `object`, got `array`"),
        (["storages", 0, "device"], "cuda:evil", "cuda:evil"),
        (["storages", 0, "nbytes"], 1 << 47, "bytes"),
        (["views", 0, "dtype"], "Tensor", "Tensor"),
        (["views", 0, "dtype"], "__builtins__", "__builtins__"),
        (["schema_version"], 99, "schema version 99"),
    ],
    ids=str,
)
def test_a_spoilt_field_is_refused_in_one_line(dumps, place, value, said):
    def change(tree):
        for key in place[:-1]:
            tree = tree[key]
        tree[place[-1]] = value

    assert said in refused_call(dumps, change, "--trust-sources")
    assert not list(dumps.parent.parent.rglob("escaped_by_a_capsule*"))


def test_a_huge_header_is_refused(dumps):
    inputs = runs.capsule(dumps) / "inputs.safetensors"
    inputs.write_bytes(struct.pack("<Q", 1 << 40) + inputs.read_bytes()[8:])
    assert "inputs.safetensors" in refused(dumps)


@pytest.mark.parametrize("name", ["call.json", "inputs.safetensors"])
def test_a_truncated_file_is_refused(dumps, name):
    path = runs.capsule(dumps) / name
    path.write_bytes(path.read_bytes()[:-20])
    assert name in refused(runs.capsule(dumps))


@pytest.mark.parametrize("name", ["call.json", "inputs.safetensors"])
def test_a_link_in_place_of_a_file_is_refused(dumps, tmp_path, name):
    path = runs.capsule(dumps) / name
    elsewhere = path.rename(tmp_path / name)
    path.symlink_to(elsewhere)
    assert "link" in refused(runs.capsule(dumps))


def test_a_link_among_the_recorded_sources_is_refused(dumps):
    path = source_of(dumps, "faults.h")
    path.unlink()
    path.symlink_to("/etc/hostname")
    assert "is a symbolic link" in refused(dumps, "--trust-sources")


def test_recorded_sources_are_built_and_loaded_only_on_demand(dumps, sentinel):
    """A function that runs when the library is loaded; with the user's trust it does run."""
    source = source_of(dumps, "faults_cpu.cc")
    body = f'if (FILE* file = fopen("{sentinel}", "w")) fclose(file);'
    evil = f"[[gnu::constructor]] static void evil() {{ {body} }}\n"
    source.write_text(f"#include <cstdio>\n{evil}{source.read_text()}")
    assert runs.replay(dumps).verdict == "passed"
    assert runs.command(dumps, "--list").returncode == 0
    assert runs.command(dumps, "--show", "1").returncode == 0
    assert not sentinel.exists()
    assert runs.replay(dumps, "--trust-sources").verdict == "passed"
    assert sentinel.exists()


def test_a_library_named_by_a_capsule_is_not_loaded(dumps, tmp_path):
    """Kernels come from this machine's own builds, whatever path was recorded."""

    def change(tree):
        tree["builds"][0]["library"]["path"] = str(tmp_path / "evil.so")

    (tmp_path / "evil.so").write_bytes(b"no library at all")
    runs.change_call(runs.capsule(dumps), change)
    replayed = runs.replay(dumps)
    assert replayed.verdict == "passed"
    assert replayed.builds[0]["library"] != str(tmp_path / "evil.so")


def test_a_dump_cannot_steer_the_terminal(dumps):
    def change(tree):
        tree["caller"] = "\x1b]0;owned\x07 here"
        tree["arguments"]["names"] = ["\x1b[2J", "pages"]

    runs.change_call(runs.capsule(dumps), change)
    for arguments in (["--show", "1"], ["--list"], ["--import", "faultlib"]):
        done = runs.command(dumps, *arguments)
        assert done.stdout, done.stderr
        assert not {"\x1b", "\x07"} & set(done.stdout)

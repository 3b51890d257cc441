"""With a package for the CPU, a machine without compilers runs, records and replays."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import replay_runs as runs
from aot_samples import snapshot

from kernlib import jit, ops
from kernlib.config import Config, Mode
from kernlib.ops._catalogue import shipped_specs

pytestmark = pytest.mark.requires("gxx")
TESTS = Path(__file__).resolve().parents[1]
NORM = "kernlib.rms_norm(floats(3, 8), floats(8))"


def kernlib_command(*arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "kernlib._commands", *map(str, arguments)],
        cwd=TESTS.parent, capture_output=True, text=True, check=False, timeout=500,
        env={**os.environ, **variables},
    )  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build everything worth shipping for the CPU, and its wheel."""
    folder = tmp_path_factory.mktemp("ahead")
    done = kernlib_command("aot", "build", "--target", "cpu", "--out", folder / "aot", "--wheel")
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


@pytest.fixture(scope="module")
def aot(built):
    return built[0] / "aot"


@pytest.fixture
def machine(tmp_path):
    """Return the environment of a machine that has no compiler and nothing in its workspace."""
    programs, workspace = tmp_path / "programs", tmp_path / "workspace"
    programs.mkdir()
    workspace.mkdir()
    workspace.chmod(0o555)
    return {"PATH": str(programs), "KERNLIB_JIT_DISABLE": "1", "KERNLIB_WORKSPACE": str(workspace)}


def run_operators(places, **variables):
    kept = filter(None, [os.environ.get("PYTHONPATH")])
    path = os.pathsep.join(map(str, (TESTS, TESTS.parent, *places, *kept)))
    done = subprocess.run(
        [sys.executable, TESTS / "aot_operators.py", "cpu"], cwd=TESTS.parent,
        capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, **variables, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    return lines[: len(ops.__all__)], [Path(line) for line in lines[len(ops.__all__) :]]


def test_every_operator_runs_from_the_folder(aot, machine):
    names, libraries = run_operators((), **machine, KERNLIB_AOT_DIR=str(aot))
    assert names == ops.__all__
    assert libraries
    assert all(library.parent.parent == aot for library in libraries)
    assert list(Path(machine["KERNLIB_WORKSPACE"]).iterdir()) == []


def test_every_operator_runs_from_the_installed_wheel(built, machine, tmp_path):
    """The package is found as data: installing is unpacking, and nothing of it is imported."""
    (wheel,) = built[0].glob("kernlib_aot-*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    names, libraries = run_operators((site,), **machine)
    assert names == ops.__all__
    assert all(library.is_relative_to(site / "kernlib_aot") for library in libraries)


def test_without_a_package_such_a_machine_says_what_is_missing(machine):
    done = runs.record(NORM, "unused", KERNLIB_LOG_LEVEL="off", **machine)
    assert done.returncode == 1
    assert "MissingArtifactError: norm-cpu: no valid artifact" in done.stderr
    assert "g++: not found on PATH" in done.stderr


def test_the_command_tells_what_it_built(built):
    folder, told = built
    *rows, total, wheel = told.splitlines()
    specs = [spec for spec in shipped_specs() if spec.supports("cpu")]
    assert [row.split()[:2] for row in rows] == [[spec.uri, "cpu"] for spec in specs]
    assert total.startswith(f"{len(specs)} artifacts, ")
    assert wheel.startswith(str(folder))


def test_every_operator_ships_for_the_cpu_and_for_cuda():
    """Each public operator declares what is worth building ahead: its libraries are all there."""
    for target in ("cpu", "sm_90a"):
        names = {spec.name for spec in shipped_specs() if spec.supports(target)}
        assert {"norm", "activation", "append_paged_kv", "paged_decode"} <= names


def test_a_pattern_narrows_what_is_built(tmp_path):
    done = kernlib_command("aot", "build", "norm", "--target", "cpu", "--out", tmp_path / "aot")
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "aot").iterdir())) == 1
    done = kernlib_command("aot", "build", "nothing", "--target", "cpu", "--out", tmp_path / "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no kernel matches 'nothing'. There are " in done.stderr


@pytest.mark.parametrize("target", ["sm_70", "gpu", "cpu,sm_70"])
def test_a_target_that_nothing_supports_is_refused_before_building(tmp_path, target):
    done = kernlib_command("aot", "build", "--target", target, "--out", tmp_path / "aot")
    assert done.returncode == 2
    assert "does not support target" in done.stderr
    assert not (tmp_path / "aot").exists()


def test_a_wheel_is_made_of_a_folder(aot, tmp_path):
    done = kernlib_command("aot", "wheel", aot, "--out", tmp_path / "dist")
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").iterdir()
    assert done.stdout.startswith(str(wheel))


def norm_build(path):
    (build,) = runs.recorded_call(path)["builds"]
    return build


def test_such_a_machine_records_and_replays_its_call(aot, machine, tmp_path):
    package = {**machine, "KERNLIB_AOT_DIR": str(aot)}
    done = runs.record(NORM, tmp_path / "dumps", **package)
    assert done.returncode == 0, done.stderr
    path = runs.capsule(tmp_path / "dumps")
    recorded = norm_build(path)
    library = Path(recorded["library"]["path"])
    assert library.parent == aot / recorded["key"]
    session = json.loads((path.parent / "session.json").read_text())
    assert session["process"]["controls"]["KERNLIB_AOT_DIR"] == str(aot)
    files = path.parent / "builds" / recorded["key"]
    assert jit.record_key(jit.decode_record((files / "build.json").read_bytes())) == recorded["key"]
    assert (files / "sources/csrc/norm/norm_cpu.cc").is_file()

    replayed = runs.replay(path, **package)
    (build,) = replayed.builds
    assert replayed.verdict == "passed"
    assert (build["key"], build["library"]) == (recorded["key"], str(library))
    assert build["is_recorded"]


@pytest.mark.parametrize("mode", [Mode.DEBUG, Mode.LINEINFO])
def test_a_replay_in_another_mode_builds_its_own_and_proves_it(aot, machine, tmp_path, mode):
    done = runs.record(NORM, tmp_path / "dumps", **machine, KERNLIB_AOT_DIR=str(aot))
    assert done.returncode == 0, done.stderr
    path, before = runs.capsule(tmp_path / "dumps"), snapshot(aot)
    workspace = tmp_path / "building"
    replayed = runs.replay(
        path, "--mode", mode, KERNLIB_AOT_DIR=str(aot), KERNLIB_WORKSPACE=str(workspace)
    )
    (build,) = replayed.builds
    assert (replayed.verdict, build["mode"]) == ("passed", str(mode))
    assert Path(build["library"]).parent == workspace / "artifacts" / build["key"]
    assert build["key"] != build["recorded_key"] == norm_build(path)["key"]
    assert build["same_sources_and_flags"]
    assert not build["is_recorded"]
    assert snapshot(aot) == before


def test_a_replay_that_cannot_build_debug_code_says_so(aot, machine, tmp_path):
    package = {**machine, "KERNLIB_AOT_DIR": str(aot)}
    runs.record(NORM, tmp_path / "dumps", **package)
    replayed = runs.replay(runs.capsule(tmp_path / "dumps"), "--mode", "debug", **package)
    assert (replayed.status, replayed.verdict) == (4, "build_failed")
    assert "g++: not found on PATH" in replayed.call["reason"]


@pytest.fixture
def stale(aot, tmp_path):
    """Return a package whose norm another version of kernlib built."""
    folder = tmp_path / "stale"
    plan = jit.plan(
        jit.KernelChoice(spec=ops._norm.norm_spec("cpu"), target="cpu"), Config(aot_dir=aot)
    )
    for path in aot.glob("*/build.json"):
        metadata = json.loads(path.read_text())
        if metadata["record"]["uri"] == plan.record.uri:
            metadata["record"]["kernlib"] = "0.0.9"
            place = folder / path.parent.name
            place.mkdir(parents=True)
            (place / "build.json").write_text(json.dumps(metadata))
            (place / "norm.so").write_bytes((path.parent / "norm.so").read_bytes())
    return folder


def test_a_stale_package_is_refused_with_both_versions(stale, machine):
    done = runs.record(
        NORM, "unused", KERNLIB_LOG_LEVEL="off", **machine, KERNLIB_AOT_DIR=str(stale)
    )
    assert done.returncode == 1
    assert "StaleArtifactError: norm-cpu for cpu" in done.stderr
    assert "kernlib: recorded 0.0.9, here 0.1.0" in done.stderr


def test_an_experiment_is_recorded_and_shown_by_a_replay(stale, machine, tmp_path):
    variables = {
        **machine, "KERNLIB_AOT_DIR": str(stale), "KERNLIB_ALLOW_VERSION_MISMATCH": "1",
    }  # fmt: skip
    done = runs.record(NORM, tmp_path / "dumps", **variables)
    assert done.returncode == 0, done.stderr
    assert "EXPERIMENT: KERNLIB_ALLOW_VERSION_MISMATCH=1" in done.stderr
    path = runs.capsule(tmp_path / "dumps")
    session = json.loads((path.parent / "session.json").read_text())
    assert session["process"]["controls"]["KERNLIB_ALLOW_VERSION_MISMATCH"] == "1"
    told = "kernlib: recorded 0.0.9, here 0.1.0"
    assert told in norm_build(path)["problem"]

    (build,) = runs.replay(path, **variables).builds
    assert any("KERNLIB_ALLOW_VERSION_MISMATCH=1" in text for text in build["differences"])
    text = runs.command(path, **variables).stdout
    assert "KERNLIB_ALLOW_VERSION_MISMATCH=1" in text
    assert str(stale) in text
    (build,) = runs.replay(path).builds  # built here, without the experiment
    assert not build["is_recorded"]
    assert any("when it was recorded" in text for text in build["differences"])

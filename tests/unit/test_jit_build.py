"""Builds, their folders and their failures, with compilers that only pretend."""

import json
import os
from pathlib import Path

import pytest
from jit_samples import (
    chosen,
    fake_config,
    plain_spec,
    python,
    twice_spec,
    write_root,
)

from kernlib import jit
from kernlib.config import Mode
from kernlib.errors import BuildError, LoadError, MissingArtifactError

PREPARE = "print(jit.prepare(chosen(plain_spec(root))).library)"


@pytest.fixture
def root(tmp_path):
    return write_root(tmp_path / "root")


@pytest.fixture
def config(tmp_path):
    return fake_config(tmp_path)


@pytest.fixture
def choice(root):
    return chosen(plain_spec(root))


def compiled(tmp_path):
    """Return how many units were compiled so far."""
    calls = (tmp_path / "tools" / "calls.txt").read_text().splitlines()
    return sum(" -c " in f" {line} " and "--dryrun" not in line for line in calls)


def entries(config, name="artifacts"):
    folder = config.workspace / name
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_an_artifact_holds_everything_of_its_build(root, config):
    choice = chosen(twice_spec(root))
    artifact = jit.prepare(choice, config)
    plan = jit.plan(choice, config)
    names = {path.name for path in artifact.path.iterdir()}
    assert names >= {
        "build.json", "build.log", "build.ninja", "compile_commands.json", "twice.so",
        "csrc_twice_twice_cpu.cc.o", "csrc_twice_binding.cc.o",
    }  # fmt: skip
    assert artifact.path == config.workspace / "artifacts" / plan.key
    assert (artifact.path / "build.ninja").read_text() == plan.manifest
    stored = json.loads((artifact.path / "build.json").read_bytes())
    assert stored["key"] == artifact.key == plan.key
    assert stored["library"] == {
        "name": "twice.so", "size": artifact.library.stat().st_size, "sha256": artifact.sha256,
    }  # fmt: skip
    assert artifact.record == plan.record
    commands = json.loads((artifact.path / "compile_commands.json").read_bytes())
    assert {row["directory"] for row in commands} == {str(artifact.path)}
    assert all(Path(row["file"]).is_file() for row in commands)


def test_the_compilers_see_copies_of_the_exact_closure(root, config):
    choice = chosen(plain_spec(root, headers=(("n.h", "// n\n"),)))
    plan = jit.plan(choice, config)
    jit.prepare(choice, config)
    folders = list((config.workspace / "generated" / choice.spec.uri).iterdir())
    assert folders == [plan.source_dir]
    files = {
        str(path.relative_to(plan.source_dir)): path.read_bytes()
        for path in plan.source_dir.rglob("*")
        if path.is_file()
    }
    assert files == plan.files


def test_sources_that_are_there_are_not_written_again(choice, config):
    jit.prepare(choice, config)
    copy = jit.plan(choice, config).source_dir / "include/twice/factor.h"
    os.utime(copy, ns=(1, 1))
    jit.prepare(choice, config, Mode.DEBUG)
    assert copy.stat().st_mtime_ns == 1


def test_nothing_is_written_into_the_sources(root, config, choice):
    before = sorted(root.rglob("*"))
    jit.prepare(choice, config)
    assert sorted(root.rglob("*")) == before


def test_a_second_time_nothing_is_built(tmp_path, choice, config):
    first = jit.prepare(choice, config)
    assert compiled(tmp_path) == 1
    assert jit.prepare(choice, config) == first
    assert jit.find_artifact(jit.plan(choice, config), config) == first
    assert compiled(tmp_path) == 1


def test_a_new_process_builds_after_an_edit_and_only_then(root, tmp_path, config):
    first = python(PREPARE, root, config)
    assert python(PREPARE, root, config) == first
    assert compiled(tmp_path) == 1
    header = root / "include/twice/factor.h"
    header.write_text(header.read_text().replace("2.0f", "3.0f"))
    assert python(PREPARE, root, config) != first
    assert compiled(tmp_path) == 2


def test_modes_are_built_apart(choice, config):
    libraries = {jit.prepare(choice, config, mode).library for mode in Mode}
    assert len(libraries) == len(Mode)


def test_with_the_cache_off_every_artifact_is_new_and_the_cache_is_left_alone(
    tmp_path, choice, config
):
    kept = jit.prepare(choice, config)
    off = config.replace(jit_cache=False)
    first, second = jit.prepare(choice, off), jit.prepare(choice, off)
    assert len({kept.path, first.path, second.path}) == 3
    assert compiled(tmp_path) == 3
    assert jit.prepare(choice, config) == kept


def test_where_building_is_disabled_a_missing_artifact_is_an_error(tmp_path, choice, config):
    disabled = config.replace(jit_disable=True)
    with pytest.raises(MissingArtifactError, match="nothing at") as raised:
        jit.prepare(choice, disabled)
    assert raised.value.key == jit.plan(choice, config).key
    assert compiled(tmp_path) == 0
    artifact = jit.prepare(choice, config)
    assert jit.prepare(choice, disabled) == artifact
    with pytest.raises(MissingArtifactError, match="KERNLIB_JIT_CACHE=0"):
        jit.prepare(choice, disabled.replace(jit_cache=False))


def test_a_failed_build_ends_with_the_first_error_and_keeps_its_log(tmp_path, choice, config):
    said = "note\n/ws/a.cc:3:5: error: no such thing\n    3 |   thing();\n      |   ^~~~~\nmore\n"
    (tmp_path / "tools" / "say").write_text(said)
    with pytest.raises(BuildError) as raised:
        jit.prepare(choice, config)
    assert str(raised.value).endswith("error: no such thing\n    3 |   thing();\n      |   ^~~~~")
    assert said in raised.value.log_path.read_text()
    assert str(raised.value.log_path) in str(raised.value)
    assert entries(config) == []
    (tmp_path / "tools" / "say").unlink()
    assert jit.prepare(choice, config).library.is_file()


def test_the_lock_file_stays(choice, config):
    artifact = jit.prepare(choice, config)
    assert entries(config, "locks") == [f"{artifact.key}.lock"]


def test_a_workspace_that_cannot_be_written_is_one_clear_error(tmp_path, choice):
    (tmp_path / "file").write_text("")
    config = fake_config(tmp_path, workspace=tmp_path / "file" / "below")
    with pytest.raises(LoadError) as raised:
        jit.prepare(choice, config)
    assert str(config.workspace) in str(raised.value)
    assert "KERNLIB_WORKSPACE" in str(raised.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="needs a user whom permissions bind: this is root")
def test_a_read_only_workspace_is_one_clear_error_and_still_serves(choice, config):
    artifact = jit.prepare(choice, config)
    folders = [config.workspace, *(path for path in config.workspace.iterdir() if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        assert jit.prepare(choice, config) == artifact
        with pytest.raises(LoadError, match="KERNLIB_WORKSPACE"):
            jit.prepare(choice, config, Mode.DEBUG)
    finally:
        for folder in folders:
            folder.chmod(0o755)


def test_recorded_sources_are_what_is_built(tmp_path, choice, config):
    write_root(
        tmp_path / "recorded" / choice.spec.uri,
        **{"csrc/twice/twice_cpu.cc": "// recorded\n"},
    )
    artifact = jit.prepare(choice, config.replace(jit_sources=tmp_path / "recorded"))
    assert artifact.library.read_text() == "// recorded\n"
    assert jit.prepare(choice, config).library.read_text() != "// recorded\n"


def test_verbose_shows_the_commands_and_builds_the_same(choice, config, capfd):
    quiet = jit.prepare(choice, config)
    assert capfd.readouterr().err == ""
    loud = jit.prepare(choice, config.replace(jit_verbose=True, jit_cache=False))
    assert "-O3" in capfd.readouterr().err
    assert (loud.key, loud.sha256) == (quiet.key, quiet.sha256)


def test_a_launcher_is_put_before_the_compiler(tmp_path, choice, config):
    launcher = tmp_path / "launcher"
    launcher.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/launched.txt\nexec "$@"\n')
    launcher.chmod(0o755)
    jit.prepare(choice, config.replace(compiler_launcher=(str(launcher),)))
    assert (tmp_path / "launched.txt").read_text().split() == [config.cxx]

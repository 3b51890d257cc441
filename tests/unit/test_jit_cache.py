"""What is taken for an artifact, and what becomes of the rest."""

import logging
import os
import time

import pytest
from jit_samples import (
    chosen,
    fake_config,
    plain_spec,
    write_root,
)

from kernlib import jit
from kernlib.config import Mode
from kernlib.errors import LoadError, MissingArtifactError
from kernlib.jit import _build, _cache


@pytest.fixture
def root(tmp_path):
    return write_root(tmp_path / "root")


@pytest.fixture
def config(tmp_path):
    return fake_config(tmp_path)


@pytest.fixture
def choice(root):
    return chosen(plain_spec(root))


def entries(config, name="artifacts"):
    folder = config.workspace / name
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def truncate(artifact, _):
    artifact.library.write_bytes(artifact.library.read_bytes()[:-1])


def flip(artifact, _):
    data = artifact.library.read_bytes()
    artifact.library.write_bytes(bytes([data[0] ^ 1]) + data[1:])


def remove_library(artifact, _):
    artifact.library.unlink()


def remove_metadata(artifact, _):
    (artifact.path / "build.json").unlink()


def tear_metadata(artifact, _):
    path = artifact.path / "build.json"
    path.write_bytes(path.read_bytes()[:100])


def put_another(artifact, other):
    for path in other.path.iterdir():
        (artifact.path / path.name).write_bytes(path.read_bytes())


def name_another_file(artifact, _):
    path = artifact.path / "build.json"
    path.write_text(path.read_text().replace("twice.so", "../../twice.so"))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (truncate, "bytes, its record says"), (flip, "digest"), (remove_library, "cannot be read"),
        (remove_metadata, "cannot be read"), (tear_metadata, "damaged"),
        (put_another, "mode: recorded debug, here release"), (name_another_file, "is called"),
    ],
)  # fmt: skip
def test_what_is_not_the_wanted_artifact_is_put_away_and_built_anew(
    choice, config, caplog, damage, words
):
    artifact = jit.prepare(choice, config)
    damage(artifact, jit.prepare(choice, config, Mode.DEBUG))
    with caplog.at_level(logging.INFO, "kernlib.jit"):
        again = jit.prepare(choice, config)
    assert again.library.read_bytes()
    assert (again.key, again.size) == (artifact.key, artifact.size)
    warnings = [row for row in caplog.records if row.levelno == logging.WARNING]
    assert [row.name for row in warnings] == ["kernlib.jit"]
    assert words in warnings[0].getMessage()
    (put_away,) = entries(config, "quarantine")
    assert put_away.startswith(artifact.key)
    caplog.clear()
    assert jit.prepare(choice, config) == again
    assert caplog.records == []


def test_a_file_in_place_of_an_artifact_is_no_artifact(choice, config):
    key = jit.plan(choice, config).key
    (config.workspace / "artifacts").mkdir()
    (config.workspace / "artifacts" / key).write_text("a file")
    assert jit.prepare(choice, config).library.is_file()


def test_a_lost_rename_uses_what_the_winner_made(choice, config, caplog):
    plan = jit.plan(choice, config)
    winner = _build._build(plan, config)
    loser = _build._build(plan, config)
    assert loser == winner
    assert entries(config) == [plan.key]
    winner.library.write_bytes(b"torn")
    assert _build._build(plan, config).library.read_bytes() != b"torn"
    assert "torn" not in caplog.text


def test_an_entry_that_is_bad_and_cannot_be_moved_ends_in_one_error(choice, config, monkeypatch):
    jit.prepare(choice, config).library.write_bytes(b"torn")
    monkeypatch.setattr(_cache, "_quarantine", lambda *_: None)
    with pytest.raises(LoadError, match="KERNLIB_WORKSPACE"):
        jit.prepare(choice, config)


def test_where_building_is_disabled_a_bad_artifact_is_described_and_left(choice, config):
    artifact = jit.prepare(choice, config)
    artifact.library.write_bytes(b"")
    with pytest.raises(MissingArtifactError, match="has 0 bytes"):
        jit.prepare(choice, config.replace(jit_disable=True))
    assert artifact.library.exists()


def test_what_killed_builds_left_is_removed_after_a_day(choice, config):
    key = jit.plan(choice, config).key
    old, young = (config.workspace / "artifacts" / f".{key}.{n}.left" for n in (1, 2))
    for folder in (old, young):
        folder.mkdir(parents=True)
    os.utime(old, (time.time() - 2 * 86400,) * 2)
    jit.prepare(choice, config)
    assert entries(config) == sorted([young.name, key])

"""What does not agree is refused with both sides named, and an experiment is loud."""

import logging
import platform

import pytest
from aot_samples import bare, edit_record, package, snapshot
from jit_samples import chosen, fake_config, plain_spec, write_root

from kernlib import jit
from kernlib.errors import MissingArtifactError, StaleArtifactError


@pytest.fixture(autouse=True)
def _processor(monkeypatch):
    """Be the machine that the pretending compilers make code for."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


@pytest.fixture
def root(tmp_path):
    return write_root(tmp_path / "root")


@pytest.fixture
def choice(root):
    return chosen(plain_spec(root))


@pytest.fixture
def aot(root, tmp_path):
    return package([plain_spec(root)], tmp_path / "factory")


def refused(choice, config, mode=None):
    with pytest.raises(MissingArtifactError) as raised:
        jit.prepare(choice, config.replace(jit_disable=True), mode)
    return raised.value


def edit_header(root):
    (root / "include/twice/factor.h").write_text("#pragma once\nconstexpr float kFactor = 3;\n")


#: What makes an artifact stale, by what is told of it.
CHANGES = {
    "csrc/twice/twice_cpu.cc: recorded sha256": "source",
    "include/twice/factor.h: recorded sha256": "header",
    "flags.cxx: recorded": "flags",
    "kernlib: recorded 0.1.0, here 9.9.9": "version",
    "tvm_ffi: recorded": "binding",
}


@pytest.fixture(params=CHANGES)
def stale(request, root, aot, monkeypatch):
    """Make the package stale; return what is told of it and what the Config must say."""
    change = CHANGES[request.param]
    assert aot.is_dir()
    if change == "source":
        unit = root / "csrc/twice/twice_cpu.cc"
        unit.write_text(unit.read_text() + "// edited\n")
    elif change == "header":
        edit_header(root)
    elif change == "version":
        monkeypatch.setattr("kernlib.jit._plan.__version__", "9.9.9")
    elif change == "binding":
        monkeypatch.setattr("kernlib.jit._native.Native.binding", lambda _: "9.9.9")
    return request.param, {"extra_cflags": ("-DOTHER",)} if change == "flags" else {}


def test_a_stale_artifact_is_refused_with_both_sides_named(choice, tmp_path, aot, stale):
    told, changes = stale
    error = refused(choice, bare(tmp_path, aot, **changes))
    assert isinstance(error, StaleArtifactError)
    assert told in str(error)
    assert "KERNLIB_JIT_DISABLE is set" in str(error)
    assert str(aot) in str(error)


def test_where_building_is_allowed_it_goes_on_after_one_warning(
    choice, tmp_path, aot, stale, caplog
):
    told, changes = stale
    before = snapshot(aot)
    for name in ("first", "second"):
        config = fake_config(tmp_path, aot_dir=aot, workspace=tmp_path / name, **changes)
        assert jit.prepare(choice, config).path.parent == config.workspace / "artifacts"
    (warning,) = [row for row in caplog.records if row.levelno == logging.WARNING]
    assert told in warning.getMessage()
    assert snapshot(aot) == before


def test_where_nothing_can_build_a_stale_artifact_is_named_with_the_compiler(
    root, choice, tmp_path, aot
):
    edit_header(root)
    with pytest.raises(StaleArtifactError, match=r"factor\.h.*/no/such/g\+\+: not found"):
        jit.prepare(choice, bare(tmp_path, aot))


@pytest.mark.parametrize("size", [0, 1, 132])
def test_a_damaged_library_is_refused_and_left_where_it_is(choice, tmp_path, aot, size, caplog):
    (library,) = aot.glob("*/twice.so")
    library.write_bytes(b"x" * size)
    assert "twice.so has" in str(refused(choice, bare(tmp_path, aot)))
    config = fake_config(tmp_path, aot_dir=aot)
    assert jit.prepare(choice, config).path.parent == config.workspace / "artifacts"
    assert library.read_bytes() == b"x" * size
    assert "twice.so has" in caplog.text


def test_a_library_of_the_same_size_but_other_bytes_is_refused(choice, tmp_path, aot):
    (library,) = aot.glob("*/twice.so")
    library.write_bytes(bytes(len(library.read_bytes())))
    assert "digest" in str(refused(choice, bare(tmp_path, aot)))


@pytest.mark.parametrize("text", ["", "{", '{"key": 1}'])
def test_a_damaged_record_is_no_artifact(choice, tmp_path, aot, text):
    (path,) = aot.glob("*/build.json")
    path.write_text(text)
    assert not isinstance(refused(choice, bare(tmp_path, aot)), StaleArtifactError)


@pytest.mark.parametrize("name", ["../twice.so", "/opt/twice.so"])
def test_a_library_outside_of_its_folder_is_refused(choice, tmp_path, aot, name):
    (path,) = aot.glob("*/build.json")
    path.write_text(path.read_text().replace('"name": "twice.so"', f'"name": "{name}"'))
    assert "its library is called" in str(refused(choice, bare(tmp_path, aot)))


def test_an_experiment_loads_it_and_says_so_every_time(choice, tmp_path, aot, stale, caplog):
    told, changes = stale
    config = bare(tmp_path, aot, allow_version_mismatch=True, **changes)
    for disable in (True, False):
        artifact = jit.prepare(choice, config.replace(jit_disable=disable))
        assert artifact.path.parent == aot
        assert told in "; ".join(map(str, artifact.mismatch))
    rows = [row for row in caplog.records if row.levelno == logging.ERROR]
    assert len(rows) == 2
    assert all("EXPERIMENT: KERNLIB_ALLOW_VERSION_MISMATCH=1" in row.getMessage() for row in rows)
    assert told in rows[0].getMessage()


def test_an_experiment_trusts_no_damaged_library(root, choice, tmp_path, aot):
    edit_header(root)
    (library,) = aot.glob("*/twice.so")
    library.write_bytes(b"")
    config = bare(tmp_path, aot, allow_version_mismatch=True)
    assert "twice.so has 0 bytes" in str(refused(choice, config))


def test_an_experiment_takes_what_agrees_without_a_word(choice, tmp_path, aot, caplog):
    config = bare(tmp_path, aot, allow_version_mismatch=True)
    assert jit.prepare(choice, config).mismatch == ()
    assert caplog.text == ""


def test_the_nearest_of_several_is_named(root, choice, tmp_path, aot):
    """A folder may hold builds of several versions."""
    edit_record(aot, lambda record: record.update(kernlib="0.0.1", tvm_ffi="0.0.1"))
    nearer = package([plain_spec(root)], tmp_path / "another")
    edit_record(nearer, lambda record: record.update(kernlib="0.0.2"))
    (folder,) = nearer.iterdir()
    folder.rename(aot / ("f" * 32))
    error = str(refused(choice, bare(tmp_path, aot)))
    assert "kernlib: recorded 0.0.2" in error
    assert "0.0.1" not in error

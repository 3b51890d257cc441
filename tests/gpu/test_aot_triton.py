"""Triton's objects are built ahead and served where Triton is not installed."""

import pytest
from aot_samples import package

from kernlib import jit
from kernlib.config import Config
from kernlib.errors import StaleArtifactError, ToolchainError
from kernlib.jit._triton import Triton
from kernlib.ops._activation import activation_spec

pytestmark = pytest.mark.requires("triton")


@pytest.fixture(scope="module")
def aot(tmp_path_factory):
    folder = tmp_path_factory.mktemp("triton")
    return package([activation_spec("triton")], folder, ("sm_80", "sm_90a"))


@pytest.fixture
def bare(aot, tmp_path, monkeypatch):
    """Return the Config of a machine that has no Triton."""

    def identity(_, config):
        del config
        raise ToolchainError("triton", "not installed", "Install it")

    monkeypatch.setattr(Triton, "identity", identity)
    return Config(workspace=tmp_path / "bare", aot_dir=aot, jit_disable=True)


def choice(target):
    return jit.KernelChoice(spec=activation_spec("triton"), target=target)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_without_triton_the_module_of_the_target_is_loaded(bare, target):
    artifact = jit.prepare(choice(target), bare)  # whatever this process has loaded before
    assert artifact.path.parent == bare.aot_dir
    assert jit.load(choice(target), bare).artifact.key == artifact.key
    assert artifact.record.target == target
    assert list(artifact.path.glob("*.cubin"))


def test_a_damaged_object_is_refused(bare, tmp_path):
    artifact = jit.prepare(choice("sm_90a"), bare)
    copied = tmp_path / "copied" / artifact.key
    copied.mkdir(parents=True)
    for path in artifact.path.iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    next(copied.glob("*.cubin")).write_bytes(b"")
    with pytest.raises(StaleArtifactError, match="does not have the size and digest"):
        jit.prepare(choice("sm_90a"), bare.replace(aot_dir=copied.parent))


def test_another_triton_does_not_agree(aot, tmp_path, monkeypatch):
    monkeypatch.setattr(Triton, "identity", lambda *_: {"triton": "0.0.1"})
    config = Config(workspace=tmp_path / "other", aot_dir=aot, jit_disable=True)
    with pytest.raises(StaleArtifactError, match=r"toolchain\.triton: recorded .*, here 0\.0\.1"):
        jit.prepare(choice("sm_90a"), config)

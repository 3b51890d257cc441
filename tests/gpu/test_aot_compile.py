"""CUDA kernels are built ahead for named targets and packaged; no device is needed."""

import json
import zipfile

import pytest
from aot_samples import snapshot
from capabilities import find_nvcc
from jit_samples import chosen, twice_spec, write_root

from kernlib import jit
from kernlib.config import Config, Mode
from kernlib.errors import MissingArtifactError, StaleArtifactError
from kernlib.jit._aot_package import ahead_choices, build_ahead
from kernlib.jit._aot_wheel import build_wheel

pytestmark = pytest.mark.requires("gxx", "nvcc")

TARGETS = ("sm_80", "sm_90a", "sm_100a")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_root(tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return Config(workspace=tmp_path_factory.mktemp("workspace"), nvcc=find_nvcc())


@pytest.fixture(scope="module")
def aot(root, config, tmp_path_factory):
    out = tmp_path_factory.mktemp("package") / "aot"
    choices = ahead_choices([twice_spec(root, "cuda"), twice_spec(root)], (*TARGETS, "cpu"))
    for _ in build_ahead(choices, out, config):
        pass
    return out


@pytest.fixture
def bare(aot, tmp_path):
    return Config(
        workspace=tmp_path / "bare", cxx="/no/such/g++", nvcc="/no/such/nvcc", aot_dir=aot,
        jit_disable=True,
    )  # fmt: skip


def test_there_is_one_artifact_for_each_target(aot):
    records = [json.loads(path.read_text())["record"] for path in aot.glob("*/build.json")]
    assert sorted(record["target"] for record in records) == sorted((*TARGETS, "cpu"))
    assert {record["mode"] for record in records} == {"release"}


@pytest.mark.parametrize("target", TARGETS)
def test_without_compilers_and_device_the_library_of_the_target_is_loaded(root, bare, target):
    kernel = jit.load(chosen(twice_spec(root, "cuda"), target), bare)
    assert kernel.artifact.path.parent == bare.aot_dir
    assert kernel.artifact.record.target == target
    assert callable(kernel.function("twice"))


def test_another_architecture_is_not_served(root, bare):
    with pytest.raises(MissingArtifactError, match="twice-cuda") as raised:
        jit.prepare(chosen(twice_spec(root, "cuda"), "sm_89"), bare)
    assert not isinstance(raised.value, StaleArtifactError)


def test_with_compilers_of_the_class_it_is_taken_as_well(root, aot, config, tmp_path):
    choice = chosen(twice_spec(root, "cuda"), "sm_80")
    elsewhere = config.replace(aot_dir=aot, workspace=tmp_path / "elsewhere")
    assert jit.prepare(choice, elsewhere).path.parent == aot


@pytest.mark.parametrize("mode", [Mode.LINEINFO, Mode.DEBUG])
def test_another_mode_is_built_and_the_package_stays(root, aot, config, mode):
    before = snapshot(aot)
    artifact = jit.prepare(
        chosen(twice_spec(root, "cuda"), "sm_90a"), config.replace(aot_dir=aot), mode
    )
    assert artifact.record.mode == mode
    assert artifact.path.parent == config.workspace / "artifacts"
    assert snapshot(aot) == before


def test_a_wheel_holds_every_target(aot, tmp_path):
    wheel = build_wheel(aot, tmp_path / "dist")
    with zipfile.ZipFile(wheel) as archive:
        libraries = [name for name in archive.namelist() if name.endswith("/twice.so")]
    assert len(libraries) == len(TARGETS) + 1

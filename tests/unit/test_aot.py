"""Artifacts built ahead of time are loaded where their record agrees, and only there."""

import platform
import sys

import pytest
from aot_samples import bare, compiled, package, snapshot
from jit_samples import chosen, fake_config, fake_cxx, plain_spec, write_root

from kernlib import jit
from kernlib.config import Mode
from kernlib.errors import (
    ConfigError,
    MissingArtifactError,
    StaleArtifactError,
    ToolchainError,
)
from kernlib.jit import _aot
from kernlib.jit._toolchain import toolchain_class

OTHER_MODES = [mode for mode in Mode if mode is not Mode.RELEASE]


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


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        ("g++ (Debian 12.2.0-14+deb12u1) 12.2.0, x86_64-linux-gnu", "g++ 12, x86_64"),
        ("g++ (GCC) 11.4.1 20230605 (Red Hat 11.4.1-2), aarch64-redhat-linux", "g++ 11, aarch64"),
        ("c++ (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0, x86_64-linux-gnu", "g++ 13, x86_64"),
        ("x86_64-conda-linux-gnu-c++ (conda-forge gcc 14.2.0-2) 14.2.0, x86_64-conda-linux-gnu",
         "g++ 14, x86_64"),
        ("Debian clang version 14.0.6, x86_64-pc-linux-gnu", "clang 14, x86_64"),
        ("something else, riscv64-unknown", "something else, riscv64"),
    ],
)  # fmt: skip
def test_the_class_of_a_compiler_is_family_major_version_and_processor(identity, expected):
    assert toolchain_class({"cxx": identity}) == {"cxx": expected}


def test_folders_of_the_builder_are_no_part_of_the_class_and_flags_are():
    identity = {"nvcc": "nvcc V13.0.88", "triton": "3.5.1", "CPATH": "/a",
                "NVCC_APPEND_FLAGS": "-use_fast_math"}  # fmt: skip
    assert toolchain_class(identity) == {
        "nvcc": "nvcc 13", "triton": "3.5.1", "NVCC_APPEND_FLAGS": "-use_fast_math",
    }  # fmt: skip


def test_a_machine_without_compilers_takes_what_was_built_ahead(choice, tmp_path, aot):
    config = bare(tmp_path, aot)
    for disable in (True, False):
        artifact = jit.prepare(choice, config.replace(jit_disable=disable))
        assert artifact.path.parent == aot
        assert artifact.record.toolchain
        assert artifact.mismatch == ()
    assert not config.workspace.exists()


def test_each_target_has_its_artifact(root, tmp_path):
    specs = [plain_spec(root), plain_spec(root, "cuda")]
    aot = package(specs, tmp_path / "factory", ("sm_80", "cpu", "sm_90a"))
    config = bare(tmp_path, aot, jit_disable=True)
    choices = [chosen(specs[0]), *(chosen(specs[1], target) for target in ("sm_80", "sm_90a"))]
    found = [jit.prepare(choice, config) for choice in choices]
    assert [artifact.record.target for artifact in found] == ["cpu", "sm_80", "sm_90a"]
    assert len({artifact.path for artifact in found}) == 3
    error = refused(chosen(specs[1], "sm_100a"), config)
    assert not isinstance(error, StaleArtifactError)
    assert f"the package {aot}, which has it for sm_80, sm_90a" in str(error)


def test_compilers_of_the_same_class_agree_and_nothing_is_built(choice, tmp_path, aot):
    tools = tmp_path / "tools"
    config = fake_config(tmp_path, aot_dir=aot, cxx=str(fake_cxx(tools, "1.7")))
    assert jit.prepare(choice, config).path.parent == aot
    assert compiled(tools) == 0


def test_compilers_of_another_class_do_not_agree(choice, tmp_path, aot, caplog):
    tools = tmp_path / "tools"
    config = fake_config(tmp_path, aot_dir=aot, cxx=str(fake_cxx(tools, "2.0")))
    told = "toolchain.cxx: recorded pretended 1, x86_64, here pretended 2, x86_64"
    assert told in str(refused(choice, config))
    assert jit.prepare(choice, config).path.parent == config.workspace / "artifacts"
    assert compiled(tools) == 1
    assert told in caplog.text


def test_without_compilers_the_processor_is_compared(choice, tmp_path, aot, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    error = refused(choice, bare(tmp_path, aot))
    assert "recorded pretended 1, x86_64, here no compiler, aarch64" in str(error)


def test_flags_that_the_builder_had_in_its_environment_are_compared(
    choice, tmp_path, root, monkeypatch
):
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-use_fast_math")
    aot = package([plain_spec(root)], tmp_path / "factory")
    assert jit.prepare(choice, bare(tmp_path, aot)).path.parent == aot
    monkeypatch.delenv("NVCC_APPEND_FLAGS")
    assert "NVCC_APPEND_FLAGS: recorded -use_fast_math" in str(refused(choice, bare(tmp_path, aot)))


def test_the_workspace_comes_before_the_package(choice, tmp_path, aot):
    config = fake_config(tmp_path)
    built = jit.prepare(choice, config)
    assert jit.prepare(choice, config.replace(aot_dir=aot)).path == built.path
    assert jit.prepare(choice, config.replace(aot_dir=aot, jit_disable=True)).path == built.path


def test_a_loaded_kernel_is_not_looked_for_again(choice, tmp_path, aot, monkeypatch):
    monkeypatch.setattr("kernlib.jit._native.Native.open", lambda *_: object())
    config = bare(tmp_path, aot)
    kernel = jit.load(choice, config)
    assert kernel.artifact.path.parent == aot
    monkeypatch.setattr("kernlib.jit._load.prepare", None)
    assert jit.load(choice, config) is kernel


def test_without_compiler_and_package_the_compiler_is_named(choice, tmp_path):
    config = bare(tmp_path, None)
    with pytest.raises(ToolchainError, match="KERNLIB_CXX"):
        jit.prepare(choice, config)
    message = str(refused(choice, config))
    assert "no toolchain (/no/such/g++: not found" in message
    assert "no ahead-of-time package" in message


@pytest.mark.parametrize("mode", OTHER_MODES)
def test_another_mode_is_never_served_by_a_package_and_replaces_nothing(
    choice, tmp_path, aot, mode, caplog
):
    config = fake_config(tmp_path, aot_dir=aot)
    release = jit.prepare(choice, config.replace(aot_dir=None))
    before = snapshot(aot) | snapshot(release.path)
    assert not isinstance(refused(choice, config, mode), StaleArtifactError)
    for wanted in (config, config.replace(allow_version_mismatch=True)):
        other = jit.prepare(choice, wanted, mode)
        assert other.record.mode == mode
        assert other.path.parent == config.workspace / "artifacts"
        assert other.key != release.key
    assert snapshot(aot) | snapshot(release.path) == before
    assert jit.prepare(choice, config).path == release.path
    assert caplog.text == ""


def test_only_release_builds_are_taken_from_a_package(choice, tmp_path):
    """A package may be a copied workspace, debug builds and all."""
    config = fake_config(tmp_path)
    jit.prepare(choice, config, Mode.DEBUG)
    copied = config.replace(aot_dir=config.workspace / "artifacts", workspace=tmp_path / "other")
    assert not isinstance(refused(choice, copied, Mode.DEBUG), StaleArtifactError)
    assert not isinstance(refused(choice, copied), StaleArtifactError)


def test_without_compilers_a_workspace_from_another_machine_serves(choice, tmp_path):
    config = fake_config(tmp_path)
    built = {mode: jit.prepare(choice, config, mode) for mode in (Mode.RELEASE, Mode.DEBUG)}
    brought = bare(tmp_path, None, workspace=config.workspace, jit_disable=True)
    for mode, artifact in built.items():
        assert jit.prepare(choice, brought, mode).path == artifact.path


def test_with_the_cache_off_packages_are_ignored_as_well(choice, tmp_path, aot):
    config = fake_config(tmp_path, aot_dir=aot, jit_cache=False)
    assert not jit.prepare(choice, config).path.is_relative_to(aot)
    assert not isinstance(refused(choice, config), StaleArtifactError)


@pytest.mark.parametrize("kind", ["nothing", "file"])
def test_a_variable_that_names_no_folder_is_an_error(choice, tmp_path, kind):
    path = tmp_path / "package"
    if kind == "file":
        path.touch()
    with pytest.raises(ConfigError, match="KERNLIB_AOT_DIR"):
        jit.prepare(choice, bare(tmp_path, path))


def test_the_installed_package_is_used_unless_the_variable_names_another(
    root, choice, tmp_path, aot, monkeypatch
):
    site = tmp_path / "site"
    (site / "kernlib_aot").mkdir(parents=True)
    (site / "kernlib_aot" / "__init__.py").touch()
    (aot).rename(site / "kernlib_aot" / "artifacts")
    monkeypatch.syspath_prepend(str(site))
    _aot._installed.cache_clear()
    try:
        config = bare(tmp_path, None)
        assert jit.prepare(choice, config).path.parent == site / "kernlib_aot" / "artifacts"
        assert "kernlib_aot" not in sys.modules
        other = package([plain_spec(root)], tmp_path / "another")
        assert jit.prepare(choice, config.replace(aot_dir=other)).path.parent == other
    finally:
        _aot._installed.cache_clear()

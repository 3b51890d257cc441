"""Specs of another library compile for every target; no device is needed."""

import re
import subprocess

import pytest
from capabilities import find_nvcc
from jit_samples import chosen, plain_spec, python, twice_spec, write_root

from kernlib import jit
from kernlib.config import Config, Mode
from kernlib.errors import BuildError, UnsupportedTargetError

pytestmark = pytest.mark.requires("gxx", "nvcc")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_root(tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return Config(workspace=tmp_path_factory.mktemp("workspace"), nvcc=find_nvcc())


def symbols(library):
    done = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_a_library_is_built_for_one_target(root, config, target):
    artifact = jit.prepare(chosen(twice_spec(root, "cuda"), target), config)
    assert artifact.record.target == target
    # Variables of the machine that compilers read may stand there too.
    assert {"cxx", "nvcc"} <= set(artifact.record.toolchain)
    assert "__tvm_ffi_twice" in symbols(artifact.library)


def test_device_code_is_compiled_without_headers_of_the_binding_layer(root, config):
    plan = jit.plan(chosen(twice_spec(root, "cuda")), config)
    tools = {step.source.rpartition("/")[2]: step.tool for step in plan.steps.steps}
    assert tools == {"twice.cu": "nvcc", "binding.cc": "cxx"}
    assert not any("tvm" in flag for flag in plan.record.flags["cuda"])


def test_no_library_needs_a_driver_or_a_runtime_on_the_machine_that_builds(root, config):
    artifact = jit.prepare(chosen(twice_spec(root, "cuda")), config)
    done = subprocess.run(
        ["readelf", "-d", artifact.library], capture_output=True, text=True, check=True
    )
    assert "libcuda" not in done.stdout
    assert "libtvm_ffi.so" in done.stdout


def test_the_binding_alone_needs_no_nvcc_to_compile(root, config):
    flags = jit.plan(chosen(twice_spec(root, "cuda")), config).record.flags["cxx"]
    assert "{cuda}/include" in flags
    assert not any("gencode" in flag for flag in flags)


@pytest.mark.parametrize("mode", [Mode.LINEINFO, Mode.DEBUG])
def test_modes_are_artifacts_of_their_own(root, config, mode):
    choice = chosen(plain_spec(root, "cuda"))
    release, other = jit.prepare(choice, config), jit.prepare(choice, config, mode)
    assert other.key != release.key
    assert other.sha256 != release.sha256


def test_an_error_of_device_code_ends_with_its_source_line(config, tmp_path):
    broken = write_root(tmp_path / "broken")
    unit = broken / "csrc/twice/twice.cu"
    unit.write_text(unit.read_text().replace("kFactor", "kFaktor"))
    with pytest.raises(BuildError) as raised:
        jit.prepare(chosen(plain_spec(broken, "cuda")), config)
    error, source, marker = str(raised.value).splitlines()[1:4]
    assert re.search(r'twice\.cu\(5\): error: identifier "kFaktor" is undefined', error)
    assert "kFaktor * x[i]" in source
    assert "^" in marker


def test_an_unknown_architecture_is_a_build_error_and_an_older_one_never_starts(root, config):
    spec = plain_spec(root, "cuda", targets=("sm_80+",))
    with pytest.raises(BuildError, match="999"):
        jit.prepare(chosen(spec, "sm_999"), config)
    with pytest.raises(UnsupportedTargetError, match="sm_75"):
        jit.prepare(chosen(spec, "sm_75"), config)


def test_a_new_process_asks_no_compiler_that_is_known(root, config, tmp_path):
    """The answer to which nvcc this is costs more than a warm load may take."""
    counted = tmp_path / "nvcc"
    counted.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls.txt\nexec {find_nvcc()} "$@"\n')
    counted.chmod(0o755)
    watched = config.replace(nvcc=str(counted))
    code = "print(jit.plan(chosen(plain_spec(root, 'cuda'))).key)"
    keys = {python(code, root, watched) for _ in range(2)}
    assert len(keys) == 1
    assert keys == {jit.plan(chosen(plain_spec(root, "cuda")), config).key}
    assert len((tmp_path / "calls.txt").read_text().splitlines()) == 2

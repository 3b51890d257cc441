"""A plan: every component is in the key, and no compiler starts that is known."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from jit_samples import (
    chosen,
    fake_config,
    fake_cxx,
    fake_nvcc,
    plain_spec,
    python,
    twice_spec,
    write_root,
)

from kernlib import jit
from kernlib.config import Mode
from kernlib.errors import SpecError, ToolchainError, UnsupportedTargetError
from kernlib.jit import _native, _plan


@pytest.fixture
def root(tmp_path):
    return write_root(tmp_path / "root")


@pytest.fixture
def config(tmp_path):
    return fake_config(tmp_path)


def key(spec, config, target=None, mode=None):
    return jit.plan(chosen(spec, target), config, mode).key


@pytest.mark.parametrize("label", ["csrc/twice/twice_cpu.cc", "include/twice/factor.h"])
def test_a_source_and_a_header_it_only_reaches_through_another_change_the_key(root, config, label):
    before = key(plain_spec(root), config)
    (root / label).write_text((root / label).read_text() + "// edited\n")
    assert key(plain_spec(root), config) != before


@pytest.mark.parametrize(
    "changes",
    [
        {"params": (("n", 1),)},
        {"headers": (("n.h", "#define N 1\n"),)},
        {"cflags": ("-DN",)},
        {"ldflags": ("-lm",)},
        {"include_dirs": ("csrc", "include")},
        {"name": "thrice"},
        {"sources": ("csrc/twice/twice_cpu.cc", "csrc/twice/binding.cc")},
    ],
)
def test_what_a_spec_says_changes_the_key(root, config, changes):
    assert key(plain_spec(root, **changes), config) != key(plain_spec(root), config)


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize("field", ["extra_cflags", "extra_cudaflags", "extra_ldflags"])
def test_flags_of_the_user_change_the_key_of_what_they_reach(root, config, backend, field):
    spec = plain_spec(root, backend)
    reached = backend == "cuda" or field != "extra_cudaflags"
    changed = key(spec, config.replace(**{field: ("-DN",)})) != key(spec, config)
    assert changed is reached


def test_cuda_flags_change_the_key(root, config):
    flagged = plain_spec(root, "cuda", cuda_flags=("-DN",))
    assert key(flagged, config) != key(plain_spec(root, "cuda"), config)


def test_no_two_modes_or_targets_share_a_key(root, config):
    spec = plain_spec(root, "cuda")
    modes = [mode for mode in Mode if not mode.instruments]
    targets = ("sm_80", "sm_90a", "sm_100a")
    keys = {key(spec, config, target, mode) for mode in modes for target in targets}
    assert len(keys) == len(modes) * len(targets)
    assert len({key(plain_spec(root), config, mode=mode) for mode in Mode}) == len(Mode)


def test_the_configured_mode_is_the_default(root, config):
    debug = config.replace(jit_mode=Mode.DEBUG)
    assert key(plain_spec(root), debug) == key(plain_spec(root), config, mode=Mode.DEBUG)


def test_another_compiler_version_changes_the_key(root, tmp_path, config):
    before = key(plain_spec(root, "cuda"), config)
    other = config.replace(cxx=str(fake_cxx(tmp_path / "newer", "2.0")))
    assert key(plain_spec(root, "cuda"), other) != before
    other = config.replace(nvcc=str(fake_nvcc(tmp_path / "newer", "13.1")))
    assert key(plain_spec(root, "cuda"), other) != before


def test_versions_of_the_binding_layer_and_of_kernlib_change_the_key(root, config, monkeypatch):
    before = key(plain_spec(root), config)
    folder, version = _native.tvm_ffi()
    with monkeypatch.context() as patch:
        patch.setattr(_native, "tvm_ffi", lambda: (folder, version + ".1"))
        assert key(plain_spec(root), config) != before
    monkeypatch.setattr(_plan, "__version__", "0.0.0")
    assert key(plain_spec(root), config) != before


@pytest.mark.parametrize("variable", ["CPATH", "LIBRARY_PATH", "NVCC_APPEND_FLAGS"])
def test_variables_that_steer_a_compiler_change_the_key(root, config, monkeypatch, variable):
    monkeypatch.delenv(variable, raising=False)
    before = key(plain_spec(root, "cuda"), config)
    monkeypatch.setenv(variable, "-DN")
    assert key(plain_spec(root, "cuda"), config) != before


def test_what_changes_nothing_that_is_built_is_not_in_the_key(root, tmp_path, config):
    quiet = key(plain_spec(root), config)
    others = config.replace(
        jit_verbose=True, max_jobs=3, nvcc_threads=2, compiler_launcher=("env",), sync=True,
        workspace=tmp_path / "elsewhere",
    )  # fmt: skip
    assert key(plain_spec(root), others) == quiet
    moved = write_root(tmp_path / "moved")
    assert key(plain_spec(moved), config) == quiet


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_the_record_names_no_path_of_this_host(root, tmp_path, config, backend):
    plan = jit.plan(chosen(twice_spec(root, backend)), config)
    text = jit.record_json(plan.record).decode()
    assert str(tmp_path) not in text
    assert str(Path(_native.tvm_ffi()[0])) not in text
    assert "-I{root}/include" in plan.record.flags["cxx"]
    assert str(tmp_path) in plan.manifest
    assert "{" not in plan.manifest


def test_a_plan_holds_the_exact_sources(root, config):
    plan = jit.plan(chosen(plain_spec(root, headers=(("n.h", "// n\n"),))), config)
    assert sorted(plan.files) == sorted(plan.record.sources)
    assert plan.files["generated/n.h"] == b"// n\n"
    assert plan.record.headers == ("generated/n.h",)
    assert plan.record.units == ("csrc/twice/twice_cpu.cc",)


def test_flags_of_the_modes(root, config):
    flags = {
        mode: jit.plan(chosen(plain_spec(root)), config, mode).record.flags["cxx"] for mode in Mode
    }
    assert set(flags[Mode.LINEINFO]) - set(flags[Mode.RELEASE]) == {"-gdwarf-4", "-g1"}
    assert set(flags[Mode.RELEASE]) < set(flags[Mode.LINEINFO])
    assert {"-O0", "-g"} <= set(flags[Mode.DEBUG])
    assert "-fsanitize=address,undefined" in flags[Mode.SANITIZE]
    assert "-fsanitize=undefined" in flags[Mode.UNDEFINED]
    assert "-fsanitize=thread" in flags[Mode.THREAD]
    assert not any("march" in flag or "fast" in flag for row in flags.values() for flag in row)


def test_flags_of_the_modes_on_cuda(root, config):
    spec = plain_spec(root, "cuda")
    flags = {
        mode: jit.plan(chosen(spec), config, mode).record.flags["cuda"]
        for mode in (Mode.RELEASE, Mode.LINEINFO, Mode.DEBUG)
    }
    assert set(flags[Mode.LINEINFO]) - set(flags[Mode.RELEASE]) == {"-lineinfo"}
    assert "-G" in flags[Mode.DEBUG]
    assert "arch=compute_90a,code=sm_90a" in flags[Mode.RELEASE]
    assert flags[Mode.RELEASE][flags[Mode.RELEASE].index("-ccbin") + 1] == "{cxx}"


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode.instruments])
def test_a_sanitizers_mode_is_the_cpus(root, config, mode):
    with pytest.raises(SpecError, match=f"mode {mode} .* compute-sanitizer"):
        jit.plan(chosen(plain_spec(root, "cuda")), config, mode)


def test_an_unsupported_target_is_refused_before_any_compiler(root, tmp_path):
    config = fake_config(tmp_path, cxx="/no/such/g++", nvcc="/no/such/nvcc")
    with pytest.raises(UnsupportedTargetError, match=r"sm_75.*sm_80\+"):
        jit.plan(chosen(plain_spec(root, "cuda"), "sm_75"), config)
    with pytest.raises(UnsupportedTargetError, match="sm_90a"):
        jit.plan(chosen(plain_spec(root), "sm_90a"), config)


@pytest.mark.parametrize(("tool", "package"), [("cxx", r"g\+\+"), ("nvcc", "CUDA toolkit")])
def test_a_missing_compiler_is_named_with_its_variable(root, tmp_path, tool, package):
    config = fake_config(tmp_path, **{tool: "/no/such/compiler"})
    choice = chosen(plain_spec(root, "cuda"))
    assert isinstance(jit.plan(choice, config).missing, ToolchainError)
    with pytest.raises(ToolchainError, match=package) as raised:
        jit.prepare(choice, config)
    assert "/no/such/compiler" in str(raised.value)
    assert f"KERNLIB_{tool.upper()}" in str(raised.value)


def test_a_cpu_kernel_needs_no_nvcc(root, tmp_path):
    jit.plan(chosen(plain_spec(root)), fake_config(tmp_path, nvcc="/no/such/nvcc"))


def test_a_compiler_that_does_not_answer_is_named(root, tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(ToolchainError, match="--version"):
        jit.prepare(chosen(plain_spec(root)), fake_config(tmp_path, cxx=str(broken)))


WARM = "print(jit.plan(chosen(plain_spec(root))).key)"


def test_a_new_process_starts_no_compiler_that_is_known(root, tmp_path, config):
    calls = tmp_path / "tools" / "calls.txt"
    first = python(WARM, root, config)
    asked = calls.read_text()
    assert asked
    assert python(WARM, root, config) == first
    assert calls.read_text() == asked


def test_a_compiler_that_changed_is_asked_again(root, tmp_path, config):
    first = python(WARM, root, config)
    tool = fake_cxx(tmp_path / "tools", "2.0")
    os.utime(tool, ns=(1, 1))
    assert python(WARM, root, config) != first


def test_one_launcher_under_two_names_is_two_compilers(tmp_path, config):
    """Wrappers such as ccache serve every compiler from one file."""
    launcher = tmp_path / "launcher"
    launcher.write_text('#!/bin/sh\n[ "$1" = --version ] && basename "$0" || echo machine\n')
    launcher.chmod(0o755)
    found = []
    for name in ("one", "two"):
        link = tmp_path / name
        link.symlink_to(launcher)
        identity = jit.toolchain_identity("cpu", config.replace(cxx=str(link)))
        found.append(identity["cxx"])
    assert found == ["one, machine", "two, machine"]


def test_recorded_sources_take_the_place_of_the_installed_ones(root, tmp_path, config):
    spec = plain_spec(root)
    recorded = write_root(
        tmp_path / "recorded" / spec.uri, **{"include/twice/factor.h": "constexpr float kF = 3;\n"}
    )
    assert recorded.is_dir()
    other = config.replace(jit_sources=tmp_path / "recorded")
    plan = jit.plan(chosen(spec), other)
    assert b"kF = 3" in plan.files["include/twice/factor.h"]
    assert plan.key != key(spec, config)
    elsewhere = replace(spec, name="thrice")
    assert key(elsewhere, other) == key(elsewhere, config)


def test_a_recorded_build_planned_from_its_own_files_has_its_own_key(root, tmp_path, config):
    """What a replay does: the closure of a plan, written out by label, is the same build."""
    spec = plain_spec(root, headers=(("n.h", "#define N 1\n"),))
    plan = jit.plan(chosen(spec), config)
    for label, text in plan.files.items():
        path = tmp_path / "recorded" / spec.uri / label
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    again = jit.plan(chosen(spec), config.replace(jit_sources=tmp_path / "recorded"))
    assert again.key == plan.key


def test_a_mode_may_be_written_as_its_name_and_an_unknown_one_is_told(root, config):
    assert jit.plan(chosen(plain_spec(root)), config, "debug").mode is Mode.DEBUG
    with pytest.raises(
        ValueError, match=r"no kernel is built in mode 'quick'; .*release, lineinfo"
    ):
        jit.plan(chosen(plain_spec(root)), config, "quick")

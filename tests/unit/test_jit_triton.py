"""Triton as a toolchain: what decides a key, what is refused, what is verified."""

import hashlib
import json
from dataclasses import replace
from importlib import metadata

import pytest
import torch

from kernlib import jit
from kernlib.config import Config, Mode
from kernlib.errors import (
    ArgumentError,
    LoadError,
    SpecError,
    ToolchainError,
    UnsupportedTargetError,
)
from kernlib.jit import _triton
from kernlib.jit._triton import Triton
from kernlib.ops._activation import activation_kernels, activation_spec
from kernlib.ops._library import choose

SOURCE = "import triton\nimport triton.language as tl\n\nSPECIALISATIONS = {}\n"


@pytest.fixture
def versions(monkeypatch):
    """Pretend that Triton is installed; the version can be set."""
    known = {"triton": "3.6.0"}
    asked = metadata.version
    monkeypatch.setattr(
        _triton.metadata, "version", lambda name: known[name] if name in known else asked(name)
    )
    return known


@pytest.fixture
def config(tmp_path):
    return Config(workspace=tmp_path / "workspace")


@pytest.fixture
def spec(tmp_path):
    source = tmp_path / "root/csrc/scale_triton.py"
    source.parent.mkdir(parents=True)
    source.write_text(SOURCE)
    return jit.KernelSpec(
        name="scale",
        backend="triton",
        root=tmp_path / "root",
        sources=("csrc/scale_triton.py",),
        targets=("sm_80+",),
    )


def planned(spec, config, target="sm_90a", mode=None):
    return jit.plan(jit.KernelChoice(spec=spec, target=target), config, mode)


@pytest.mark.usefixtures("versions")
def test_the_record_holds_what_decides_the_build(spec, config):
    record = planned(spec, config).record
    assert record.uri == "scale-triton"
    assert record.toolchain == {"triton": "3.6.0"}
    digest = hashlib.sha256(SOURCE.encode()).hexdigest()
    assert record.sources == {"csrc/scale_triton.py": digest}
    assert record.flags == {"triton": ("--capability", "90")}
    assert planned(spec, config).library == "scale.json"


def test_another_triton_is_another_key(spec, config, versions):
    before = planned(spec, config)
    assert planned(spec, config).key == before.key
    versions["triton"] = "3.6.1"
    now = planned(spec, config)
    assert now.key != before.key
    assert [str(row) for row in jit.compare_records(before.record, now.record)] == [
        "toolchain.triton: recorded 3.6.0, here 3.6.1"
    ]


@pytest.mark.usefixtures("versions")
def test_another_source_is_another_key(spec, config):
    before = planned(spec, config)
    (spec.root / "csrc/scale_triton.py").write_text(SOURCE + "# changed\n")
    now = planned(spec, config)
    assert now.key != before.key
    assert [row.field for row in jit.compare_records(before.record, now.record)] == [
        "csrc/scale_triton.py"
    ]


@pytest.mark.usefixtures("versions")
def test_targets_and_modes_are_keys_of_their_own(spec, config):
    plans = [
        planned(spec, config, target, mode)
        for target in ("sm_80", "sm_90a", "sm_100a")
        for mode in (Mode.RELEASE, Mode.LINEINFO)
    ]
    assert len({plan.key for plan in plans}) == 6
    assert plans[-1].record.flags == {"triton": ("--capability", "100", "--line-info")}


@pytest.mark.usefixtures("versions")
def test_flags_of_other_compilers_change_nothing(spec, config):
    other = config.replace(extra_cflags=("-g",), extra_cudaflags=("-G",), cxx="clang++", nvcc="no")
    assert planned(spec, other).key == planned(spec, config).key


@pytest.mark.usefixtures("versions")
def test_recorded_sources_take_the_place_of_the_installed_ones(spec, config, tmp_path):
    recorded = tmp_path / "recorded" / spec.uri / "csrc/scale_triton.py"
    recorded.parent.mkdir(parents=True)
    recorded.write_text(SOURCE + "# recorded\n")
    plan = planned(spec, config.replace(jit_sources=tmp_path / "recorded"))
    assert plan.files == {"csrc/scale_triton.py": recorded.read_bytes()}
    assert plan.key != planned(spec, config).key


@pytest.mark.usefixtures("versions")
@pytest.mark.parametrize("mode", [Mode.DEBUG, Mode.SANITIZE])
def test_modes_that_triton_has_not_are_refused(spec, config, mode):
    with pytest.raises(SpecError, match=f"Triton builds release and lineinfo, not {mode}"):
        planned(spec, config, mode=mode)


@pytest.mark.usefixtures("versions")
@pytest.mark.parametrize(
    ("target", "supported"),
    [("sm_90", "sm_90a"), ("sm_100f", "sm_100a"), ("sm_86a", "sm_86"), ("sm_75", "sm_80+")],
)
def test_a_target_that_triton_would_build_as_another_is_refused(spec, config, target, supported):
    with pytest.raises(UnsupportedTargetError) as raised:
        planned(spec, config, target)
    assert repr(target) in str(raised.value)
    assert raised.value.supported == (supported,)


@pytest.mark.usefixtures("versions")
@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("import numpy", "numpy"),
        ("from .shared import scale", ".shared"),
        ("import tritonx", "tri"),
    ],
)
def test_a_source_that_imports_what_no_record_holds_is_refused(spec, config, line, named):
    (spec.root / "csrc/scale_triton.py").write_text(f"{SOURCE}{line}\n")
    with pytest.raises(SpecError, match=rf"csrc/scale_triton\.py imports {named}"):
        planned(spec, config)


@pytest.mark.usefixtures("versions")
def test_a_missing_source_and_a_second_one_are_refused(spec, config):
    with pytest.raises(SpecError, match="gone_triton"):
        planned(replace(spec, sources=("csrc/gone_triton.py",)), config)
    with pytest.raises(SpecError, match="2 sources"):
        planned(replace(spec, sources=(*spec.sources, "csrc/more_triton.py")), config)
    with pytest.raises(SpecError, match=r"a triton spec compiles \.py"):
        replace(spec, sources=("csrc/scale.cu",))


def test_a_missing_triton_says_what_to_install(spec, config, monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(_triton.metadata, "version", absent)
    with pytest.raises(ToolchainError, match=r"triton: not installed\. pip install 'kernlib\[tri"):
        jit.prepare(jit.KernelChoice(spec=spec, target="sm_90a"), config)
    assert planned(spec, config).library == "scale.json", "one built elsewhere may be looked for"


def written(folder, **changes):
    """Write a module folder of one object and return its library."""
    row = {
        "object": "scale.cubin", "size": 4, "sha256": hashlib.sha256(b"code").hexdigest(),
        "symbol": "scale", "parameters": ["*fp32", "i64"], "scratch": 2, "threads": 128,
        "shared": 0, **changes,
    }  # fmt: skip
    (folder / "scale.cubin").write_bytes(b"code")
    library = folder / "scale.json"
    library.write_text(json.dumps({"schema_version": 1, "kernels": {"scale": row}}))
    return library


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, ""),
        ({"size": 5}, "scale.cubin does not have the size and digest of its build"),
        ({"sha256": "0" * 64}, "scale.cubin does not have the size and digest of its build"),
        ({"object": "../scale.cubin"}, "'../scale.cubin', which is no file beside it"),
        ({"object": "gone.cubin"}, "gone.cubin cannot be read"),
        ({"threads": "many"}, "scale.json is damaged"),
    ],
)
def test_objects_are_verified_by_the_listing(tmp_path, changes, problem):
    found = Triton().problem(written(tmp_path, **changes))
    assert problem in found
    assert bool(problem) == bool(found)


def test_a_module_opens_without_a_driver(tmp_path):
    module = Triton().open(written(tmp_path), Mode.RELEASE)
    assert callable(module.scale)
    assert not hasattr(module, "gone")


def test_a_parameter_that_cannot_be_passed_is_refused(tmp_path):
    with pytest.raises(LoadError, match="scale has a parameter of type fp32"):
        Triton().open(written(tmp_path, parameters=["*fp32", "fp32"]), Mode.RELEASE)


def test_a_backend_that_does_not_run_there_is_refused():
    x = torch.zeros(2, 8)
    with pytest.raises(ArgumentError, match="backend 'triton' runs on cuda, but x is on cpu"):
        activation_kernels(x, backend="triton")
    with pytest.raises(ArgumentError, match="known are cpu, cuda, triton"):
        activation_kernels(x, backend="opencl")


def test_a_backend_that_is_asked_for_is_in_the_reason(monkeypatch):
    (choice,) = activation_kernels(torch.zeros(2, 8), backend="cpu")
    assert choice.reason == "x is on cpu; backend cpu was asked for"
    (choice,) = activation_kernels(torch.zeros(2, 8))
    assert choice.reason == "x is on cpu"
    monkeypatch.setattr(jit, "target_of", lambda _: "sm_90a")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    for backend, end in ((None, ""), ("triton", "; backend triton was asked for")):
        chosen = choose("activation", activation_spec, "x", torch.device("cuda:1"), backend)
        assert chosen.spec.backend == (backend or "cuda")
        assert chosen.target == "sm_90a"
        assert chosen.reason == f"x is on cuda:1, compute capability 9.0{end}"


def test_the_operators_spec_is_deterministic():
    assert activation_spec("triton").uri == "activation-triton"
    assert activation_spec("triton") == activation_spec.__wrapped__("triton")

"""Targets: what a spec supports, what a device is, what a user asks for."""

import pytest
from jit_samples import plain_spec

from kernlib import jit
from kernlib.config import Config
from kernlib.errors import ConfigError, UnsupportedTargetError
from kernlib.jit import _target


@pytest.mark.parametrize(
    ("family", "target", "expected"),
    [
        ("cpu", "cpu", True),
        ("cpu", "sm_80", False),
        ("sm_90a", "sm_90a", True),
        ("sm_90a", "sm_90", False),
        ("sm_90a", "sm_100a", False),
        ("sm_80+", "sm_75", False),
        ("sm_80+", "sm_80", True),
        ("sm_80+", "sm_90a", True),
        ("sm_80+", "sm_100a", True),
        ("sm_80+", "sm_120a", True),
        ("sm_80+", "cpu", False),
    ],
)
def test_a_family_holds_a_target(family, target, expected):
    assert _target.supports(family, target) is expected


def test_a_spec_supports_what_one_of_its_families_holds(tmp_path):
    spec = plain_spec(tmp_path, "cuda", targets=("sm_80", "sm_100+"))
    supported = [t for t in ("sm_80", "sm_90a", "sm_100a", "sm_120a") if spec.supports(t)]
    assert supported == ["sm_80", "sm_100a", "sm_120a"]


@pytest.mark.parametrize(
    ("capability", "target"),
    [((8, 0), "sm_80"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((10, 0), "sm_100a"),
     ((10, 3), "sm_103a"), ((12, 0), "sm_120a")],
)  # fmt: skip
def test_the_target_of_a_compute_capability(capability, target):
    assert _target._of_capability(*capability) == target


def test_the_device_itself_decides_not_device_0(monkeypatch):
    import torch

    capabilities = {0: (8, 0), 1: (9, 0)}
    _target._of_cuda_device.cache_clear()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: capabilities[index])
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    devices = ["cuda:0", "cuda:1", "cuda", "cpu"]
    targets = [jit.target_of(torch.device(name)) for name in devices]
    _target._of_cuda_device.cache_clear()
    assert targets == ["sm_80", "sm_90a", "sm_90a", "cpu"]


def test_another_kind_of_device_is_refused():
    import torch

    with pytest.raises(UnsupportedTargetError, match="meta"):
        jit.target_of(torch.device("meta"))


def test_nvcc_is_asked_for_one_architecture_only():
    assert _target.gencode("sm_90a") == "arch=compute_90a,code=sm_90a"
    with pytest.raises(UnsupportedTargetError, match="cpu"):
        _target.gencode("cpu")


def test_the_list_of_architectures():
    config = Config.from_env({"KERNLIB_CUDA_ARCH_LIST": "8.0 9.0a;10.0a,8.0"})
    assert jit.requested_targets(config) == ("sm_80", "sm_90a", "sm_100a")
    assert jit.requested_targets(Config()) == ()


@pytest.mark.parametrize("text", ["sm_90", "9", "9.0b", "ninety"])
def test_an_entry_that_is_no_architecture_is_named(text):
    with pytest.raises(ConfigError, match="KERNLIB_CUDA_ARCH_LIST") as raised:
        jit.requested_targets(Config(cuda_arch_list=("8.0", text)))
    assert raised.value.value == text


@pytest.mark.parametrize(
    ("text", "target"), [("10.0f", "sm_100f"), ("12.1a", "sm_121a"), ("9.0", "sm_90")]
)
def test_suffixes_of_newer_families(text, target):
    assert jit.requested_targets(Config(cuda_arch_list=(text,))) == (target,)
    assert _target.gencode(target).endswith(f"code={target}")


@pytest.mark.parametrize(("text", "least"), [("8.0a", "9.0"), ("9.0f", "10.0")])
def test_a_suffix_that_a_family_does_not_know_is_refused(text, least):
    with pytest.raises(ConfigError, match=f"only from {least} on"):
        jit.requested_targets(Config(cuda_arch_list=(text,)))


@pytest.fixture
def two_devices(monkeypatch):
    """Pretend a machine with two GPUs that differ."""
    import torch

    capabilities = [(9, 0), (8, 0)]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(capabilities))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: capabilities[index])
    _target._of_cuda_device.cache_clear()
    yield
    _target._of_cuda_device.cache_clear()


@pytest.mark.usefixtures("two_devices")
def test_detected_and_requested_targets_are_combined_each_once():
    config = Config(cuda_arch_list=("native", "10.0f", "8.0"))
    assert jit.requested_targets(config) == ("sm_90a", "sm_80", "sm_100f")
    assert jit.build_targets(Config(cuda_arch_list=("10.0f", "8.0"))) == (
        "cpu", "sm_90a", "sm_80", "sm_100f",
    )  # fmt: skip


@pytest.mark.usefixtures("two_devices")
def test_each_of_two_devices_that_differ_gets_its_own_target():
    import torch

    found = [jit.target_of(torch.device("cuda", index)) for index in (0, 1)]
    assert found == ["sm_90a", "sm_80"]

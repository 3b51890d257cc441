"""The operators' CUDA sources compile for every target; no device is needed."""

import pytest

from kernlib import jit
from kernlib._statistics import statistics_spec
from kernlib.errors import UnsupportedTargetError
from kernlib.ops._activation import activation_spec
from kernlib.ops._norm import norm_spec
from kernlib.ops._paged_cache import append_paged_kv_spec
from kernlib.ops._paged_decode import paged_decode_spec

pytestmark = pytest.mark.requires("gxx", "nvcc")

TARGETS = ("sm_80", "sm_90a", "sm_100a")
SPECS = (
    norm_spec("cuda"),
    activation_spec("cuda"),
    append_paged_kv_spec("cuda"),
    paged_decode_spec("cuda", 128),
    statistics_spec("cuda"),
)


def chosen(spec, target):
    return jit.KernelChoice(spec=spec, target=target, reason="a test asks for it")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.uri)
def test_a_library_is_built(spec, target):
    artifact = jit.prepare(chosen(spec, target))
    assert artifact.library.stat().st_size == artifact.size
    assert artifact.record.target == target


@pytest.mark.parametrize("head_dim", [8, 72, 96, 256])
def test_every_shape_of_a_team_compiles(head_dim):
    jit.prepare(chosen(paged_decode_spec("cuda", head_dim), "sm_90a"))


def test_an_older_target_is_refused_before_a_compiler_starts():
    with pytest.raises(UnsupportedTargetError, match="sm_75"):
        jit.prepare(chosen(norm_spec("cuda"), "sm_75"))

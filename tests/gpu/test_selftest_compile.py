"""The planted faults compile for every target; no device is needed."""

import pytest

from kernlib import jit
from kernlib.selftest._kernels import selftest_spec

pytestmark = pytest.mark.requires("gxx", "nvcc")


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_the_library_of_faults_is_built(target):
    choice = jit.KernelChoice(spec=selftest_spec("cuda"), target=target, reason="a test asks")
    artifact = jit.prepare(choice)
    assert artifact.library.stat().st_size == artifact.size
    assert artifact.record.target == target

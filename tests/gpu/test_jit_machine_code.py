"""Kernels for a GPU: line tables change no machine code, other modes do; no device is needed."""

import msgspec
import pytest
from capabilities import find_nvcc

from kernlib import jit
from kernlib._commands import main
from kernlib.config import Config, Mode, using
from kernlib.dump._schema import BuildRef, LibraryRef
from kernlib.jit._machine_code import compare_code, machine_code
from kernlib.ops._activation import activation_spec
from kernlib.ops._catalogue import matching_specs
from kernlib.replay._used import _machine_code

pytestmark = pytest.mark.requires("cuobjdump")

MODES = (Mode.RELEASE, Mode.LINEINFO, Mode.DEBUG)


@pytest.fixture(scope="module")
def config(workspace):
    return Config(workspace=workspace, nvcc=find_nvcc() or "nvcc")


def prepared(spec, config, mode, target="sm_80"):
    return jit.prepare(jit.KernelChoice(spec=spec, target=target, reason="a test"), config, mode)


@pytest.fixture(scope="module")
def norm(config):
    (spec,) = matching_specs("norm-cuda")
    return {mode: prepared(spec, config, mode) for mode in MODES}


def compared(config, first, second):
    return compare_code(machine_code(first.library, config), machine_code(second.library, config))


@pytest.mark.requires("gxx", "nvcc")
def test_release_and_lineinfo_are_the_same_in_every_kernel(config, norm):
    assert norm[Mode.RELEASE].sha256 != norm[Mode.LINEINFO].sha256
    found = compared(config, norm[Mode.RELEASE], norm[Mode.LINEINFO])
    assert found.unlike == 0
    assert len(found.same) == 6
    assert all("rms_norm_kernel" in name for name in found.same)


@pytest.mark.requires("gxx", "nvcc")
def test_debug_is_other_machine_code_in_every_kernel(config, norm):
    found = compared(config, norm[Mode.RELEASE], norm[Mode.DEBUG])
    assert (found.same, found.only_first, found.only_second) == ((), (), ())
    assert len(found.different) == 6


@pytest.mark.requires("gxx", "nvcc")
def test_the_command_says_it_kernel_by_kernel(config, norm, capsys):
    release, lineinfo, debug = (norm[m].key for m in (Mode.RELEASE, Mode.LINEINFO, Mode.DEBUG))
    with using(config):
        assert main(["jit", "compare", release, lineinfo]) == 0
        assert "the same machine code: 6 of 6" in capsys.readouterr().out
        assert main(["jit", "compare", release, debug]) == 1
        assert "different machine code: 6 of 6" in capsys.readouterr().out


@pytest.mark.requires("triton")
def test_specialisations_of_triton_are_compared_one_by_one(config):
    spec = activation_spec("triton")
    release, lineinfo = (prepared(spec, config, mode) for mode in (Mode.RELEASE, Mode.LINEINFO))
    found = compared(config, release, lineinfo)
    assert (found.unlike, len(found.same)) == (0, 6)
    other = prepared(spec, config, Mode.RELEASE, "sm_90a")
    assert compared(config, release, other).unlike == 6


@pytest.mark.requires("gxx", "nvcc")
@pytest.mark.parametrize(
    ("mode", "told"),
    [
        (Mode.RELEASE, None),
        (Mode.LINEINFO, "the recorded build's, in all 6 kernels"),
        (Mode.DEBUG, "differs from the recorded build in 6 of 6 kernels"),
    ],
)
def test_a_replay_tells_it_from_the_recorded_release(config, norm, mode, told):
    recorded = norm[Mode.RELEASE]
    (spec,) = matching_specs("norm-cuda")
    choice = jit.KernelChoice(spec=spec, target="sm_80", reason="a test")
    library = LibraryRef(path=str(recorded.library), size=recorded.size, sha256=recorded.sha256)
    ref = BuildRef(
        key=recorded.key, uri=spec.uri, backend="cuda", target="sm_80", mode="release",
        reason="a test", library=library,
    )  # fmt: skip
    with using(config):
        assert _machine_code(choice, ref, norm[mode]) == told
        other = msgspec.structs.replace(ref, library=msgspec.structs.replace(library, sha256="0"))
        assert _machine_code(choice, other, norm[mode]) is None

"""Every planted fault stands at one marked line, and its expectations fit together."""

import re

import pytest

import kernlib.selftest
from kernlib import jit
from kernlib._registry import registry
from kernlib.ops._catalogue import shipped_specs
from kernlib.selftest._cases import _CASES
from kernlib.selftest._child import VARIANTS
from kernlib.selftest._faults import FAULTS, planted_line
from kernlib.selftest._kernels import selftest_spec
from kernlib.selftest._plan import _VARIANTS

NAMES = [fault.name for fault in FAULTS]
BACKENDS = ("cpu", "cuda")


def markers(backend):
    """Return every marker in the sources that a backend compiles, by its name."""
    root = jit.source_root()
    other = (
        "include/kernlib/selftest_cpu.h" if backend == "cuda" else "include/kernlib/selftest.cuh"
    )
    files = {*root.glob("include/kernlib/selftest*"), *root.glob("csrc/selftest/*")}
    found = {}
    for path in sorted(files - {root / other}):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if match := re.search(r"// planted: (\w+)$", line):
                found.setdefault(match[1], []).append((path.name, number))
    return found


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_that_has_a_line_is_marked_once(fault, backend):
    planted = planted_line(fault.name, backend)
    assert (planted is not None) or not fault.expected(backend).line
    if planted is not None:
        name = planted.file.rpartition("/")[2]
        assert markers(backend)[fault.name] == [(name, planted.line)]
        assert planted.text.endswith(f"// planted: {fault.name}")


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_marker_is_a_fault_s(backend):
    assert set(markers(backend)) <= set(NAMES)


def test_a_fault_that_no_source_marks_has_no_line():
    assert planted_line("no_such_fault", "cpu") is None


def test_every_fault_has_its_api_and_its_calls():
    apis = {api.name for api in registry if api.module == "kernlib.selftest._apis"}
    assert apis == {fault.api for fault in FAULTS} == set(kernlib.selftest.__all__)
    assert set(_CASES) == set(NAMES)


def test_an_argument_to_be_blamed_is_one_of_the_api_s():
    for fault in FAULTS:
        api = registry.get("kernlib", fault.api)
        for backend in BACKENDS:
            argument = fault.expected(backend).argument
            assert argument is None or argument in api.parameters, fault


def test_every_way_to_plant_a_fault_is_one_of_the_child_s():
    assert set(_VARIANTS) == set(VARIANTS)
    used = {
        way for fault in FAULTS for backend in BACKENDS for way in fault.expected(backend).variants
    }
    assert used == set(VARIANTS)


def test_no_package_built_ahead_of_time_holds_the_faults():
    assert not {spec.uri for spec in shipped_specs()} & {selftest_spec(b).uri for b in BACKENDS}

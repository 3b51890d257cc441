"""What is not recorded costs nothing: the function object itself is public, with its own code."""

import json

import pytest

import kernlib

PROGRAM = """
import json
import kernlib
from kernlib._registry import registry

public = {name: getattr(kernlib, name) for name in kernlib.__all__}
found = {}
for api in registry:
    owner, _, attribute = api.name.rpartition(".")
    place = api.owner_class() if owner else kernlib
    here = vars(place)[attribute] if owner else getattr(kernlib, api.name, None)
    assert here is api.function, "the decorator returns what it was given"
    found[api.name] = "recorded" if hasattr(here, "__wrapped__") else "original"
print(json.dumps(found))
"""
METHODS = {"PagedDecode.__init__", "PagedDecode.plan", "PagedDecode.run"}
FUNCTIONS = {*kernlib.__all__} - {"PagedDecode", "__version__", "kernel_api"}


@pytest.fixture
def public(server, tmp_path):
    """Return a function that says, under an environment, what is public for every api."""

    def run(**variables):
        child = server.run(PROGRAM, KERNLIB_DUMP_DIR=tmp_path / "dumps", **variables)
        assert (child.status, child.stderr) == (0, "")
        assert not (tmp_path / "dumps").exists(), "an import writes nothing"
        return json.loads(child.stdout)

    return run


@pytest.mark.parametrize("variables", [{}, {"KERNLIB_LOG_LEVEL": "off"}], ids=["unset", "off"])
def test_off_every_public_api_runs_its_own_code(public, variables):
    assert public(**variables) == dict.fromkeys(METHODS | FUNCTIONS, "original")


@pytest.mark.parametrize("level", ["calls", "dump"])
def test_recorded_apis_run_other_code(public, level):
    found = public(KERNLIB_LOG_LEVEL=level)
    assert found == dict.fromkeys(METHODS | FUNCTIONS, "recorded")


def test_checking_needs_no_recording(public):
    found = public(KERNLIB_CHECK="1")
    assert found == dict.fromkeys(METHODS | FUNCTIONS, "recorded"), "all declare preconditions"


def test_a_filtered_api_runs_its_own_code(public):
    found = public(KERNLIB_LOG_LEVEL="dump", KERNLIB_EXCLUDE="rms_norm,PagedDecode.*")
    originals = METHODS | {"rms_norm"}
    expected = dict.fromkeys(originals, "original")
    assert found == expected | dict.fromkeys(FUNCTIONS - originals, "recorded")


def test_a_method_that_is_included_brings_its_set_up_along(public):
    found = public(KERNLIB_LOG_LEVEL="dump", KERNLIB_INCLUDE="PagedDecode.run")
    assert found == dict.fromkeys(METHODS, "recorded") | dict.fromkeys(FUNCTIONS, "original")


def test_lines_alone_need_no_set_up(public):
    found = public(KERNLIB_LOG_LEVEL="args", KERNLIB_INCLUDE="PagedDecode.run")
    originals = FUNCTIONS | METHODS - {"PagedDecode.run"}
    assert found == dict.fromkeys(originals, "original") | {"PagedDecode.run": "recorded"}

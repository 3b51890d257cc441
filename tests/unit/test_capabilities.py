"""A missing capability skips by name, fails where it is required, and cannot be misspelt."""

import subprocess
import sys

import capabilities
import pytest

ONE = """
import pytest
@pytest.mark.requires({name!r})
def test_it(): pass
"""


@pytest.fixture
def run(tmp_path, repository):
    """Run one test that requires a capability under this suite's own conftest."""
    for name in ("conftest.py", "capabilities.py"):
        (tmp_path / name).write_text((repository / "tests" / name).read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run(name, *arguments, probe=None):
        if probe is not None:
            with (tmp_path / "capabilities.py").open("a") as file:
                file.write(f"\n_PROBES[{name!r}] = lambda: {probe!r}\n")
        (tmp_path / "test_one.py").write_text(ONE.format(name=name))
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-rsE", "-p", "no:cacheprovider", *arguments],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


def test_a_skip_names_what_is_missing(run):
    done = run("nvcc", probe="there is none")
    assert done.returncode == 0
    assert "needs nvcc: there is none" in done.stdout
    assert "1 skipped" in done.stdout


def test_a_required_capability_that_is_missing_fails(run):
    done = run("nvcc", "--require=gxx,nvcc", probe="there is none")
    assert done.returncode == 1
    assert "needs nvcc: there is none" in done.stdout


def test_a_capability_that_is_there_runs(run):
    assert "1 passed" in run("nvcc", "--require=nvcc", probe="").stdout


def test_a_misspelt_capability_is_an_error_in_both_places(run):
    assert run("nvc").returncode == 1
    done = run("nvcc", "--require=nvc")
    assert done.returncode == 4
    assert "--require=nvc: unknown; known: asan" in done.stderr


@pytest.mark.parametrize("name", [*capabilities.NAMES, "sm_80+", "sm_90a"])
def test_every_probe_gives_a_reason_or_nothing(name):
    assert capabilities.missing(name) == "" or " " in capabilities.missing(name)


def test_the_workspace_is_the_runs_own_and_no_other_variable_leaks_in(run, tmp_path):
    (tmp_path / "test_leak.py").write_text(
        "import os\n"
        "def test_leak(workspace):\n"
        "    names = [name for name in os.environ if name.startswith('KERNLIB_')]\n"
        "    assert names == ['KERNLIB_WORKSPACE']\n"
        "    assert workspace.is_dir() and workspace.name.startswith('kernlib-tests-')\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNLIB_WORKSPACE", "/somewhere/else")
        patch.setenv("KERNLIB_LOG_LEVEL", "dump")
        done = run("gxx", "-k", "leak")
    assert "1 passed" in done.stdout, done.stdout

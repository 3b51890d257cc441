"""``kernlib selftest`` plants faults on this machine's GPU and names them."""

import json
import subprocess
import sys

import pytest

from kernlib.selftest._plan import plan_runs

pytestmark = pytest.mark.requires("gxx", "nvcc", "sm_80+", "compute-sanitizer")


@pytest.fixture(scope="module")
def rows():
    """Run the command once; return its rows by fault and variant."""
    done = subprocess.run(
        [sys.executable, "-m", "kernlib._commands", "selftest", "--device", "cuda", "--json"],
        capture_output=True, text=True, check=False, timeout=3000,
    )  # fmt: skip
    assert done.stdout, done.stderr
    found = {(row["fault"], row["variant"]): row for row in json.loads(done.stdout)["rows"]}
    missed = [key for key, row in found.items() if row["outcome"] == "missed"]
    assert done.returncode == int(bool(missed))
    return found


@pytest.mark.parametrize("run", plan_runs(["cuda"]), ids=lambda run: run.name)
def test_a_fault_is_named_as_it_was_planted(rows, run):
    row = rows[run.fault.name, run.variant]
    if row["outcome"] == "not_applicable":
        pytest.skip(row["why_not"])
    assert row["misses"] == []
    assert row["outcome"] == "named"


def test_the_device_is_as_it_was(rows):
    """Faults end the processes they are planted in, and nothing else."""
    import torch

    assert rows
    x = torch.arange(1000.0, device="cuda")
    assert float(x.sum()) == 499500.0

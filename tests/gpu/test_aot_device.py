"""With a package for its device, a machine without compilers runs every operator."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernlib import jit, ops
from kernlib.config import get_config
from kernlib.jit._aot_package import ahead_choices, build_ahead
from kernlib.ops._catalogue import shipped_specs

pytestmark = pytest.mark.requires("gxx", "nvcc", "cuda")
TESTS = Path(__file__).resolve().parents[1]


def test_every_operator_runs_without_a_compiler(tmp_path):
    specs = [spec for spec in shipped_specs() if spec.backend == "cuda"]
    choices = ahead_choices(specs, [jit.target_of(torch.device("cuda", 0))])
    for _ in build_ahead(choices, tmp_path / "aot", get_config()):
        pass
    empty = tmp_path / "empty"
    empty.mkdir()
    kept = filter(None, [os.environ.get("PYTHONPATH")])
    done = subprocess.run(
        [sys.executable, TESTS / "aot_operators.py", "cuda"], cwd=TESTS.parent,
        capture_output=True, text=True, check=False, timeout=500,
        env={
            **os.environ, "PATH": str(empty), "KERNLIB_JIT_DISABLE": "1",
            "KERNLIB_WORKSPACE": str(empty), "KERNLIB_AOT_DIR": str(tmp_path / "aot"),
            "PYTHONPATH": os.pathsep.join(map(str, (TESTS, TESTS.parent, *kept))),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[: len(ops.__all__)] == ops.__all__
    libraries = lines[len(ops.__all__) :]
    assert libraries
    assert all(Path(library).is_relative_to(tmp_path / "aot") for library in libraries)
    assert list(empty.iterdir()) == []

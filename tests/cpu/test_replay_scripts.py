"""Apis that are no plain functions of a package: class methods, static methods, scripts."""

import os
import subprocess
import sys

import pytest
import replay_runs as runs

SCRIPT = """
import torch
from kernlib import kernel_api

class Scale:
    factor = 3.0

    @classmethod
    @kernel_api
    def make(cls, x, *, power=1):
        return x * cls.factor**power

    @staticmethod
    @kernel_api
    def twice(x):
        return x * 2

@kernel_api
def halve(x):
    return x / 2

if __name__ == "__main__":
    Scale.make(torch.arange(3.0), power=2)
    Scale.twice(torch.arange(4.0))
    halve(torch.arange(5.0))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("script")
    (folder / "scales.py").write_text(SCRIPT)
    recording = {
        "KERNLIB_LOG_LEVEL": "dump",
        "KERNLIB_LOG_DEST": os.devnull,
        "KERNLIB_DUMP_DIR": "dumps",
    }
    command = [sys.executable, "scales.py"]
    subprocess.run(command, cwd=folder, check=True, timeout=120, env=os.environ | recording)
    return folder


def test_a_scripts_apis_replay_once_its_module_is_named(folder):
    replayed = runs.replay(folder / "dumps", library=folder, packages=("scales",))
    assert [(call["api"], call["verdict"]) for call in replayed.calls] == [
        ("Scale.make", "passed"),
        ("Scale.twice", "passed"),
        ("halve", "passed"),
    ]
    assert replayed.status == 0


def test_a_scripts_module_that_is_not_named_is_asked_for(folder):
    replayed = runs.replay(folder / "dumps", "--call", "3", library=folder, packages=())
    assert (replayed.status, replayed.verdict) == (3, "not_replayable")
    assert "name its module with --import" in replayed.call["reason"]

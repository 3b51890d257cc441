"""A build that takes its time says so on a terminal, and nowhere else."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import jit_samples
import pytest

BUILD = """
import pathlib, sys
sys.path.insert(0, {helpers!r})
import jit_samples
from kernlib import jit
from kernlib.config import Config, Mode
spec = jit_samples.plain_spec(pathlib.Path({root!r}))
jit.prepare(jit_samples.chosen(spec), Config.from_env(), Mode.DEBUG)
"""


@pytest.fixture
def build(tmp_path):
    """Return a function that builds in a child whose stderr is a given file."""
    config = jit_samples.fake_config(tmp_path)
    root = jit_samples.write_root(tmp_path / "root")
    code = BUILD.format(helpers=str(Path(jit_samples.__file__).parent), root=str(root))
    environment = {**os.environ, **config.to_env(), "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(stderr, seconds):
        (tmp_path / "tools" / "wait").write_text(str(seconds))
        command = [sys.executable, "-c", code]
        return subprocess.run(command, env=environment, stderr=stderr, check=True, timeout=60)

    return run


def on_terminal(build, seconds):
    """Return what a build writes to a terminal."""
    ours, theirs = pty.openpty()
    try:
        build(theirs, seconds)
        os.close(theirs)
        written = b""
        try:
            while piece := os.read(ours, 4096):
                written += piece
        except OSError:
            pass  # the other side is closed and everything has been read
        return written.decode()
    finally:
        os.close(ours)


def test_a_build_of_over_a_second_names_kernel_target_mode_and_time(build):
    written = on_terminal(build, 1.2)
    assert "kernlib: building twice-cpu for cpu (debug), 1 s" in written
    assert written.endswith("\n")


def test_a_quick_build_says_nothing(build):
    assert on_terminal(build, 0) == ""


def test_a_pipe_hears_nothing(build):
    assert build(subprocess.PIPE, 1.2).stderr == b""

"""The recorder's own kernels are built aside: nobody waits, and a build is never for nothing."""

import logging
import os
import subprocess
import sys
import textwrap
import time

import pytest

from kernlib import _background, jit
from kernlib._background import BackgroundKernel
from kernlib._native_recorder import recorder_spec
from kernlib.config import Config, Mode, get_config

pytestmark = pytest.mark.requires("gxx")
CHOICE = jit.KernelChoice(spec=recorder_spec(), target="cpu", reason="a test")
PROGRAM = textwrap.dedent(
    """
    import os, pathlib, time
    import torch
    from kernlib import kernel_api
    from kernlib.logging import process

    def is_building():
        for path in pathlib.Path("/proc/self/task").glob("*/children"):
            for pid in path.read_text().split():
                if b"kernlib._commands" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                    return True
        return False

    @kernel_api
    def step(x):
        return x

    sink = process.recorder.sinks_for(step.__kernlib_api__.api)[0]
    while not ({until}):
        step(torch.zeros(3))
        time.sleep(0.01)
    os._exit(0)
    """
)


def run(tmp_path, program, **environment):
    recording = {
        "KERNLIB_LOG_LEVEL": "args", "KERNLIB_LOG_FORMAT": "ring",
        "KERNLIB_LOG_DEST": str(tmp_path / "%p.ring"), "KERNLIB_WORKSPACE": str(tmp_path / "ws"),
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **recording, **environment},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def artifacts(tmp_path):
    return list(tmp_path.glob("ws/artifacts/*/recorder.so"))


def test_a_build_goes_on_when_its_process_ends(tmp_path):
    done = run(tmp_path, PROGRAM.replace("{until}", "is_building()"))
    assert done.returncode == 0, done.stderr
    begin = time.monotonic()
    while not artifacts(tmp_path) and time.monotonic() - begin < 100:
        time.sleep(0.1)
    assert len(artifacts(tmp_path)) == 1
    # The next process needs no compiler.
    program = PROGRAM.replace("{until}", "sink.native is not None")
    found = run(tmp_path, program, KERNLIB_JIT_DISABLE="1")
    assert found.returncode == 0, found.stderr


def test_a_kernel_that_is_there_is_loaded_without_another_process(monkeypatch):
    jit.prepare(CHOICE, get_config(), Mode.RELEASE)
    built = []
    monkeypatch.setattr(_background, "_build_apart", lambda *given: built.append(given))
    kernel = BackgroundKernel(CHOICE, get_config()).wait(60)
    assert kernel is not None
    assert kernel.artifact.record.mode == "release"
    assert built == []


def test_it_is_a_release_build_whatever_is_watched(tmp_path):
    config = Config(workspace=tmp_path / "ws", jit_mode=Mode.SANITIZE)
    assert BackgroundKernel(CHOICE, config).wait(100).artifact.record.mode == "release"


def test_without_a_compiler_it_says_why_and_stays_away(tmp_path, caplog):
    config = Config(workspace=tmp_path / "ws", cxx="/nowhere/g++")
    with caplog.at_level(logging.INFO, "kernlib.recorder"):
        kernel = BackgroundKernel(CHOICE, config)
        assert kernel.wait(60) is None
        assert kernel.get() is None
    (said,) = [
        record.message for record in caplog.records if "Python does its work" in record.message
    ]
    assert "/nowhere/g++" in said


def test_where_building_is_disabled_nothing_is_started(tmp_path, monkeypatch):
    built = []
    monkeypatch.setattr(_background, "_build_apart", lambda *given: built.append(given))
    config = Config(workspace=tmp_path / "ws", jit_disable=True)
    assert BackgroundKernel(CHOICE, config).wait(60) is None
    assert built == []

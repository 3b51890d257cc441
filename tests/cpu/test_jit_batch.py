"""Many kernels in one run: all or some, interrupted or not, nothing half-published."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jit_samples
import pytest

from kernlib import jit
from kernlib.config import Config, Mode
from kernlib.errors import BuildError, ConfigError, UnsupportedTargetError

FACTORS = (2, 3, 5, 7)

_BUILD_ALL = """
import pathlib, sys
sys.path.insert(0, {helpers!r})
import jit_samples
from kernlib import jit
from kernlib.config import Config, Mode
folder = pathlib.Path({folder!r})
choices = [
    jit_samples.chosen(
        jit_samples.plain_spec(folder / f"root{{factor}}", params=(("factor", factor),))
    )
    for factor in {factors!r}
]
jit.build_many(choices, Mode.RELEASE, Config.from_env())
"""


@pytest.fixture
def config(tmp_path):
    return Config(workspace=tmp_path / "workspace")


def choices(tmp_path, broken=()):
    """Return a choice for each factor, every one a library of its own."""
    made = []
    for factor in FACTORS:
        header = f"#pragma once\nconstexpr float kFactor = {factor};\n"
        if factor in broken:
            header += "int broken = ;\n"
        root = jit_samples.write_root(
            tmp_path / f"root{factor}", **{"include/twice/factor.h": header}
        )
        spec = jit_samples.plain_spec(root, params=(("factor", factor),))
        made.append(jit_samples.chosen(spec))
    return made


def test_all_are_built_in_one_run_and_found_by_the_next(tmp_path, config):
    wanted = choices(tmp_path)
    steps = []
    results = jit.build_many(wanted, Mode.RELEASE, config, lambda *step: steps.append(step))
    assert [result.uri for result in results] == [choice.spec.uri for choice in wanted]
    assert all(result.error is None and result.seconds > 0 for result in results)
    assert steps[-1][:2] == (2 * len(FACTORS), 2 * len(FACTORS))
    for choice, result in zip(wanted, results, strict=True):
        plan = jit.plan(choice, config)
        assert jit.find_artifact(plan, config) == result.artifact
        names = {path.name for path in result.artifact.path.iterdir()}
        assert {"build.ninja", "build.json", "build.log", "compile_commands.json"} <= names
    again = jit.build_many(wanted, Mode.RELEASE, config)
    assert all(result.seconds is None for result in again)
    assert [result.artifact for result in again] == [result.artifact for result in results]


def test_modes_are_built_apart(tmp_path, config):
    (choice, *_) = choices(tmp_path)
    release, debug = (
        jit.build_many([choice], mode, config)[0] for mode in (Mode.RELEASE, Mode.DEBUG)
    )
    assert release.artifact.key != debug.artifact.key
    assert debug.mode == "debug"


def test_one_that_fails_does_not_stop_the_others(tmp_path, config):
    results = jit.build_many(choices(tmp_path, broken=(3,)), Mode.RELEASE, config)
    assert [result.artifact is None for result in results] == [False, True, False, False]
    error = results[1].error
    assert isinstance(error, BuildError)
    assert "int broken = ;" in str(error)
    assert "factor_3" in error.log_path.read_text()
    assert "factor_2" not in error.log_path.read_text()
    left = sorted(path.name for path in jit.artifacts_dir(config).iterdir())
    assert left == sorted(result.artifact.key for result in results if result.artifact)


def test_the_same_kernel_asked_for_twice_is_built_once(tmp_path, config):
    (choice, *_) = choices(tmp_path)
    results = jit.build_many([choice, choice], Mode.RELEASE, config)
    assert len(results) == 1


def test_what_cannot_be_built_is_refused_before_any_compiler(tmp_path):
    config = jit_samples.fake_config(tmp_path)
    good = choices(tmp_path)
    bad = jit.KernelChoice(spec=good[0].spec, target="sm_90a")
    with pytest.raises(UnsupportedTargetError):
        jit.build_many([*good, bad], Mode.RELEASE, config)
    with pytest.raises(ConfigError, match="KERNLIB_JIT_DISABLE"):
        jit.build_many(good, Mode.RELEASE, config.replace(jit_disable=True))
    calls = (tmp_path / "tools" / "calls.txt").read_text().splitlines()
    assert not any(" -c " in f" {call} " for call in calls)


def test_an_interruption_publishes_nothing_half(tmp_path):
    config = jit_samples.fake_config(tmp_path, max_jobs=2)
    made = choices(tmp_path)
    waiting = tmp_path / "tools" / "waiting.txt"
    (tmp_path / "tools" / "wait").write_text("30")  # what every pretended compiler sleeps
    code = _BUILD_ALL.format(
        helpers=str(Path(jit_samples.__file__).parent), folder=str(tmp_path), factors=FACTORS
    )
    environment = {**os.environ, **config.to_env(), "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not waiting.exists() and time.monotonic() < deadline and child.poll() is None:
        time.sleep(0.02)
    assert waiting.exists(), child.stderr.read() if child.poll() is not None else "no compiler ran"
    child.send_signal(signal.SIGINT)
    _, error = child.communicate(timeout=60)
    assert child.returncode != 0
    assert "KeyboardInterrupt" in error
    assert list(jit.artifacts_dir(config).iterdir()) == []
    (tmp_path / "tools" / "wait").unlink()
    results = jit.build_many(made, Mode.RELEASE, config)
    assert all(result.artifact is not None for result in results)

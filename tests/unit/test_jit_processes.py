"""Many processes, and processes that end at a bad moment."""

import contextlib
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from jit_samples import (
    chosen,
    fake_config,
    plain_spec,
    python,
    start_python,
    write_root,
)

from kernlib import jit

PREPARE = "print(jit.prepare(chosen(plain_spec(root))).library)"


@pytest.fixture
def root(tmp_path):
    return write_root(tmp_path / "root")


@pytest.fixture
def config(tmp_path):
    return fake_config(tmp_path)


def compiled(tmp_path):
    """Return how many units were compiled so far."""
    calls = (tmp_path / "tools" / "calls.txt").read_text().splitlines()
    return sum(" -c " in f" {line} " and "--dryrun" not in line for line in calls)


def entries(config, name="artifacts"):
    folder = config.workspace / name
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def wait_for(path, lines=1):
    """Wait until a pretended compiler has noted that it waits; return the processes' ids."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            found = path.read_text().split()
            if len(found) >= lines:
                return [int(text) for text in found]
        time.sleep(0.01)
    raise TimeoutError(path)


def is_running(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_compilers_get_a_cleaned_environment(tmp_path, root, config):
    """The worker of a replay runs under a sanitizer; its compilers must not."""
    python(PREPARE, root, config, ASAN_OPTIONS="detect_leaks=1", KEPT="yes",
           CUDA_INJECTION64_PATH="/injected.so")  # fmt: skip
    seen = (tmp_path / "tools" / "environment.txt").read_text()
    assert "KEPT=yes" in seen
    assert "ASAN_OPTIONS" not in seen
    assert "INJECTION" not in seen


def test_an_interrupt_ends_the_compilers_and_publishes_nothing(tmp_path, root, config):
    (tmp_path / "tools" / "wait").write_text("60")
    child = start_python(PREPARE, root, config)
    (compiler,) = wait_for(tmp_path / "tools" / "waiting.txt")
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert "KeyboardInterrupt" in err
    until = time.monotonic() + 10
    while is_running(compiler) and time.monotonic() < until:
        time.sleep(0.01)
    assert not is_running(compiler)
    assert entries(config) == []
    (tmp_path / "tools" / "wait").unlink()
    assert Path(python(PREPARE, root, config)).is_file()


def test_a_killed_build_publishes_nothing_and_the_next_one_works(tmp_path, root, config):
    (tmp_path / "tools" / "wait").write_text("60")
    child = start_python(PREPARE, root, config)
    (compiler,) = wait_for(tmp_path / "tools" / "waiting.txt")
    child.kill()
    child.communicate()
    assert all(name.startswith(".") for name in entries(config))
    (tmp_path / "tools" / "wait").unlink()
    library = Path(python(PREPARE, root, config))
    assert library.is_file()
    os.killpg(os.getpgid(compiler), signal.SIGTERM)
    assert jit.prepare(chosen(plain_spec(root)), config).library == library


def test_sixteen_processes_make_one_artifact(tmp_path, root, config):
    children = [start_python(PREPARE, root, config) for _ in range(16)]
    ends = [(*child.communicate(timeout=120), child.returncode) for child in children]
    library = str(jit.prepare(chosen(plain_spec(root)), config).library)
    assert ends == [(f"{library}\n", "", 0)] * 16
    assert compiled(tmp_path) == 1
    assert len(entries(config)) == 1


def test_threads_that_build_from_the_same_sources_do_not_meet(root, config):
    configs = [config.replace(extra_cflags=(f"-DN={n}",)) for n in range(8)]
    with ThreadPoolExecutor(len(configs)) as pool:
        artifacts = list(pool.map(partial(jit.prepare, chosen(plain_spec(root))), configs))
    assert len({artifact.library.read_text() for artifact in artifacts}) == 1
    assert len(entries(config)) == len(configs)


def test_without_a_lock_the_result_is_the_same(tmp_path, root, config):
    """Locks may be local to a node: every process builds, one is published."""
    code = "import contextlib\nfrom kernlib.jit import _build\n"
    code += "_build.locked = lambda *_: contextlib.nullcontext()\n" + PREPARE
    (tmp_path / "tools" / "wait").write_text("1")
    children = [start_python(code, root, config) for _ in range(4)]
    wait_for(tmp_path / "tools" / "waiting.txt", 2)
    ends = [(*child.communicate(timeout=120), child.returncode) for child in children]
    library = str(jit.prepare(chosen(plain_spec(root)), config).library)
    assert ends == [(f"{library}\n", "", 0)] * 4
    assert len(entries(config)) == 1


def test_the_loaders_level_decides_what_is_said(root, tmp_path):
    config = fake_config(tmp_path, loader_log_level="info")
    child = start_python(PREPARE, root, config)
    _, err = child.communicate(timeout=60)
    assert "built twice-cpu for cpu (release)" in err

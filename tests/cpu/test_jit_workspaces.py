"""Many processes on one workspace, and workspaces in every bad state, with real processes."""

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from crowd import crowd
from jit_samples import chosen, plain_spec, python, start_python, write_root

from kernlib import jit
from kernlib.config import Config

pytestmark = pytest.mark.requires("gxx")

NOBODY = 65534
AS_ROOT = os.geteuid() == 0
PREPARE = "print(jit.prepare(chosen(plain_spec(root))).library)"
CROWD = "from crowd import crowd\nprint(*crowd({count}, lambda: {work}, {uid}), sep='\\n')"
WORK = "jit.prepare(chosen(plain_spec(root))).library"
NO_LOCKS = "import fcntl\nfcntl.flock = lambda *_: None\n"
LAUNCHER = """#!/bin/sh
echo "$@" >> {folder}/compiled.txt
while [ -e {folder}/wait ]; do sleep 0.02; done
exec "$@"
"""


#: Another user may not be able to read this one's Python: import everything before.
WARM = """
import filelock, time
from kernlib.config import get_config
jit.plan(chosen(plain_spec(root)), get_config().replace(workspace=root.parent / "warm"))
"""


def crowded(count, work=WORK, uid=None):
    warm = WARM if uid is not None else ""
    return warm + CROWD.format(count=count, work=work, uid=uid)


@pytest.fixture
def folder():
    """Return a folder that other users can enter, as those of pytest are not."""
    path = Path(tempfile.mkdtemp(prefix="kernlib-workspaces-"))
    path.chmod(0o755)
    yield path
    for inside in [path, *path.rglob("*")]:
        if inside.is_dir():
            inside.chmod(0o755)
    shutil.rmtree(path)


@pytest.fixture
def root(folder):
    return write_root(folder / "root")


@pytest.fixture
def config(folder):
    launcher = folder / "launcher"
    launcher.write_text(LAUNCHER.format(folder=folder))
    launcher.chmod(0o755)
    return Config(workspace=folder / "workspace", compiler_launcher=(str(launcher),))


def compiled(folder):
    with contextlib.suppress(OSError):
        return len((folder / "compiled.txt").read_text().splitlines())
    return 0


def until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def whole(config):
    """Return the keys of the artifacts, each of them whole; nothing else is beside them."""
    entries = jit.cache_entries(config)
    assert [jit.verify_entry(entry) for entry in entries] == [""] * len(entries)
    names = {path.name for path in jit.artifacts_dir(config).iterdir()}
    assert names == {entry.key for entry in entries}
    return [entry.key for entry in entries]


def test_sixty_four_processes_cold_and_warm(folder, root, config):
    cold = python(crowded(64), root, config).splitlines()
    assert len(cold) == 64
    assert compiled(folder) == 1
    warm = python(crowded(64), root, config).splitlines()
    (key,) = whole(config)
    assert set(cold) == set(warm) == {str(config.workspace / "artifacts" / key / "twice.so")}
    assert len(warm) == 64
    assert compiled(folder) == 1


def test_one_that_is_killed_while_it_compiles_holds_up_nobody(folder, root, config):
    (folder / "wait").touch()
    victim = start_python(PREPARE, root, config)
    until(lambda: compiled(folder) == 1)
    others = start_python(crowded(16), root, config)
    time.sleep(0.3)
    victim.kill()
    victim.communicate()
    until(lambda: compiled(folder) == 2)
    (folder / "wait").unlink()
    out, err = others.communicate(timeout=60)
    assert err == ""
    assert len(out.splitlines()) == 16
    (library,) = set(out.splitlines())
    assert Path(library).is_file()
    assert compiled(folder) == 2
    (left,) = jit.artifacts_dir(config).glob(".*")
    os.utime(left, (time.time() - 120,) * 2)
    (removed,) = jit.prune(config, jit.PruneLimits()).removed
    assert (removed.path, removed.kind) == (left, "build")
    whole(config)


def test_a_lock_file_that_was_left_is_no_lock(folder, root, config):
    key = jit.plan(chosen(plain_spec(root)), config).key
    lock = config.workspace / "locks" / f"{key}.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("4194304\nanother-machine\n")
    assert Path(python(PREPARE, root, config)).is_file()
    assert lock.exists()
    assert compiled(folder) == 1


def test_a_lock_that_is_never_let_go_delays_and_does_not_prevent(root, config):
    import filelock

    key = jit.plan(chosen(plain_spec(root)), config).key
    lock = config.workspace / "locks" / f"{key}.lock"
    lock.parent.mkdir(parents=True)
    code = "from kernlib.jit import _lock\n_lock._PATIENCE_SECONDS = 0.2\n" + PREPARE
    with filelock.FileLock(lock):
        assert Path(python(code, root, config)).is_file()


def test_where_file_locks_do_nothing_all_build_and_one_is_kept(folder, root, config):
    (folder / "wait").touch()
    child = start_python(NO_LOCKS + crowded(6), root, config)
    until(lambda: compiled(folder) == 6)
    (folder / "wait").unlink()
    out, err = child.communicate(timeout=60)
    assert err == ""
    assert len(out.splitlines()) == 6
    (key,) = whole(config)
    assert set(out.splitlines()) == {str(config.workspace / "artifacts" / key / "twice.so")}


def test_where_file_locks_do_nothing_only_an_idle_workspace_is_pruned(root, config):
    artifact = jit.prepare(chosen(plain_spec(root)), config)
    code = NO_LOCKS + (
        "from kernlib.config import get_config\n"
        "for idle in (False, True):\n"
        "    limits = jit.PruneLimits(max_bytes=0, assume_idle=idle)\n"
        "    done = jit.prune(get_config(), limits, dry_run=True)\n"
        "    print(len(done.removed), len(done.kept), 'locks do nothing' in done.unsure)\n"
    )
    assert python(code, root, config).splitlines() == ["0 1 True", "1 0 False"]
    assert artifact.library.exists()


def only_read(folder):
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o555)


def test_a_workspace_that_is_only_read_serves_what_it_holds(folder, root, config):
    artifact = jit.prepare(chosen(plain_spec(root)), config)
    if not AS_ROOT:
        only_read(config.workspace)
    uid = NOBODY if AS_ROOT else None
    told = python(crowded(4, uid=uid), root, config).splitlines()
    assert told == [str(artifact.library)] * 4
    work = "jit.prepare(chosen(plain_spec(root)), mode='debug').library"
    (told,) = set(python(crowded(4, work, uid), root, config).splitlines())
    assert told.startswith("LoadError")
    assert "Permission denied" in told
    assert "make it writable, or set KERNLIB_WORKSPACE" in told
    assert compiled(folder) == 1


@pytest.mark.skipif(not AS_ROOT, reason="needs to become another user: this is not root")
def test_a_user_who_may_only_read_holds_what_is_used(root, config):
    artifact = jit.prepare(chosen(plain_spec(root)), config)
    work = f"[{WORK}, print('held', flush=True), time.sleep(60)]"
    reader = start_python(crowded(1, work, NOBODY), root, config)
    assert reader.stdout.readline() == "held\n"
    prune = (
        "from kernlib.config import get_config\n"
        "done = jit.prune(get_config(), jit.PruneLimits(max_bytes=0))\n"
        "print(len(done.removed), *(row.reason for row in done.kept))"
    )
    assert python(prune, root, config) == "0 in use"
    for process in {*jit.holders(artifact.path)} - {os.getpid()}:
        os.kill(process, signal.SIGKILL)
    reader.communicate(timeout=30)
    assert artifact.library.exists()


def test_no_permission_to_write_is_one_clear_error(folder, root):
    closed = folder / "closed"
    closed.mkdir(mode=0o555)
    config = Config(workspace=closed / "workspace")
    uid = NOBODY if AS_ROOT else None
    (told,) = set(python(crowded(4, uid=uid), root, config).splitlines())
    assert told.startswith(f"LoadError: {closed}/workspace: ")
    assert "Permission denied" in told
    assert "KERNLIB_WORKSPACE" in told


@contextlib.contextmanager
def mounted(path, size):
    """Mount a small file system, where that is allowed."""
    path.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    done = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs to mount a file system: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_file_system_that_is_read_only_serves_what_it_holds_even_root(folder, root):
    config = Config(workspace=folder / "small" / "workspace")
    with mounted(folder / "small", "4m"):
        library = python(PREPARE, root, config)
        subprocess.run(["mount", "-o", "remount,ro", str(folder / "small")], check=True)
        assert set(python(crowded(4), root, config).splitlines()) == {library}
        work = "jit.prepare(chosen(plain_spec(root)), mode='debug')"
        (told,) = set(python(crowded(4, work), root, config).splitlines())
        assert told.startswith("LoadError")
        assert "Read-only file system" in told
        assert "make it writable, or set KERNLIB_WORKSPACE" in told
        (kept,) = jit.prune(config, jit.PruneLimits(max_bytes=0)).kept
        assert kept.reason == "cannot be removed by this user"


@pytest.mark.parametrize("kilobytes", [4, 16, 24, 32, 40, 48, 56, 64])
def test_a_full_disk_is_one_clear_error_and_no_artifact(folder, root, kilobytes):
    """Whichever step finds no room left: sources, manifest, compiler, linker or record."""
    config = Config(workspace=folder / "small" / "workspace")
    with mounted(folder / "small", f"{kilobytes}k"):
        told = python(crowded(1), root, config)
        if not told.endswith("twice.so"):
            assert told.startswith("LoadError"), told
            assert "No space left on device" in told
            assert "make room, or set KERNLIB_WORKSPACE" in told
            assert not list(config.workspace.glob("artifacts/*"))
        remount = ["mount", "-o", "remount,size=4m", str(folder / "small")]
        subprocess.run(remount, check=True)
        assert Path(python(PREPARE, root, config)).is_file()
        whole(config)


def test_a_limit_on_file_sizes_is_one_clear_error_and_no_artifact(root, config):
    code = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))\n"
        "from crowd import report\n"
        f"print(report(lambda: {WORK}))"
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 4096
    told = python(code, root, config)
    assert told.startswith("LoadError"), told
    assert "make room, or set KERNLIB_WORKSPACE" in told
    assert not list(config.workspace.glob("artifacts/*"))
    assert Path(python(PREPARE, root, config)).is_file()
    whole(config)


def to_all(path):
    path.chmod(0o666)


def to_group(path):
    os.chown(path, 0, NOBODY)
    path.chmod(0o664)


def to_nobody(path):
    os.chown(path, NOBODY, NOBODY)


@pytest.mark.parametrize("part", ["", "build.json", "twice.so"])
@pytest.mark.parametrize(
    ("give", "words"),
    [(to_all, "can be written by others"), (to_group, "can be written by others"),
     (to_nobody, f"belongs to user {NOBODY}, not to 0 or root")],
)  # fmt: skip
def test_what_others_may_have_written_is_put_away_and_told_once(root, config, part, give, words):
    if not AS_ROOT and give is not to_all:
        pytest.skip("needs to give files away: this is not root")
    artifact = jit.prepare(chosen(plain_spec(root)), config)
    give(artifact.path / part)
    artifact.path.chmod(artifact.path.stat().st_mode | 0o111)
    child = start_python(crowded(16), root, config)
    out, err = child.communicate(timeout=60)
    assert set(out.splitlines()) == {str(artifact.library)}
    (message,) = err.splitlines()
    assert words in message
    assert "moved to" in message
    (put_away,) = (config.workspace / "quarantine").iterdir()
    assert put_away.name.startswith(artifact.key)
    assert whole(config) == [artifact.key]


@pytest.mark.parametrize("part", ["build.json", "twice.so"])
def test_a_half_copied_entry_is_told_once_whatever_the_number_of_processes(root, config, part):
    artifact = jit.prepare(chosen(plain_spec(root)), config)
    (artifact.path / part).unlink()
    out, err = start_python(crowded(16), root, config).communicate(timeout=60)
    assert set(out.splitlines()) == {str(artifact.library)}
    assert len(err.splitlines()) == 1, err
    assert whole(config) == [artifact.key]


def test_a_bad_entry_that_cannot_be_moved_is_one_error_before_any_compiler(folder, root, config):
    artifact = jit.prepare(chosen(plain_spec(root)), config)
    artifact.library.write_bytes(b"torn")
    if not AS_ROOT:
        only_read(config.workspace)
    (told,) = set(python(crowded(4, uid=NOBODY if AS_ROOT else None), root, config).splitlines())
    assert told.startswith("LoadError")
    assert "4 bytes, its record says" in told or "Permission denied" in told
    assert compiled(folder) == 1


def test_an_umask_that_lets_a_group_write_closes_no_door(root, config):
    code = "import os\nos.umask(0)\n" + PREPARE
    library = python(code, root, config)
    assert python(code, root, config) == library
    assert [path.stat().st_mode & 0o022 for path in Path(library).parent.iterdir()].count(0) > 4


def test_what_a_process_or_its_forks_hold_is_not_pruned(root, config):
    artifact = jit.prepare(chosen(plain_spec(root)), config)
    debug = python("print(jit.prepare(chosen(plain_spec(root)), mode='debug').path)", root, config)
    done = jit.prune(config, jit.PruneLimits(max_bytes=0))
    assert [row.path for row in done.removed] == [Path(debug)]
    assert [(row.path, row.reason) for row in done.kept] == [(artifact.path, "in use")]
    held = crowd(1, lambda: len(jit.prune(config, jit.PruneLimits(max_bytes=0)).removed))
    assert held == ["0"]
    assert jit.holders(artifact.path) == (os.getpid(),)


def test_a_pruning_among_loads_takes_nothing_from_anybody(root, config):
    """Every process ends with a whole library, whatever was removed before it looked."""
    code = (
        "from crowd import crowd\nfrom kernlib.config import get_config\nimport os\n"
        "def work():\n"
        "    if os.getpid() % 3 == 0:\n"
        "        jit.prune(get_config(), jit.PruneLimits(max_bytes=0))\n"
        "    artifact = jit.prepare(chosen(plain_spec(root)))\n"
        "    return artifact.library.stat().st_size == artifact.size\n"
        "for _ in range(4): print(*crowd(12, work), sep='\\n')"
    )
    assert python(code, root, config).splitlines() == ["True"] * 48

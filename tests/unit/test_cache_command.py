"""``kernlib cache`` lists, shows, checks and prunes what was built."""

import os
import time
from pathlib import Path

import pytest
from jit_samples import chosen, fake_config, plain_spec, python, start_python, write_root

from kernlib import jit
from kernlib._commands import main
from kernlib.config import Mode, using
from kernlib.errors import SelectionError
from kernlib.jit import _prune, _usage

DAY = 86400


@pytest.fixture
def root(tmp_path):
    return write_root(tmp_path / "root")


@pytest.fixture
def config(tmp_path):
    return fake_config(tmp_path)


@pytest.fixture
def built(root, config):
    """Return the folders of three artifacts that nobody holds, last used 1, 20 and 40 days ago."""
    code = "print(jit.prepare(chosen(plain_spec(root))).path)"
    found = {}
    for mode, days in ((Mode.RELEASE, 1), (Mode.LINEINFO, 20), (Mode.DEBUG, 40)):
        text = python(code, root, config.replace(jit_mode=mode))
        found[mode] = jit.artifacts_dir(config) / text.rpartition("/")[2]
        used(found[mode], days)
    return found


def used(path, days):
    os.utime(path, (time.time() - days * DAY,) * 2)


@pytest.fixture
def kernlib(config, capsys):
    """Return a function that runs the command and returns its status and what it printed."""

    def run(*words):
        capsys.readouterr()
        with using(config):
            status = main(["cache", *words])
        return status, capsys.readouterr().out

    return run


def present(config):
    return {path.name for path in jit.artifacts_dir(config).iterdir()}


def test_an_empty_workspace_is_no_error(kernlib, config):
    assert kernlib("list") == (0, f"0 artifacts, 0 B in {jit.artifacts_dir(config)}\n")
    assert kernlib("verify") == (0, "0 of 0 artifacts are whole\n")
    assert kernlib("prune") == (0, "freed 0 B; artifacts left: 0 B\n")


def test_the_list_tells_size_and_last_use_latest_first(kernlib, built):
    status, text = kernlib("list")
    head, *rows, total, beside = text.splitlines()
    assert status == 0
    assert head.split("  ")[0] == "key"
    assert [row.split()[0] for row in rows] == [path.name[:12] for path in built.values()]
    assert [row.split()[-1] for row in rows] == ["twice-cpu"] * 3
    for row, days, mode in zip(rows, (1, 20, 40), built, strict=True):
        assert f"{days}d ago" in row
        assert f" {mode} " in row
    assert total.startswith("3 artifacts, ")
    assert beside.startswith("beside them: generated sources ")


def test_a_load_is_the_last_use(kernlib, built, root, config):
    code = "jit.prepare(chosen(plain_spec(root)))"
    python(code, root, config.replace(jit_mode=Mode.DEBUG))
    first = kernlib("list")[1].splitlines()[1]
    assert first.startswith(built[Mode.DEBUG].name[:12])
    assert "just now" in first


def test_a_stamp_is_written_once_a_minute_at_most(root, config):
    artifact = jit.prepare(chosen(plain_spec(root)), config)
    recent = time.time() - 30
    os.utime(artifact.path, (recent, recent))
    python("jit.prepare(chosen(plain_spec(root)))", root, config)
    assert artifact.path.stat().st_mtime == pytest.approx(recent, abs=1e-3)


def test_what_is_in_use_is_listed_and_shown_with_its_process(kernlib, root, config):
    artifact = jit.prepare(chosen(plain_spec(root)), config)
    assert "just now, in use" in kernlib("list")[1]
    status, text = kernlib("show", artifact.key[:8])
    assert status == 0
    assert f"held by   process {os.getpid()}\n" in text


def test_everything_recorded_is_shown(kernlib, built):
    status, text = kernlib("show", built[Mode.DEBUG].name)
    assert status == 0
    for words in (
        str(built[Mode.DEBUG]), "(40d ago)", "no process", "whole: library and record agree",
        "twice-cpu for cpu, debug", "cxx pretended 1.0", "csrc/twice/twice_cpu.cc sha256", "-O0 -g",
    ):  # fmt: skip
        assert words in text


@pytest.mark.parametrize("key", ["zz", ""])
def test_a_key_that_is_not_there_is_one_line_and_a_usage_error(config, capsys, key):
    with using(config):
        assert main(["cache", "show", key]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"begins with {key!r}. See kernlib cache list" in line


def test_a_key_that_is_not_one_is_told_with_its_candidates(config, built):
    first = jit.artifacts_dir(config) / f"{built[Mode.DEBUG].name[:4]}{'0' * 28}"
    first.mkdir()
    with pytest.raises(SelectionError, match=f"2 keys begin with .*{first.name}"):
        jit.entry_named(first.name[:4], config)


def test_verify_names_each_entry_that_is_not_whole_and_leaves_it(kernlib, built):
    torn = built[Mode.RELEASE] / "twice.so"
    torn.write_bytes(torn.read_bytes()[:-1])
    (built[Mode.DEBUG] / "build.json").unlink()
    renamed = built[Mode.LINEINFO].with_name("0" * 32)
    built[Mode.LINEINFO].rename(renamed)
    status, text = kernlib("verify")
    assert status == 1
    assert "0 of 3 artifacts are whole\n" in text
    assert "bytes, its record says" in text
    assert "build.json cannot be read" in text
    assert f"{renamed}: its record has the key {built[Mode.LINEINFO].name}" in text
    assert torn.exists()
    assert "! " in kernlib("list")[1]
    assert kernlib("show", built[Mode.DEBUG].name)[0] == 1


def test_the_library_of_an_entry_is_never_looked_for_elsewhere(kernlib, built):
    path = built[Mode.DEBUG] / "build.json"
    path.write_text(path.read_text().replace('"twice.so"', '"../twice.so"'))
    assert "its library is called '../twice.so'" in kernlib("verify")[1]


def test_prune_removes_what_was_not_used_for_long(kernlib, built, config):
    status, text = kernlib("prune", "--older-than", "30d", "--dry-run")
    assert status == 0
    assert "not used for 40.0 days" in text
    assert "would free" in text
    assert len(present(config)) == 3
    assert "freed" in kernlib("prune", "--older-than", "30d")[1]
    assert present(config) == {built[Mode.RELEASE].name, built[Mode.LINEINFO].name}
    kernlib("prune", "--older-than", "12h")
    assert present(config) == set()


def test_prune_removes_the_least_recently_used_until_the_rest_fits(kernlib, built, config):
    sizes = {entry.path: entry.size for entry in jit.cache_entries(config)}
    room = sizes[built[Mode.RELEASE]] + sizes[built[Mode.LINEINFO]]
    kernlib("prune", "--max-bytes", str(room))
    assert present(config) == {built[Mode.RELEASE].name, built[Mode.LINEINFO].name}
    kernlib("prune", "--max-bytes", "2GB")
    assert len(present(config)) == 2
    kernlib("prune", "--max-bytes", "1B")
    assert present(config) == set()


def test_prune_without_a_limit_takes_no_artifact(kernlib, built, config):
    kernlib("prune")
    assert len(present(config)) == len(built)


def test_prune_keeps_what_a_living_process_holds_and_makes_room_elsewhere(
    kernlib, built, root, config
):
    code = "import time\njit.prepare(chosen(plain_spec(root)))\nprint('held', flush=True)\n"
    child = start_python(code + "time.sleep(60)", root, config.replace(jit_mode=Mode.DEBUG))
    assert child.stdout.readline() == "held\n"
    used(built[Mode.DEBUG], 40)
    assert kernlib("prune", "--older-than", "10d")[1].count("in use") == 1
    assert present(config) == {built[Mode.RELEASE].name, built[Mode.DEBUG].name}
    child.kill()
    child.communicate()
    kernlib("prune", "--older-than", "10d")
    assert present(config) == {built[Mode.RELEASE].name}


def test_prune_clears_what_builds_left_behind(kernlib, built, config):
    """Folders of dead builders, old evidence, sources that no artifact was built from."""
    ws = config.workspace
    artifacts = jit.artifacts_dir(config)
    (sources,) = (ws / "generated" / "twice-cpu").iterdir()
    old = [
        artifacts / f".{'0' * 32}.1.left", artifacts / ".removed.left",
        ws / "quarantine" / f"{'0' * 32}-{time.time_ns() - 8 * DAY * 10**9}",
        ws / "generated" / "twice-cpu" / "0",
    ]  # fmt: skip
    young = [
        artifacts / f".{'1' * 32}.1.left",
        ws / "quarantine" / f"{'0' * 32}-{time.time_ns()}",
        ws / "generated" / "twice-cpu" / "1",
    ]
    for path in (*old, *young):
        path.mkdir(parents=True)
        (path / "file").write_text("some bytes")
    logs = [ws / "logs" / f"{digit * 32}.log" for digit in "01"]
    for path in logs:
        path.parent.mkdir(exist_ok=True)
        path.write_text("error")
    for path in (*old, logs[0], sources):
        used(path, 8)
    text = kernlib("prune")[1]
    assert not any(path.exists() for path in (*old, logs[0])), text
    assert all(path.exists() for path in (*young, logs[1], sources, *built.values()))
    kernlib("prune", "--max-bytes", "0")
    assert not sources.exists()


def test_locks_are_never_removed(kernlib, built, config):
    before = set((config.workspace / "locks").iterdir())
    kernlib("prune", "--max-bytes", "0")
    assert set((config.workspace / "locks").iterdir()) == before
    assert len(before) == len(built)


def test_what_cannot_be_known_is_kept_unless_the_user_knows(kernlib, built, config, monkeypatch):
    monkeypatch.setattr(_usage, "_file_system", lambda _: "nfs4")
    text = kernlib("prune", "--max-bytes", "0")[1]
    assert text.count("may be in use") == 4
    assert "is on nfs4, where other machines may use it" in text
    assert "--assume-idle" in text
    assert len(present(config)) == len(built)
    kernlib("prune", "--max-bytes", "0", "--assume-idle")
    assert present(config) == set()


def test_what_cannot_be_removed_is_told(kernlib, built, config, monkeypatch):
    monkeypatch.setattr(_prune, "remove", lambda _: False)
    text = kernlib("prune", "--older-than", "30d")[1]
    assert "cannot be removed by this user" in text
    assert "freed 0 B" in text
    assert len(present(config)) == len(built)


@pytest.mark.parametrize(
    "words", [("--older-than", "soon"), ("--older-than", "30"), ("--max-bytes", "much")]
)
def test_a_limit_that_is_none_is_a_usage_error(kernlib, capsys, words):
    with pytest.raises(SystemExit) as raised:
        kernlib("prune", *words)
    assert raised.value.code == 2
    assert repr(words[1]) in capsys.readouterr().err


def test_a_file_system_is_told_from_the_longest_mount_point(tmp_path):
    assert _usage._file_system(Path("/proc/self")) == "proc"
    assert _usage._locks_work(tmp_path)

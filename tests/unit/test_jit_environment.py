"""What compilers get of a process: its environment without injections, and room to work."""

import pytest

from kernlib.config import Config
from kernlib.jit import _resources
from kernlib.jit._toolchain import clean_environment


@pytest.mark.parametrize(
    "name",
    ["LD_PRELOAD", "LD_AUDIT", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "PYTHONMALLOC",
     "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"],
)  # fmt: skip
def test_injections_are_kept_from_compilers(name):
    assert name not in clean_environment({name: "/lib/injected.so", "PATH": "/bin"})


def test_the_rest_is_left_and_messages_are_english():
    kept = clean_environment({"PATH": "/bin", "HOME": "/root", "LC_ALL": "de_DE.UTF-8"})
    assert kept == {"PATH": "/bin", "HOME": "/root", "LC_ALL": "C"}


def test_library_folders_of_a_sanitizer_are_left_out():
    folders = "/opt/gcc/lib64:/usr/local/cuda/compute-sanitizer:/opt/nsight-systems/lib"
    assert clean_environment({"LD_LIBRARY_PATH": folders})["LD_LIBRARY_PATH"] == "/opt/gcc/lib64"
    alone = {"LD_LIBRARY_PATH": "/usr/local/cuda/compute-sanitizer"}
    assert "LD_LIBRARY_PATH" not in clean_environment(alone)


@pytest.mark.parametrize(
    ("gib", "cores", "threads", "jobs"),
    [(64, 4, 1, 4), (4, 16, 1, 2), (8, 16, 2, 2), (1, 16, 1, 1), (None, 3, 1, 3)],
)
def test_as_many_compilers_as_cores_and_memory_hold(monkeypatch, gib, cores, threads, jobs):
    memory = None if gib is None else gib << 30
    monkeypatch.setattr(_resources, "available_memory", lambda: memory)
    monkeypatch.setattr(_resources.os, "sched_getaffinity", lambda _: set(range(cores)))
    assert _resources.job_count(Config(nvcc_threads=threads)) == jobs


def test_a_number_of_jobs_that_was_asked_for_is_taken():
    assert _resources.job_count(Config(max_jobs=7)) == 7


def test_the_memory_of_this_machine_is_known():
    assert _resources.available_memory() > 0


def limited(folder, limit, used, names=("memory.max", "memory.current")):
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in zip(names, (limit, used), strict=True):
        (folder / name).write_text(f"{value}\n")


def test_the_tightest_control_group_above_this_process_counts(tmp_path):
    limited(tmp_path, "max", 100)
    limited(tmp_path / "pod", 1000, 900)
    limited(tmp_path / "pod" / "box", 5000, 10)
    rooms = list(_resources._cgroup_rooms(tmp_path, "0::/pod/box\n"))
    assert sorted(rooms) == [100, 4990]
    assert list(_resources._cgroup_rooms(tmp_path, "0::/\n")) == []


def test_control_groups_of_the_first_version_count_too(tmp_path):
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    limited(tmp_path / "memory" / "box", 700, 800, names)
    own = "5:cpu,cpuacct:/box\n4:memory:/box\n"
    assert list(_resources._cgroup_rooms(tmp_path, own)) == [0]

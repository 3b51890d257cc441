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

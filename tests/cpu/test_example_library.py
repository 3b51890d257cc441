"""A stranger's library, installed as any package is, is recorded and replayed by its name."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import replay_runs as runs

pytestmark = pytest.mark.requires("gxx", "asan")

SOURCES = Path(__file__).resolve().parents[1] / "examplelib"
KERNEL = "csrc/gather.h"
FAR = 2**38  # rows: far beyond what is mapped anywhere near

PRELUDE = """
import torch, examplelib
table = torch.arange(12.0).view(4, 3)
def rows(*values):
    return torch.tensor(values)
"""
SOUND = """
assert examplelib.gather(table, rows(3, 1)).tolist() == [[9, 10, 11], [3, 4, 5]]
embedding = examplelib.Embedding(3)
embedding.load(torch.zeros(4, 3))
embedding.load(table)
assert embedding.look_up(rows(2)).tolist() == [[6, 7, 8]]
assert examplelib.softmax(table[:2], temperature=0.5).sum().item() > 1.99
"""
CRASH = f"""
embedding = examplelib.Embedding(3)
embedding.load(table)
embedding.look_up(rows(0, 3, {FAR}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Install the library into a folder of its own, offline, from a copy of its sources."""
    pytest.importorskip("hatchling", reason="needs hatchling: the build backend is not installed")
    folder = tmp_path_factory.mktemp("installed")
    sources = shutil.copytree(SOURCES, tmp_path_factory.mktemp("sources") / "examplelib")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "--no-index", "--no-deps", "--no-build-isolation", "--target", folder, sources],
        check=True, capture_output=True, timeout=200,
    )  # fmt: skip
    return folder


def run(code, installed, **variables):
    """Run a program that uses the installed library."""
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, check=False,
        timeout=300, cwd=installed.parent, env=runs.environment(installed, variables),
    )  # fmt: skip


def record(code, installed, dumps):
    return run(
        code, installed,
        KERNLIB_LOG_LEVEL="dump", KERNLIB_LOG_DEST=os.devnull, KERNLIB_DUMP_DIR=str(dumps),
    )  # fmt: skip


@pytest.fixture(scope="module")
def session(installed, tmp_path_factory):
    dumps = tmp_path_factory.mktemp("sound")
    done = record(SOUND, installed, dumps)
    assert (done.returncode, done.stderr) == (0, "")
    return dumps


def replay(path, installed, *arguments):
    """Replay without ``--import``: the entry point alone has to do."""
    return runs.replay(path, *arguments, library=installed, packages=())


def test_its_functions_are_its_own_where_nothing_is_recorded(installed):
    code = "assert examplelib.gather.__code__.co_filename == examplelib._ops.__file__"
    done = run(code, installed)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_kind_of_call_is_recorded_and_passes_in_a_replay(session, installed):
    replayed = replay(session, installed)
    assert (replayed.status, replayed.verdict) == (0, "passed")
    assert [call["api"] for call in replayed.calls] == [
        "gather", "Embedding.__init__", "Embedding.load", "Embedding.load",
        "Embedding.look_up", "gather", "softmax",
    ]  # fmt: skip
    compared = {call["api"]: call["comparisons"] for call in replayed.calls}
    for api in ("gather", "Embedding.look_up", "softmax"):
        assert compared[api] == [{"name": "result", "text": "float32 agrees: identical bits"}]
    kernels = {call["api"]: [build["uri"] for build in call["builds"]] for call in replayed.calls}
    assert kernels["gather"] == ["example_gather-cpu"]
    assert kernels["softmax"] == []


def test_a_fault_in_its_kernel_comes_back_with_the_line_and_the_argument(installed, tmp_path):
    done = record(CRASH, installed, tmp_path)
    assert done.returncode == -signal.SIGSEGV, done.stderr
    replayed = replay(tmp_path, installed)
    assert (replayed.status, replayed.verdict) == (10, "reproduced")
    assert replayed.call["api"] == "gather"
    source = replayed.call["source"]
    line = runs.marked_line(installed / "examplelib" / KERNEL, "a row too far faults here")
    assert (source["line"], source["text"]) == line
    assert source["file"] == KERNEL
    assert replayed.findings == [("rows", f"rows[2] = {FAR}, but the table has 4 rows")]


def test_without_its_entry_point_it_is_not_known(session, installed, tmp_path):
    shutil.copytree(installed / "examplelib", tmp_path / "examplelib")
    replayed = replay(session, tmp_path, "--api", "softmax")
    assert replayed.verdict == "not_replayable"
    assert "--import examplelib" in replayed.call["reason"]


def test_its_checks_refuse_what_would_fault(installed):
    code = f"""
from kernlib.errors import InvalidInputError
wide = torch.zeros(2, 3)
for given in ((rows(0, {FAR}), None), (rows(0), wide), (rows(3, 2), table[:2])):
    try:
        examplelib.gather(table, given[0], out=given[1])
    except InvalidInputError as error:
        print(error.message)
assert examplelib.gather(table, rows(3, 1), out=wide) is wide
"""
    done = run(code, installed, KERNLIB_CHECK="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"rows[1] = {FAR}, but the table has 4 rows",
        "out.shape[0] = 2, but rows.shape[0] = 1",
        "out shares memory with table (out starts where it does)",
    ]

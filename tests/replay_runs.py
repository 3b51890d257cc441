"""Records calls in a child process that may die, and replays them with the command."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ELEMENTS = "include/faultlib/elements.h"
FAR = 2**40  # elements: four terabytes, which no neighbour of a tensor reaches

_PRELUDE = """
import glob, os, threading, time
from math import prod
import torch
import faultlib, kernlib
device = {device!r}
def floats(*shape):
    return torch.arange(float(prod(shape)), device=device).reshape(shape)
def ints(*values):
    return torch.tensor(values, dtype=torch.int64, device=device)
def in_a_thread(function, *arguments):
    "Return when the call that this makes is recorded; it may never end."
    found = os.environ["KERNLIB_DUMP_DIR"] + "/*/*/call.json"
    before = len(glob.glob(found))
    threading.Thread(target=function, args=arguments, daemon=True).start()
    while len(glob.glob(found)) == before:
        time.sleep(0.01)
"""
# What a kernel on CUDA did wrong is told when the device is waited for.
_EPILOGUE = """
if device != "cpu":
    torch.cuda.synchronize()
"""


@dataclass(frozen=True)
class Planted:
    """A fault of faultlib: how to call for it, and what its declared check says then."""

    marker: str
    api: str
    code: str
    finding: tuple[str, str] | None


PLANTED = (
    Planted(
        "read-past-pool", "take_rows", f"faultlib.take_rows(floats(6, 5), ints(4, 2, {FAR}))",
        ("pages", f"pages[2] = {FAR}, but the pool has 6 rows"),
    ),
    Planted(
        "write-past-output", "put", f"faultlib.put(floats(7), ints(3, {FAR}), floats(2))",
        ("slots", f"slots[1] = {FAR}, but the output has 7 slots"),
    ),
    Planted(
        "negative-index", "look_back", f"faultlib.look_back(floats(4), ints(0, 1, {FAR}, 0))",
        ("back", f"back[2] = {FAR}, but element 2 has 2 before it"),
    ),
    Planted("wrong-stride", "sum_rows", f"faultlib.sum_rows(floats(4, 3), {FAR})", None),
)  # fmt: skip


def marked_line(path, marker):
    """Return the number and the text of the one line that ends in a marker comment."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    (found,) = [row for row in enumerate(lines, 1) if row[1].endswith(f"// {marker}")]
    return found[0], found[1].strip()


def fault_line(marker, library=TESTS):
    """Return the number and the text of the line of a planted fault."""
    return marked_line(Path(library) / "faultlib" / ELEMENTS, f"FAULT {marker}")


def environment(library, variables):
    # In front of what is there: a machine may keep packages in a folder of PYTHONPATH.
    places = os.pathsep.join(filter(None, (str(library), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": places} | variables


def record(code, dumps, *, device="cpu", library=TESTS, **variables):
    """Run code in a child that records into ``dumps``; return how the child ended."""
    recording = {
        "KERNLIB_LOG_LEVEL": "dump",
        "KERNLIB_LOG_DEST": os.devnull,
        "KERNLIB_DUMP_DIR": str(dumps),
    }
    program = _PRELUDE.format(device=device) + code + _EPILOGUE
    return subprocess.run(
        [sys.executable, "-c", program], cwd=TESTS.parent, capture_output=True, text=True,
        check=False, timeout=300, env=environment(library, recording | variables),
    )  # fmt: skip


def command(*arguments, library=TESTS, python=(), **variables):
    """Run ``kernlib-replay``; return the finished process."""
    return subprocess.run(
        [sys.executable, *python, "-m", "kernlib.replay.cli", *map(str, arguments)],
        cwd=TESTS.parent, capture_output=True, text=True, check=False, timeout=500,
        env=environment(library, variables),
    )  # fmt: skip


@dataclass(frozen=True)
class Replayed:
    """What a replay reported: its exit status and the report's calls."""

    status: int
    verdict: str
    calls: list

    @property
    def call(self):
        """The report of the only call."""
        (only,) = self.calls
        return only

    @property
    def findings(self):
        """The arguments that break a declared check, with what is said of them."""
        return [(row["name"], row["text"]) for row in self.call["findings"]]

    @property
    def builds(self):
        """What is reported of each kernel."""
        return self.call["builds"]


def replay(path, *arguments, library=TESTS, packages=("faultlib",), **variables):
    """Replay with ``--json`` and return the report, which must agree with the exit status."""
    imports = [word for name in packages for word in ("--import", name)]
    done = command(path, *arguments, *imports, "--json", library=library, **variables)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["exit_status"] == done.returncode
    return Replayed(done.returncode, report["verdict"], report["calls"])


def capsule(dumps, api="*", number=None):
    """Return the only capsule of an api, or of a call."""
    digits = "[0-9]*" if number is None else f"{number:06d}"
    (found,) = Path(dumps).glob(f"*/{digits}-{api}")
    return found


def modes_built(workspace, header):
    """Return the modes in which a workspace holds builds of these very bytes of ELEMENTS."""
    digest = hashlib.sha256(header.read_bytes()).hexdigest()
    found = workspace.glob("artifacts/*/build.json")
    records = [json.loads(path.read_text(encoding="utf-8"))["record"] for path in found]
    return {record["mode"] for record in records if record["sources"].get(ELEMENTS) == digest}


def copy_of(capsule, folder):
    """Return a copy of a capsule, in a copy of its session, to be tampered with."""
    return shutil.copytree(capsule.parent, folder / capsule.parent.name) / capsule.name


def recorded_call(path):
    """Return what ``call.json`` of a capsule holds."""
    return json.loads((path / "call.json").read_text(encoding="utf-8"))


def change_call(path, change):
    """Rewrite a capsule's ``call.json`` after ``change`` has edited it."""
    tree = recorded_call(path)
    change(tree)
    (path / "call.json").write_text(json.dumps(tree), encoding="utf-8")

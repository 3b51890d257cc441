"""Where nothing can be written the results are the same, and one line says why."""

import os
import socket
import subprocess
import sys

import pytest
from recording_samples import check_whole

from kernlib import dump

pytestmark = pytest.mark.requires("gxx")

#: Twelve calls, each with results of its own; ``between`` runs before each.
PROGRAM = """
import os, resource, shutil, torch
from kernlib import fused_add_rms_norm_, rms_norm

def check(at):
    x = torch.randn(16, 512, generator=torch.Generator().manual_seed(at))
    weight = torch.full((512,), float(at + 1))
    expected = x / (x.double().square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight
    out = torch.empty_like(x)
    assert rms_norm(x, weight, out=out) is out
    assert torch.allclose(out.double(), expected)
    y = torch.zeros_like(x)
    assert fused_add_rms_norm_(y, x.clone(), weight) is None
    assert torch.allclose(y.double(), expected)

folder = os.environ["KERNLIB_DUMP_DIR"]
for at in range(6):
    {between}
    check(at)
"""
NOTHING = "pass"
#: From the third round on, no file may grow beyond 8 KiB; the tensors have 32.
SMALL_FILES = "at == 2 and resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))"
REMOVED = "at == 2 and shutil.rmtree(folder)"
#: A file stands in the place of the folder for two rounds.
REPLACED = "at == 2 and (shutil.rmtree(folder), open(folder, 'w')); at == 4 and os.unlink(folder)"
#: For two rounds the session may not be written, which holds for root only without its powers.
FORBIDDEN = """
    if at == 2:
        import ctypes
        none = (ctypes.c_uint32 * 6)()
        assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), none) == 0
    if at in (2, 4):
        for path in (folder, os.path.join(folder, *os.listdir(folder))):
            os.chmod(path, 0o500 if at == 2 else 0o700)
"""


@pytest.fixture
def run(server, tmp_path):
    """Return a function that runs a program at level dump, under further variables."""

    def start(program, **variables):
        defaults = {
            "KERNLIB_LOG_LEVEL": "dump",
            "KERNLIB_LOG_DEST": tmp_path / "logs" / "%p.log",
            "KERNLIB_DUMP_DIR": tmp_path / "dumps",
        }
        return server.run(program, **(defaults | variables))

    return start


def check_warned_once(child, sink, reason):
    """Assert that the program's own checks held and that one line gives the reason."""
    line = only_line(child)
    assert line.startswith(f"{sink} could not record a call and goes on without it: ")
    assert reason in line


def only_line(child):
    assert child.status == 0, child.stderr
    assert child.stdout == ""
    (line,) = child.stderr.splitlines()
    return line


def only_session(folder):
    (entry,) = dump.list_sessions(folder)
    assert entry.problem is None
    return entry


def test_a_process_that_can_write_says_nothing(run, tmp_path):
    child = run(PROGRAM.format(between=NOTHING))
    assert (child.status, child.stderr) == (0, "")
    calls, problems = check_whole(only_session(tmp_path / "dumps").path)
    assert problems == []
    assert [call.status for call in calls.values()] == ["returned"] * 12


def test_a_file_that_may_not_grow_costs_its_call_only(run, tmp_path):
    child = run(PROGRAM.format(between=SMALL_FILES))
    check_warned_once(child, "DumpSink", "File too large")
    entry = only_session(tmp_path / "dumps")
    calls, problems = check_whole(entry.path)
    assert problems == []
    assert sorted(calls) == [1, 2, 3, 4]
    assert entry.session.dropped.errors == 8


@pytest.fixture
def small_disk(tmp_path):
    """Return a folder on a file system of half a megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("needs mount, which is not on PATH")
    if done.returncode:
        pytest.skip(f"needs the right to mount a small disk: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_costs_calls_but_none_that_is_listed(run, small_disk):
    child = run(PROGRAM.format(between=NOTHING), KERNLIB_DUMP_DIR=small_disk)
    check_warned_once(child, "DumpSink", "No space left on device")
    calls, problems = check_whole(only_session(small_disk).path)
    assert problems == []
    assert 0 < len(calls) < 12


def test_an_output_that_has_no_room_does_not_make_its_call_a_suspect(run, tmp_path):
    """The inputs fit, the outputs do not: the call ended, and its capsule says so."""
    child = run("""
import resource, torch
from kernlib import rms_norm
resource.setrlimit(resource.RLIMIT_FSIZE, (24576, 24576))
whole = torch.ones(64, 128)
rms_norm(whole[:8], torch.ones(128), out=whole[8:16])
big = torch.ones(1, 128).expand(64, 128)
assert rms_norm(big, torch.ones(128)).shape == (64, 128)
""")
    check_warned_once(child, "DumpSink", "File too large")
    calls, problems = check_whole_without_results(only_session(tmp_path / "dumps").path)
    assert problems == []
    assert [call.status for call in calls] == ["returned", "returned"]
    assert calls[1].changed == ()
    assert any("File too large" in text for text in calls[1].incomplete)


def check_whole_without_results(session):
    entries = dump.list_calls(session)
    return [dump.read_call(entry.path) for entry in entries], [
        entry.problem for entry in entries if entry.problem
    ]


def test_a_folder_that_cannot_be_made_costs_the_dump_only(run, tmp_path):
    (tmp_path / "file").write_text("in the way")
    child = run(PROGRAM.format(between=NOTHING), KERNLIB_DUMP_DIR=tmp_path / "file" / "dumps")
    check_warned_once(child, "DumpSink", "Not a directory")
    (log,) = (tmp_path / "logs").iterdir()
    assert len(log.read_text().splitlines()) == 24


def check_goes_on(child, folder):
    """Assert that one line tells of the removal; return the calls of the session made then."""
    entry = only_session(folder)
    line = only_line(child)
    assert line.startswith(f"the session {folder}")
    assert f"was removed while it was recorded; recording goes on in {entry.path}" in line
    calls, problems = check_whole(entry.path)
    assert problems == []
    return calls


def test_a_folder_removed_while_recording_is_made_anew(run, tmp_path):
    child = run(PROGRAM.format(between=REMOVED))
    assert sorted(check_goes_on(child, tmp_path / "dumps")) == [*range(5, 13)], "no call is lost"


def test_a_session_removed_while_recording_is_made_anew(run, tmp_path):
    child = run(
        PROGRAM.format(
            between="at == 2 and shutil.rmtree(os.path.join(folder, *os.listdir(folder)))"
        )
    )
    assert sorted(check_goes_on(child, tmp_path / "dumps")) == [*range(5, 13)]


def test_a_folder_that_cannot_be_made_anew_costs_the_dump_until_it_can(run, tmp_path):
    child = run(PROGRAM.format(between=REPLACED))
    first, second = child.stderr.splitlines()
    assert "DumpSink could not record a call and goes on without it: " in first
    assert "recording goes on in" in second
    assert child.status == 0
    calls, problems = check_whole(only_session(tmp_path / "dumps").path)
    assert (sorted(calls), problems) == ([*range(9, 13)], [])


def test_permissions_taken_away_cost_the_dump_until_they_are_back(run, tmp_path):
    child = run(PROGRAM.format(between=FORBIDDEN))
    check_warned_once(child, "DumpSink", "Permission denied")
    entry = only_session(tmp_path / "dumps")
    calls, problems = check_whole(entry.path)
    assert (sorted(calls), problems) == ([1, 2, 3, 4, *range(9, 13)], [])
    assert entry.session.dropped.errors == 4


def test_a_folder_removed_during_calls_is_told_once_and_made_anew(run, tmp_path):
    child = run("""
import os, shutil, torch
from kernlib import kernel_api

@kernel_api
def add(x):
    return x + 1

@kernel_api
def remove(x):
    shutil.rmtree(os.environ["KERNLIB_DUMP_DIR"])
    return add(x)

assert remove(torch.ones(2)).tolist() == [2, 2]
assert add(torch.ones(2)).tolist() == [2, 2]
""")
    calls = check_goes_on(child, tmp_path / "dumps")
    assert [call.api for call in calls.values()] == ["add", "add"]


def test_a_call_on_an_object_that_was_made_in_a_removed_session_is_recorded(run, tmp_path):
    """Its set-up is gone with the folder, so it cannot be replayed; the replay says so."""
    child = run("""
import os, shutil, torch
from kernlib import kernel_api

class Scale:
    @kernel_api
    def __init__(self, by):
        self.by = by

    @kernel_api
    def run(self, x):
        return x * self.by

scale = Scale(3)
shutil.rmtree(os.environ["KERNLIB_DUMP_DIR"])
assert scale.run(torch.ones(2)).tolist() == [3, 3]
""")
    (call,) = check_goes_on(child, tmp_path / "dumps").values()
    assert (call.api, call.status, call.receiver.id) == ("Scale.run", "returned", 2)


def test_a_disk_that_was_full_from_the_start_is_used_once_it_has_room(run, small_disk):
    """No attempt to make a session leaves anything on the disk."""
    filled = "open(folder + '/fill', 'wb').write(bytes(1 << 19))"
    child = run(
        PROGRAM.format(
            between=f"""
    if at == 0:
        try:
            {filled}
        except OSError:
            pass
    if at == 4:
        assert os.listdir(folder) == ["fill"]
        os.unlink(folder + "/fill")"""
        ),
        KERNLIB_DUMP_DIR=small_disk,
    )
    check_warned_once(child, "DumpSink", "No space left on device")
    calls, problems = check_whole(only_session(small_disk).path)
    assert problems == []
    assert min(calls) == 9


@pytest.mark.parametrize(
    ("place", "reason"),
    [("file/calls.log", "File exists"), (".", "Is a directory"), ("/dev/full", "No space left")],
)
def test_a_log_that_cannot_be_written_costs_the_lines_only(run, tmp_path, place, reason):
    (tmp_path / "file").write_text("in the way")
    child = run(PROGRAM.format(between=NOTHING), KERNLIB_LOG_DEST=tmp_path / place)
    check_warned_once(child, "LogSink", reason)
    assert len(dump.list_calls(only_session(tmp_path / "dumps").path)) == 12


def test_a_log_destination_takes_pid_rank_and_host(run, tmp_path):
    child = run(PROGRAM.format(between=NOTHING), KERNLIB_LOG_DEST=tmp_path / "%h-%r-%p.log", RANK=5)
    assert (child.status, child.stderr) == (0, "")
    log = tmp_path / f"{socket.gethostname()}-5-{child.pid}.log"
    assert len(log.read_text().splitlines()) == 24


FORK = """
import multiprocessing, os, pathlib, torch
from kernlib import kernel_api, rms_norm

def norm():
    rms_norm(torch.ones(2, 8), torch.ones(8))

@kernel_api
def fork_inside(x):
    pid = os.fork()
    if pid:
        assert os.waitpid(pid, 0)[1] == 0
        mine = pathlib.Path(os.environ["KERNLIB_DUMP_DIR"]).glob(f"*-{os.getpid()}/*-fork_inside")
        assert b'"started"' in next(mine).joinpath("call.json").read_bytes()
    return pid

norm()
worker = multiprocessing.get_context("fork").Process(target=norm)
worker.start()
worker.join()
assert worker.exitcode == 0
if fork_inside(1) == 0:
    norm()
    os._exit(0)
norm()
print(worker.pid)
"""


def test_a_forked_child_has_a_session_and_a_log_of_its_own(run, tmp_path):
    child = run(FORK)
    assert (child.status, child.stderr) == (0, "")
    sessions = {
        entry.session.process.pid: [
            (call.api, call.status) for call in check_whole(entry.path)[0].values()
        ]
        for entry in dump.list_sessions(tmp_path / "dumps")
    }
    norm = ("rms_norm", "returned")
    assert sessions.pop(child.pid) == [norm, ("fork_inside", "returned"), norm]
    assert sessions.pop(int(child.stdout)) == [norm]
    ((inside, calls),) = sessions.items()
    assert calls == [norm], "the call it was forked in is its parent's"
    pids = {int(path.stem) for path in (tmp_path / "logs").iterdir()}
    assert pids == {child.pid, int(child.stdout), inside}


SPAWN = """
import multiprocessing, torch
from kernlib import rms_norm

def norm(rows):
    return rms_norm(torch.ones(rows, 8), torch.ones(8)).shape[0]

if __name__ == "__main__":
    norm(1)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(norm, [2, 3]) == [2, 3]
        pool.close()
        pool.join()
"""


def test_a_spawned_worker_records_too(tmp_path):
    program = tmp_path / "serve.py"
    program.write_text(SPAWN)
    variables = {
        "KERNLIB_LOG_LEVEL": "dump",
        "KERNLIB_LOG_DEST": str(tmp_path / "%p.log"),
        "KERNLIB_DUMP_DIR": str(tmp_path / "dumps"),
    }
    done = subprocess.run(
        [sys.executable, str(program)], env=os.environ | variables,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    shapes = sorted(
        [call.views[0].shape for call in check_whole(entry.path)[0].values()]
        for entry in dump.list_sessions(tmp_path / "dumps")
    )
    assert shapes == [[(1, 8)], [(2, 8), (3, 8)]]

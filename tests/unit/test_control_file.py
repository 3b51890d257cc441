"""An operator switches the recording of a running process by editing a file, and only that."""

import contextlib
import logging
import os
import socket
import subprocess
import sys

import pytest

from kernlib.config import recording_variables, variables
from kernlib.errors import ConfigError, LoadError
from kernlib.logging._control import ControlFile, _why_not, parse_control


class Followed:
    """A control file that is looked at when the test says so, and what it has handed on."""

    def __init__(self, path):
        self.path = path
        self.seen = []
        self._file = ControlFile(path, lambda fields, _: self.seen.append(fields))

    def write(self, text):
        self.path.write_text(text)
        self.path.chmod(0o600)

    def look(self, times=2):
        """Return what is handed on at these looks: the first that finds a change waits."""
        self.seen.clear()
        for _ in range(times):
            self._file.check()
        return self.seen

    def start(self):
        self.seen.clear()
        self._file.check(settled=True)
        return self.seen


@pytest.fixture
def followed(tmp_path):
    return Followed(tmp_path / "control")


@pytest.fixture
def warnings(caplog):
    caplog.set_level(logging.WARNING, logger="kernlib.recorder")

    def take():
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return found

    return take


def test_a_file_that_is_there_counts_from_the_start(followed):
    followed.write("KERNLIB_LOG_LEVEL=args\n")
    assert followed.start() == [{"log_level": "args"}]
    assert followed.look(5) == []


def test_a_missing_file_at_the_start_changes_nothing(followed):
    assert followed.start() == []
    assert followed.look(5) == []


def test_lines_are_variables_with_comments_and_blanks_between(followed):
    followed.write(
        "\ufeff# the night of the crash\r\n\r\n  KERNLIB_LOG_LEVEL = dump # all of it\r\n"
        "KERNLIB_INCLUDE=rms_*, PagedDecode.*\n#KERNLIB_SYNC=1\nKERNLIB_DUMP_DIR=/dumps/a=b#c\n"
        "KERNLIB_EXCLUDE="
    )
    assert followed.look() == [
        {"log_level": "dump", "include": "rms_*, PagedDecode.*", "dump_dir": "/dumps/a=b#c",
         "exclude": ""},
    ]  # fmt: skip


def test_a_change_counts_once_it_has_settled(followed):
    """A file that is still being written must not be followed half."""
    followed.write("KERNLIB_LOG_LEVEL=dump\n")
    assert followed.look(1) == []
    followed.write("KERNLIB_LOG_LEVEL=dump\nKERNLIB_INCLUDE=rms_norm\n")
    assert followed.look(1) == []
    assert followed.look(1) == [{"log_level": "dump", "include": "rms_norm"}]
    assert followed.look(5) == []


def test_a_half_written_line_is_not_complained_about(followed, warnings):
    followed.write("KERNLIB_LOG_LE")
    followed.look(1)
    followed.write("KERNLIB_LOG_LEVEL=args")
    assert followed.look() == [{"log_level": "args"}]
    assert warnings() == []


def test_a_removed_and_an_empty_file_give_the_environment_back(followed):
    followed.write("KERNLIB_LOG_LEVEL=args\n")
    followed.look()
    followed.path.unlink()
    assert followed.look(5) == [{}]
    followed.write("KERNLIB_LOG_LEVEL=args\n")
    followed.look()
    followed.write("")
    assert followed.look(5) == [{}]


def test_a_replaced_file_counts(followed, tmp_path):
    followed.write("KERNLIB_LOG_LEVEL=args\n")
    followed.look()
    new = Followed(tmp_path / "new")
    new.write("KERNLIB_LOG_LEVEL=dump\n")
    new.path.replace(followed.path)
    assert followed.look() == [{"log_level": "dump"}]


def test_a_link_to_the_file_that_is_turned_counts(followed, tmp_path):
    for level in ("args", "dump"):
        Followed(tmp_path / level).write(f"KERNLIB_LOG_LEVEL={level}")
        (tmp_path / "link").symlink_to(level)
        (tmp_path / "link").replace(followed.path)
        assert followed.look() == [{"log_level": level}]


def test_an_edit_that_size_and_time_do_not_show_counts(followed):
    followed.write("KERNLIB_LOG_LEVEL=args\n")
    facts = followed.path.stat()
    followed.look()
    followed.write("KERNLIB_LOG_LEVEL=dump\n")
    os.utime(followed.path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert followed.look() == [{"log_level": "dump"}]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("KERNLIB_LOG_LEVEL=loud", ":1: KERNLIB_LOG_LEVEL='loud': expected off, calls"),
        ("\n#\nKERNLIB_SYNC=yes", ":3: KERNLIB_SYNC='yes': expected 0 or 1"),
        ("KERNLIB_DUMP_MAX_BYTES=9 parrots", "KERNLIB_DUMP_MAX_BYTES='9 parrots': expected a size"),
        ("dump", ":1: line='dump': expected a line such as KERNLIB_LOG_LEVEL=args"),
        ("KERNLIB_JIT_MODE=debug", ":1: KERNLIB_JIT_MODE='debug': expected what can be switched"),
        ("KERNLIB_CONTROL=/other", "expected what can be switched in a running process: KERNLIB_L"),
        ("PATH=/bin", ":1: PATH='/bin': expected what can be switched"),
        ("export KERNLIB_SYNC=1", ":1: export KERNLIB_SYNC='1': expected what can be switched"),
        ("KERNLIB_INCLUDE='rms_*'", "expected the value as it is, without quotes"),
        ("KERNLIB_DUMP_DIR=a\0b", "expected the value as it is"),
        ("KERNLIB_SYNC=1\nKERNLIB_SYNC=0", ":2: KERNLIB_SYNC='0': expected it once; line 1"),
        ("#" * 70_000, "expected fewer than 65536 bytes; it has 70000"),
    ],
)  # fmt: skip
def test_a_bad_file_is_told_once_and_changes_nothing(followed, warnings, text, told):
    followed.write("KERNLIB_LOG_LEVEL=args")
    followed.look()
    followed.write(text)
    assert followed.look(5) == []
    (warning,) = warnings()
    assert told in warning
    assert str(followed.path) in warning
    assert warning.endswith("; the recording stays as it is")
    followed.write("KERNLIB_LOG_LEVEL=stats")
    assert followed.look() == [{"log_level": "stats"}]
    assert warnings() == []


def test_a_recorder_that_cannot_be_made_is_told_and_the_file_is_followed_on(tmp_path, warnings):
    made = []

    def make(fields, _):
        if fields:
            raise LoadError(tmp_path, "no sources")
        made.append(fields)

    file, path = ControlFile(tmp_path / "control", make), tmp_path / "control"
    path.write_text("KERNLIB_LOG_LEVEL=dump")
    path.chmod(0o600)
    file.check(settled=True)
    assert "no sources; the recording stays as it is" in warnings()[0]
    path.unlink()
    file.check(settled=True)
    assert made == [{}]


def test_text_that_is_no_text_is_told(followed, warnings):
    followed.path.write_bytes(b"KERNLIB_LOG_DEST=\xff\xfe")
    followed.path.chmod(0o600)
    assert followed.look(3) == []
    assert "expected text in UTF-8" in warnings()[0]


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "socket", "loop"])
def test_what_is_no_file_is_told_and_holds_nobody(followed, warnings, kind):
    with socket.socket(socket.AF_UNIX) as bound:
        if kind == "folder":
            followed.path.mkdir(mode=0o700)
        elif kind == "pipe":
            os.mkfifo(followed.path, 0o600)
        elif kind == "device":
            followed.path.symlink_to("/dev/null")
        elif kind == "loop":
            followed.path.symlink_to(followed.path)
        else:
            bound.bind(str(followed.path))
        assert followed.look(3) == []
    (warning,) = warnings()
    assert "expected a" in warning or "expected one that can be read" in warning


def test_a_file_that_cannot_be_read_is_told_and_followed_when_it_can(
    followed, warnings, monkeypatch
):
    followed.write("KERNLIB_LOG_LEVEL=dump")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:  # to root, nothing is unreadable
        patch.setattr("os.open", refuse)
        assert followed.look(5) == []
    (warning,) = warnings()
    assert "expected one that can be read: Permission denied" in warning
    assert followed.look() == [{"log_level": "dump"}]


@pytest.mark.parametrize("mode", [0o602, 0o620, 0o666])
def test_a_file_that_others_may_write_is_refused_until_that_is_mended(followed, warnings, mode):
    followed.write("KERNLIB_LOG_LEVEL=dump")
    followed.path.chmod(mode)
    assert followed.look(5) == []
    (warning,) = warnings()
    assert "expected a file that only its owner may write; run: chmod go-w" in warning
    followed.path.chmod(0o644)
    assert followed.look() == [{"log_level": "dump"}]


@pytest.mark.parametrize(("owner", "followed_by"), [(0, True), (1000, True), (1001, False)])
def test_a_file_of_another_user_is_refused_but_for_root(monkeypatch, owner, followed_by):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    facts = os.stat_result((0o100600, 1, 1, 1, owner, owner, 10, 0, 0, 0))
    reason = _why_not(facts)
    assert (not reason) is followed_by
    assert followed_by or "user 1001 owns it" in reason


def test_recording_can_be_switched_and_building_cannot():
    switched = {row.name for row in recording_variables()}
    recording = ("KERNLIB_LOG_", "KERNLIB_DUMP_", "KERNLIB_INCLUDE", "KERNLIB_EXCLUDE")
    for row in variables():
        if row.name.startswith((*recording, "KERNLIB_SYNC")):
            assert row.name in switched
        if row.name.startswith(("KERNLIB_JIT", "KERNLIB_CXX", "KERNLIB_EXTRA", "KERNLIB_CONTROL")):
            assert row.name not in switched


def test_no_line_of_any_bytes_breaks_the_reader(tmp_path):
    for byte in range(256):
        text = f"KERNLIB_LOG_LEVEL=args{chr(byte)}"
        with contextlib.suppress(ConfigError):  # and no other error
            assert parse_control(tmp_path, text) == {"log_level": "args"}


PROGRAM = """
import os, sys, time
from kernlib import kernel_api

@kernel_api
def work(x):
    return x

def wait(switched, code=work.__code__):
    end = time.monotonic() + 60
    while (work.__code__ is code) == switched:
        assert time.monotonic() < end, "not switched"
        time.sleep(0.02)

def say(text):
    print(text, flush=True)

switched = sys.argv[1:] == ["started on"]
if not switched:
    assert not hasattr(work, "__wrapped__")
work(0)
say("ready")
code = getattr(work, "__wrapped__", work).__code__
for line in sys.stdin:
    if line == "fork\\n":
        child = os.fork()
        if child == 0:
            wait(True, code)
            work("child")
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    else:
        wait(line == "on\\n", code)
        work("parent")
    say("done")
"""


@pytest.fixture
def operated(tmp_path):
    """Return a function that starts a process with a control file, and gives orders to it."""
    started = []

    def start(*arguments, **variables):
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"KERNLIB_CONTROL": str(tmp_path / "control")} | variables,
        )  # fmt: skip
        started.append(process)
        assert process.stdout.readline() == "ready\n", process.stderr.read()

        def order(text):
            process.stdin.write(f"{text}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n", process.stderr.read()

        return process, order

    yield start
    for process in started:
        process.kill()
        process.communicate()


def end(process):
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return [line.rpartition("kernlib ")[2] for line in errors.splitlines()]


def test_a_running_process_is_switched_from_outside(operated, tmp_path):
    process, order = operated()
    control = Followed(tmp_path / "control")
    control.write("KERNLIB_LOG_LEVEL=calls\n")
    order("on")
    control.path.unlink()
    order("off")
    assert end(process) == ["call #1 work"]


def test_a_forked_child_follows_the_file_too(operated, tmp_path):
    """The child is forked while nothing is recorded; the file is written later."""
    process, order = operated()
    process.stdin.write("fork\n")
    process.stdin.flush()
    Followed(tmp_path / "control").write("KERNLIB_LOG_LEVEL=calls\n")
    assert process.stdout.readline() == "done\n", process.stderr.read()
    order("on")
    assert end(process) == ["call #1 work"] * 2


def test_the_file_counts_before_the_first_call_and_over_the_environment(operated, tmp_path):
    Followed(tmp_path / "control").write("KERNLIB_LOG_LEVEL=calls\n")
    process, order = operated("started on", KERNLIB_LOG_LEVEL="args")
    order("on")
    assert end(process) == ["call #1 work", "call #2 work"]


def test_a_session_says_what_the_file_has_set(operated, tmp_path):
    process, order = operated(KERNLIB_DUMP_DIR=str(tmp_path / "dumps"))
    control = Followed(tmp_path / "control")
    control.write("KERNLIB_LOG_LEVEL=dump\nKERNLIB_INCLUDE=wor*\n")
    order("on")
    end(process)
    (session,) = (tmp_path / "dumps").glob("*/session.json")
    text = session.read_text()
    for control in ("KERNLIB_LOG_LEVEL", "KERNLIB_INCLUDE", "KERNLIB_CONTROL"):
        assert f'"{control}":' in text

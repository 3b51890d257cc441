"""All processes that write to one folder share its budget; what the dead left makes room."""

import json
import os
import shutil
import signal
import socket
import time
from pathlib import Path

import dump_samples as samples
import msgspec
import pytest
from crowd import crowd

from kernlib import dump
from kernlib.dump._alive import this_process
from kernlib.dump._allowance import Allowance
from kernlib.dump._budget import Ledger
from kernlib.dump._ended import Room
from kernlib.dump._neighbours import _MOST_AT_ONCE, Neighbours, write_usage
from kernlib.dump._share import Usage

SIZE = 1000


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch):
    """However slow the machine is: nothing is put off, and nobody looks because time went by."""
    monkeypatch.setattr("kernlib.dump._neighbours._SCAN_SECONDS", 1e9)
    monkeypatch.setattr("kernlib.dump._allowance._PERIOD", 1e9)


def process(pid=None):
    return msgspec.structs.replace(
        samples.PROCESS, host=socket.gethostname(), pid=pid or os.getpid()
    )


def record(session, sequence, *, api="f", size=SIZE, status="returned", setup=False):
    """Record a call with one tensor of so many bytes; return whether there was room."""
    writer = session.begin(sequence, api, size, None if setup else api)
    if writer is None:
        return False
    if setup:
        session.pin(sequence)
    call = samples.call(sequence, api=api, setup=setup)
    writer.start(call, [dump.Blob("x", "U8", (size,), memoryview(bytes(size)))])
    if status != "started":
        writer.finish(msgspec.structs.replace(call, status=status))
    return True


def writer(folder, **budget):
    return dump.SessionWriter(folder, process(), dump.Budget(**budget))


def dead(folder, work, **budget):
    """Run ``work`` on a session of a child that is killed then; return the session's folder."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        session = dump.SessionWriter(folder, process(), dump.Budget(**budget))
        work(session)
        os.write(writing, str(session.path).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(writing)
    with os.fdopen(reading) as text:
        path = Path(text.read())
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    return path


def calls(session_dir):
    return [entry.sequence for entry in dump.list_calls(Path(session_dir)) if not entry.problem]


def held(folder):
    """Return how many finished capsules a folder holds, and the bytes of all."""
    entries = [
        entry
        for session in dump.list_sessions(folder)
        for entry in dump.list_calls(session.path)
        if entry.status == "returned"
    ]
    sizes = [path.stat().st_size for path in folder.glob("*/0*/*")]
    return len(entries), sum(sizes)


def usage(session_dir):
    return msgspec.json.decode((Path(session_dir) / "usage.json").read_bytes(), type=Usage)


CHILDREN = 8


def test_processes_that_write_at_once_keep_to_one_budget(tmp_path):
    """Each writes five times the budget; measured while all are still alive."""

    def work():
        session = writer(tmp_path, max_calls=80)
        for number in range(1, 401):
            record(session, number)
        (tmp_path / f"done-{os.getpid()}").touch()
        deadline = time.monotonic() + 90
        while len(list(tmp_path.glob("done-*"))) < CHILDREN and time.monotonic() < deadline:
            time.sleep(0.01)
        number = 400
        while number < 500 or len(list(tmp_path.glob("over-*"))) < CHILDREN:
            number += 1  # whoever began early gives way now, as long as others still record
            session._allowance._next = session._allowance._next_in_need = 0
            record(session, number)
            if number == 500:
                (tmp_path / f"over-{os.getpid()}").touch()
            assert time.monotonic() < deadline
        (tmp_path / f"still-{os.getpid()}").touch()
        while len(list(tmp_path.glob("still-*"))) < CHILDREN and time.monotonic() < deadline:
            time.sleep(0.01)
        newest = calls(session.path)[-1] == number
        return json.dumps([len(calls(session.path)), newest, held(tmp_path)[0]])

    found = [json.loads(text) for text in crowd(CHILDREN, work)]
    assert all(newest for _, newest, _ in found), "everybody has its newest call"
    fair = 80 // CHILDREN
    assert all(1 <= own <= 3 * fair for own, _, _ in found), found
    assert max(total for _, _, total in found) <= 80 * 9 // 8 + CHILDREN


def test_bytes_are_shared_too(tmp_path):
    def work():
        session = writer(tmp_path, max_bytes=400_000)
        for number in range(1, 201):
            record(session, number, size=5_000)
        return calls(session.path)[-1]

    assert crowd(CHILDREN, work) == ["200"] * CHILDREN
    assert held(tmp_path)[1] <= 400_000 * 9 // 8 + CHILDREN * 12_500


def test_what_ended_processes_left_goes_first_the_oldest_of_all(tmp_path):
    second = dead(tmp_path, lambda session: [record(session, at) for at in range(1, 6)])
    path = dead(tmp_path, lambda session: [record(session, at) for at in range(1, 6)])
    first = path.rename(tmp_path / "20200101T000000Z-host-1")
    session = writer(tmp_path, max_calls=12)
    for number in range(1, 10):
        record(session, number)
    assert calls(session.path) == [*range(1, 10)]
    assert not first.exists(), "nothing was left in it"
    assert calls(second) == [3, 4, 5]
    for number in range(10, 30):
        record(session, number)
    assert calls(session.path) == [*range(18, 30)]
    assert not second.exists()
    session.close()
    assert dump.read_session(session.path).dropped == dump.Dropped(evicted=17, cleared=10)


def test_a_large_call_is_made_room_for_at_once_however_many_small_ones_that_takes(tmp_path):
    path = dead(tmp_path, lambda session: [record(session, at) for at in range(1, 101)])
    session = writer(tmp_path, max_bytes=held(tmp_path)[1] + 2000)
    assert record(session, 1, size=50 * SIZE)
    assert calls(session.path) == [1]
    assert 0 < len(calls(path)) < 70


def test_room_for_later_calls_is_made_a_few_capsules_at_a_time(tmp_path):
    path = dead(tmp_path, lambda session: [record(session, at) for at in range(1, 101)])
    session = writer(tmp_path, max_calls=100)
    assert record(session, 1)
    assert len(calls(path)) == 100 - _MOST_AT_ONCE
    for number in range(2, _MOST_AT_ONCE + 1):
        assert record(session, number)
    assert len(calls(path)) == 100 - _MOST_AT_ONCE


def test_what_a_process_was_at_when_it_died_stays_with_its_set_up(tmp_path):
    def work(session):
        record(session, 1, setup=True)
        record(session, 2)
        record(session, 3, status="started")
        record(session, 4)

    path = dead(tmp_path, work)
    session = writer(tmp_path, max_calls=2)
    for number in range(1, 9):
        record(session, number)
    assert calls(path) == [1, 3]
    assert dump.list_calls(path)[1].status == "started"
    assert calls(session.path) == [7, 8]
    found = usage(path)
    assert (found.calls, found.ended) == (0, True)
    assert found.evidence == found.bytes > 2 * SIZE


def test_the_last_call_that_raised_stays_where_none_was_running(tmp_path):
    def work(session):
        record(session, 1, setup=True)
        record(session, 2, status="raised")
        record(session, 3, status="raised")
        record(session, 4)

    path = dead(tmp_path, work)
    session = writer(tmp_path, max_calls=2)
    for number in range(1, 9):
        record(session, number)
    assert calls(path) == [1, 3]
    assert calls(session.path) == [7, 8]


def test_set_up_calls_of_the_dead_go_where_nothing_needs_them(tmp_path):
    path = dead(tmp_path, lambda session: record(session, 1, setup=True))
    session = writer(tmp_path, max_calls=1, max_bytes=4000)
    for number in range(1, 4):
        record(session, number)
    assert not path.exists()


def test_evidence_may_fill_half_of_the_folder_and_the_newest_always_stays(tmp_path):
    def crash(session):
        record(session, 1, size=20_000, status="started")

    paths = [dead(tmp_path, crash) for _ in range(4)]
    paths.sort()
    session = writer(tmp_path, max_bytes=60_000)
    for number in range(1, 20):
        assert record(session, number)
    assert [path.exists() for path in paths] == [False, False, False, True]
    assert calls(session.path)[-1] == 19
    assert held(tmp_path)[1] <= 60_000 * 9 // 8
    session.close()
    assert dump.read_session(session.path).dropped.cleared == 3


def test_one_crash_that_fills_the_folder_is_kept_and_the_next_process_still_records(tmp_path):
    path = dead(tmp_path, lambda session: record(session, 1, size=60_000, status="started"))
    session = writer(tmp_path, max_bytes=60_000)
    for number in range(1, 20):
        record(session, number)
    assert calls(path) == [1]
    assert calls(session.path)[-1] == 19
    assert held(tmp_path)[1] <= 61_000 + 60_000 // 8


def test_a_killed_process_claims_no_more_than_it_left(tmp_path):
    """While it lived it had claimed room for later calls."""
    path = dead(tmp_path, lambda session: record(session, 1), max_calls=100)
    assert usage(path).calls == 25
    session = writer(tmp_path, max_calls=100)
    record(session, 1)
    assert usage(path).calls == 1
    assert usage(path).ended


def test_living_sessions_are_left_alone(tmp_path):
    living = writer(tmp_path, max_calls=10)
    for number in range(1, 11):
        record(living, number)
    session = writer(tmp_path, max_calls=10)
    for number in range(1, 21):
        record(session, number)
    assert calls(living.path) == [*range(1, 11)]
    assert calls(session.path) == [20], "it has no more than what everybody has"


def test_a_session_that_holds_too_much_gives_way_at_its_next_calls(tmp_path):
    first = writer(tmp_path, max_calls=32)
    for number in range(1, 33):
        record(first, number)
    second = writer(tmp_path, max_calls=32)
    for number in range(1, 33):
        record(second, number)
        record(first, 100 + number)
        first._allowance._next_in_need = second._allowance._next_in_need = 0.0
    assert 14 <= len(calls(first.path)) <= 18
    assert 14 <= len(calls(second.path)) <= 18


def test_a_session_that_was_closed_is_an_ended_one(tmp_path):
    first = writer(tmp_path, max_calls=5)
    for number in range(1, 6):
        record(first, number)
    first.close()
    session = writer(tmp_path, max_calls=5)
    for number in range(1, 6):
        record(session, number)
    assert calls(session.path) == [1, 2, 3, 4, 5]
    assert not first.path.exists()


def test_a_session_that_goes_on_after_its_close_is_a_living_one(tmp_path):
    first = writer(tmp_path, max_calls=5)
    record(first, 1)
    first.close()
    assert usage(first.path).ended
    record(first, 2)
    assert not usage(first.path).ended
    session = writer(tmp_path, max_calls=5)
    for number in range(1, 9):
        record(session, number)
    assert calls(first.path) == [1, 2]


def foreign(folder, name, **fields):
    """Make a session of another host's process that holds one capsule."""
    path = folder / name
    session = dump.SessionWriter(folder, samples.PROCESS)
    record(session, 1)
    session.path.rename(path)
    facts = {"calls": 1, "bytes": SIZE, "table": "another host", "pid": 1}
    write_usage(str(path), Usage(**(facts | fields)))
    return path


def test_sessions_of_other_hosts_are_counted_and_left_alone(tmp_path):
    path = foreign(tmp_path, "20200101T000000Z-far-1", calls=7)
    session = writer(tmp_path, max_calls=10)
    for number in range(1, 20):
        record(session, number)
    assert calls(path) == [1]
    assert calls(session.path) == [17, 18, 19]


def test_other_hosts_that_fell_silent_have_no_fair_share(tmp_path):
    """A container that was restarted a hundred times has left a hundred sessions."""
    for number in range(100):
        path = foreign(tmp_path, f"20200101T000000Z-far-{number}", calls=1)
        os.utime(path / "usage.json", (0, 0))
    session = writer(tmp_path, max_calls=100)
    for number in range(1, 50):
        record(session, number)
    assert len(calls(session.path)) == 100 // 8


def test_clocks_that_run_ahead_are_no_obstacle(tmp_path):
    path = foreign(tmp_path, "20990101T000000Z-far-1", calls=4)
    os.utime(path / "usage.json", (4e9, 4e9))
    gone = dead(tmp_path, lambda session: [record(session, at) for at in range(1, 5)])
    gone = gone.rename(tmp_path / "20990101T000001Z-near-1")
    session = writer(tmp_path, max_calls=10)
    for number in range(1, 20):
        record(session, number)
    assert calls(path) == [1]
    assert not gone.exists()
    assert len(calls(session.path)) == 10 - 4


def test_a_folder_that_only_another_host_said_is_ended_is_cleared(tmp_path):
    path = foreign(tmp_path, "20200101T000000Z-far-1", ended=True)
    session = writer(tmp_path, max_calls=1)
    record(session, 1)
    record(session, 2)
    assert not path.exists()


def test_what_cannot_be_removed_stays_and_is_counted(tmp_path, monkeypatch):
    path = dead(tmp_path, lambda session: [record(session, at) for at in range(1, 4)])
    unlink = os.unlink

    def refuse(target, **rest):
        if str(target).startswith(str(path)):
            raise PermissionError(target)
        unlink(target, **rest)

    monkeypatch.setattr(os, "unlink", refuse)
    session = writer(tmp_path, max_calls=5)
    for number in range(1, 11):
        record(session, number)
    assert calls(path) == [1, 2, 3]
    assert calls(session.path) == [9, 10]
    session.close()
    assert dump.read_session(session.path).dropped.cleared == 0


def test_files_of_others_in_a_session_stay_with_its_folder(tmp_path):
    path = dead(tmp_path, lambda session: record(session, 1))
    (path / "notes.txt").write_text("what I found")
    session = writer(tmp_path, max_calls=1)
    record(session, 1)
    record(session, 2)
    assert calls(path) == []
    assert (path / "notes.txt").exists()
    assert (path / "session.json").exists()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"calls": -5, "bytes": 1}', b"x" * 1000, b'{"calls":1}']
)
def test_a_usage_that_cannot_be_read_is_nobodys(tmp_path, content):
    path = foreign(tmp_path, "20200101T000000Z-far-1")
    (path / "usage.json").write_bytes(content)
    session = writer(tmp_path, max_calls=3)
    for number in range(1, 9):
        record(session, number)
    assert calls(session.path) == [6, 7, 8]
    assert calls(path) == [1]


def test_a_session_that_vanishes_between_the_look_and_the_clearing_is_no_obstacle(tmp_path):
    path = dead(tmp_path, lambda session: record(session, 1))
    neighbours = Neighbours(f"{tmp_path}/own", this_process())
    write_usage(str(path), msgspec.structs.replace(usage(path), ended=True))
    neighbours.look()
    shutil.rmtree(path)
    neighbours.clear(Room(10, 10), Room(10, 10), None)
    assert neighbours.cleared == 0


def test_a_link_is_not_followed(tmp_path):
    outside = dead(tmp_path / "elsewhere", lambda session: record(session, 1))
    folder = tmp_path / "dumps"
    folder.mkdir()
    (folder / outside.name).symlink_to(outside)
    session = writer(folder, max_calls=1)
    record(session, 1)
    record(session, 2)
    assert calls(outside) == [1]


def test_a_folder_of_others_that_is_removed_gives_its_room_back(tmp_path):
    path = foreign(tmp_path, "20200101T000000Z-far-1", calls=7)
    session = writer(tmp_path, max_calls=10)
    for number in range(1, 11):
        record(session, number)
    assert len(calls(session.path)) == 3
    shutil.rmtree(path)
    session._allowance._next_in_need = 0.0
    for number in range(11, 21):
        record(session, number)
    assert len(calls(session.path)) == 10


def test_while_there_is_room_nobody_looks(tmp_path, monkeypatch):
    session = writer(tmp_path, max_calls=1000)
    record(session, 1)
    monkeypatch.setattr(Neighbours, "look", pytest.fail)
    for number in range(2, 200):
        record(session, number)


def test_a_look_that_brought_nothing_is_not_repeated_at_every_call(tmp_path, monkeypatch):
    looks = []
    look = Neighbours.look
    monkeypatch.setattr(Neighbours, "look", lambda self: looks.append(look(self)))
    session = writer(tmp_path, max_calls=4)
    for number in range(1, 101):
        record(session, number)
    assert len(looks) == 5, "one for each step to the limit, and one that brought nothing"


class Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_a_session_with_room_looks_once_a_second_whether_it_should_give_way(tmp_path, monkeypatch):
    monkeypatch.setattr("kernlib.dump._allowance._PERIOD", 1.0)
    clock, ledger = Clock(), Ledger(dump.Budget(max_calls=100))
    (tmp_path / "own").mkdir()
    allowance = Allowance(f"{tmp_path}/own", dump.Budget(max_calls=100), ledger, clock)
    beats = []
    for _ in range(12):
        allowance.review(1, calls=1)
        beats.append(usage(tmp_path / "own").beat)
        clock.now += 0.25
    assert beats == [2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4]


def test_a_slow_folder_is_looked_at_less_often(tmp_path, monkeypatch):
    monkeypatch.setattr("kernlib.dump._allowance._PERIOD", 1.0)
    clock, ledger = Clock(), Ledger(dump.Budget(max_calls=100))
    look = Neighbours.look

    def slow(self):
        clock.now += 2.0
        look(self)

    monkeypatch.setattr(Neighbours, "look", slow)
    (tmp_path / "own").mkdir()
    allowance = Allowance(f"{tmp_path}/own", dump.Budget(max_calls=100), ledger, clock)
    begin = clock.now
    while clock.now < begin + 1000:
        allowance.review(1, calls=1)
        clock.now += 0.5
    assert usage(tmp_path / "own").beat <= 12, "it costs no more than a fiftieth of the time"


def test_finding_out_what_many_ended_sessions_hold_is_spread_over_several_looks(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("kernlib.dump._neighbours._SCAN_SECONDS", 0.0)
    paths = [
        dead(tmp_path, lambda session: record(session, 1), max_calls=100).rename(tmp_path / stamp)
        for stamp in ("20200101T000000Z-h-1", "20200102T000000Z-h-1", "20200103T000000Z-h-1")
    ]
    for path in paths:  # each has heard of those before it
        write_usage(str(path), msgspec.structs.replace(usage(path), ended=False))
    neighbours = Neighbours(f"{tmp_path}/own", this_process())
    ended = []
    for _ in range(4):
        neighbours.look()
        ended.append([usage(path).ended for path in paths])
    assert [sum(row) for row in ended] == [1, 2, 3, 3]


def test_whatever_two_processes_remove_at_once_is_counted_by_one(tmp_path):
    dead(tmp_path, lambda session: [record(session, at) for at in range(1, 41)])

    def work():
        neighbours = Neighbours(f"{tmp_path}/own", this_process())
        neighbours.look()
        neighbours.clear(Room(40, 0), Room(40, 0), None)
        return neighbours.cleared

    assert sum(map(int, crowd(4, work))) == 40


def test_what_a_kill_left_half_removed_is_cleared(tmp_path):
    def work(session):
        record(session, 1)
        record(session, 2)
        (session.path / "000001-f" / "call.json").unlink()
        (session.path / "000002-f" / ".call.json.tmp").touch()
        (session.path / ".000003-f.tmp").mkdir()
        (session.path / ".000003-f.tmp" / "inputs.safetensors").write_bytes(bytes(5000))

    path = dead(tmp_path, work)
    session = writer(tmp_path, max_calls=10, max_bytes=10_000)
    for number in range(1, 9):
        record(session, number)
    assert not path.exists()
    assert held(tmp_path)[1] <= 10_000


def test_this_process_is_named_in_its_usage(tmp_path):
    session = writer(tmp_path, max_calls=1)
    assert usage(session.path).process == this_process()
    size = (session.path / "usage.json").stat().st_size
    for number in range(1, 20):
        record(session, number)
    assert (session.path / "usage.json").stat().st_size == size

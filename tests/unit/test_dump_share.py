"""One session's part of a folder: never too much together, always something, fair in the end."""

import random

import msgspec
import pytest

from kernlib.dump._alive import Identity, is_gone, this_process
from kernlib.dump._share import Others, Usage, limit

TOTAL = 1000


class Session:
    """A session in a model of a folder: what it claims, and what it would take."""

    def __init__(self, folder):
        self.folder = folder
        self.claim = self.used = 0
        self.hungry = False
        folder.append(self)

    def look(self, total=TOTAL, need=0):
        rest = [other for other in self.folder if other is not self]
        fair = total // len(self.folder)
        waiting = any(other.hungry and other.claim < fair for other in rest)
        others = Others(sum(other.claim for other in rest), len(rest), waiting)
        allowed = limit(total, self.claim, others, need)
        self.used = min(self.used, allowed)  # the ledger evicts
        self.claim = allowed
        return allowed

    def call(self, total=TOTAL, size=1):
        """Use so much more if it is allowed; else take the place of what is there."""
        if self.used + size > self.claim:
            self.look(total, self.used + size - self.claim)
        self.hungry = self.used + size > self.claim
        if not self.hungry:
            self.used += size


def total_of(folder):
    return sum(session.claim for session in folder)


def test_a_session_alone_takes_all_step_by_step():
    folder = []
    session = Session(folder)
    claims = set()
    for _ in range(TOTAL * 2):
        session.call()
        claims.add(session.claim)
    assert session.used == TOTAL
    assert sorted(claims) == [250, 500, 750, 1000]


@pytest.mark.parametrize("count", [2, 7, 16, 200])
def test_sessions_that_all_want_more_end_with_equal_parts(count):
    folder = []
    first = Session(folder)
    for _ in range(TOTAL):
        first.call()
    sessions = [first, *(Session(folder) for _ in range(count - 1))]
    for _ in range(60):
        for session in sessions:
            session.look()
            for _ in range(20):
                session.call()
            assert total_of(folder) <= TOTAL * 9 / 8 + count
    fair = TOTAL // count
    assert all(fair * 7 // 8 - 1 <= session.used <= fair * 5 // 4 + 1 for session in sessions)


@pytest.mark.parametrize("seed", range(10))
def test_together_they_never_claim_more_than_the_total_and_an_eighth(seed):
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    folder = []
    for _ in range(3000):
        if not folder or (len(folder) < 24 and chance.random() < 0.02):
            Session(folder)
        session = chance.choice(folder)
        session.call(size=chance.choice([1, 1, 1, 5, 90, 700]))
        if chance.random() < 0.1:
            session.look()
        assert total_of(folder) <= TOTAL * 9 / 8 + len(folder)


def test_who_is_idle_and_holds_everything_starves_nobody():
    folder = []
    idle, other = Session(folder), Session(folder)
    idle.claim = idle.used = TOTAL
    for _ in range(5):
        other.call()
    assert other.claim == TOTAL // 2 // 8
    for _ in range(500):
        other.call()
    assert other.hungry
    idle.look()
    assert idle.claim == TOTAL // 2, "the next call gives the others their part"


def test_nobody_gives_way_to_those_who_need_nothing():
    folder = []
    busy, _ = Session(folder), Session(folder)
    for _ in range(TOTAL):
        busy.call()
    busy.look()
    assert busy.claim == TOTAL


def test_one_large_call_takes_what_is_free_though_it_is_more_than_a_fair_share():
    folder = []
    sessions = [Session(folder) for _ in range(10)]
    sessions[0].call(size=700)
    assert sessions[0].used == 700
    sessions[1].call(size=700)
    assert sessions[1].used == 0, "there is no room for a second one"


@pytest.mark.parametrize("total", [0, 1, 2, 7])
def test_small_totals_leave_everybody_one_but_nothing_where_there_is_nothing(total):
    folder = []
    sessions = [Session(folder) for _ in range(5)]
    for session in sessions:
        session.call(total)
    assert [session.claim for session in sessions] == [min(1, total)] * 5


def test_a_usage_is_checked_when_it_is_read():
    decoder = msgspec.json.Decoder(Usage)
    usage = Usage(calls=1, bytes=2, pid=3, table="t", born=4)
    assert decoder.decode(msgspec.json.encode(usage) + b"    \n") == usage
    for bad in (
        b"{}",
        b'{"calls": -1, "bytes": 0}',
        b'{"calls": 1, "bytes": 1e30}',
        b'{"calls": 1',
    ):
        with pytest.raises(msgspec.MsgspecError):
            decoder.decode(bad)


def test_a_process_is_known_by_more_than_its_number(monkeypatch):
    import os
    import subprocess
    import sys

    here = this_process()
    assert here == this_process()
    assert not is_gone(here, here)
    assert is_gone(here._replace(born=here.born - 1), here), "its number was given to another one"
    assert not is_gone(here._replace(table="other", born=0), here), "another host: nothing is known"
    assert not is_gone(here._replace(pid=0), here)
    assert not is_gone(here._replace(born=0), Identity("", here.pid, 0))
    program = "from kernlib.dump._alive import this_process; print(*this_process()); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    table, pid, born = child.stdout.readline().split()
    identity = Identity(table, int(pid), int(born))
    assert not is_gone(identity, here)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(identity, here), "killed, although nobody has waited for it yet"
    child.communicate()
    assert is_gone(identity, here)
    monkeypatch.setattr("kernlib.dump._alive._stat", lambda _: (_ for _ in ()).throw(OSError))
    assert not is_gone(here, here), "hidden, but it can be signalled"
    assert is_gone(identity, here)

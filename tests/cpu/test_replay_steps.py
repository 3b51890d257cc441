"""Generators and coroutines are replayed as far as they had come."""

import signal

import pytest
import replay_runs as runs

pytestmark = pytest.mark.requires("gxx", "asan")

WHOLE, CLOSED, ANSWERED, LATER, STREAM, OPEN = 1, 2, 3, 4, 5, 8
SESSION = """
import asyncio
slots, values = ints(5, 0), floats(2) + 7
assert list(faultlib.put_one_by_one(floats(6), slots, values)) == [5, 0]
closed = faultlib.put_one_by_one(floats(6), slots, values)
assert next(closed) == 5
closed.close()
answered = faultlib.put_one_by_one(floats(6), slots, values)
next(answered), answered.send("go on"), next(answered, None)
assert asyncio.run(faultlib.put_later(floats(3), slots[1:], values[1:])) == 8 + 1 + 2
async def rows():
    return [row async for row in faultlib.rows_later(floats(4, 3), ints(2, 1))]
assert len(asyncio.run(rows())) == 2
still_open = faultlib.put_one_by_one(floats(6), slots, values)
next(still_open)
os._exit(0)
"""
#: The second item does it; before it, another coroutine began and waits.
CRASH = f"""
import asyncio
async def step_by_step():
    for slot in faultlib.put_one_by_one(floats(7), ints(3, {runs.FAR}), floats(2)):
        await asyncio.sleep(0)
async def main():
    await asyncio.gather(step_by_step(), faultlib.put_later(floats(3), ints(1), floats(1)))
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """Record generators and coroutines that ended, and one that did not."""
    dumps = tmp_path_factory.mktemp("session")
    done = runs.record(SESSION, dumps)
    assert done.returncode == 0, done.stderr
    return dumps


def replay_call(dumps, number):
    replayed = runs.replay(dumps, "--call", number)
    told = {row["name"]: row["text"] for row in replayed.call["comparisons"]}
    return replayed, told


def test_a_generator_is_run_to_its_end(session):
    replayed, told = replay_call(session, WHOLE)
    assert replayed.verdict == "passed", replayed.call
    assert told["yielded items"].endswith("agrees: 2 (exact)")
    assert {"result", "out"} <= set(told)


def test_a_closed_generator_is_run_as_far_as_it_was(session):
    replayed, told = replay_call(session, CLOSED)
    assert replayed.verdict == "passed", replayed.call
    assert told["yielded items"].endswith("agrees: 1 (exact)")
    assert "float32 agrees" in told["out"]


def test_a_generator_that_gives_another_number_of_items_is_a_mismatch(session, tmp_path):
    capsule = runs.capsule(session, number=WHOLE)
    copied = runs.copy_of(capsule, tmp_path)
    runs.change_call(copied, lambda call: call["yielded"].update(items=3))
    replayed = runs.replay(copied)
    assert replayed.verdict == "mismatch"
    assert replayed.call["reason"] == "yielded items: 2, recorded 3"


def test_a_generator_that_was_answered_is_refused(session):
    replayed, _ = replay_call(session, ANSWERED)
    assert (replayed.status, replayed.verdict) == (3, "not_replayable")
    assert "was sent or thrown into the generator" in replayed.call["reason"]


def test_a_coroutine_is_run_to_its_end(session):
    replayed, told = replay_call(session, LATER)
    assert replayed.verdict == "passed", replayed.call
    assert set(told) == {"result", "out"}


def test_an_asynchronous_generator_is_run_to_its_end(session):
    replayed, told = replay_call(session, STREAM)
    assert replayed.verdict == "passed", replayed.call
    assert told["yielded items"].endswith("agrees: 2 (exact)")


def test_a_generator_left_open_is_no_suspect(session):
    call = runs.recorded_call(runs.capsule(session, number=OPEN))
    assert (call["status"], call["yielded"]) == ("suspended", {"items": 1})
    listed = runs.command(session, "--list").stdout
    assert f"{OPEN}  put_one_by_one  suspended" in listed
    shown = runs.command(session, "--show", OPEN).stdout
    assert "1 items, not recorded" in shown


def test_a_crash_in_a_later_step_is_found_beside_what_only_waits(tmp_path):
    done = runs.record(CRASH, tmp_path)
    assert done.returncode == -signal.SIGSEGV, done.stderr
    replayed = runs.replay(tmp_path)
    assert (replayed.verdict, replayed.call["api"]) == ("reproduced", "put_one_by_one")
    assert replayed.call["source"]["line"] == runs.fault_line("write-past-output")[0]

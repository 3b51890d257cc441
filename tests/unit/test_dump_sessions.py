"""Capsules are published whole, kept within their budget, and found again."""

import contextlib
import errno
import json
import os
import threading
from pathlib import Path

import dump_samples as samples
import msgspec
import pytest
import torch

from kernlib import dump
from kernlib.errors import CapsuleError, SelectionError


@pytest.fixture
def values():
    return {"x": torch.arange(6.0), "indices": torch.tensor([2, 0, 1], dtype=torch.int32)}


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def test_a_started_call_is_there_before_it_runs(tmp_path, values):
    writer, _, record = samples.begin(tmp_path, sequence=42, **values)
    assert names(tmp_path) == ["000042-Thing.run"]
    assert names(writer.path) == ["call.json", "inputs.safetensors"]
    assert dump.read_call(Path(writer.path)) == record


def test_results_and_changes_in_place_are_kept(tmp_path, values):
    writer, encoder, record = samples.begin(tmp_path, **values)
    values["indices"][1] = 9
    made = values["x"] * 2
    samples.finish(writer, encoder, record, (made, values["indices"], values["x"][1:]))
    path = Path(writer.path)
    read = dump.read_call(path)
    assert [(item.entry, item.storage) for item in read.changed] == [
        ("indices", 1),
        ("result[0]", 2),
    ]
    pieces = [*dump.read_inputs(path, read), *dump.read_outputs(path, read)]
    views = dump.rebuild(read.storages, dump.result_views(read), pieces)
    back = dump.decode(read.result, views)
    assert torch.equal(back[0], made)
    assert back[1].tolist() == [2, 9, 1]
    assert torch.equal(back[2], values["x"][1:])


def test_the_inputs_stay_what_they_were_before_the_call(tmp_path, values):
    writer, encoder, record = samples.begin(tmp_path, **values)
    values["x"].zero_()
    samples.finish(writer, encoder, record, None)
    assert samples.read_back(writer.path)["x"].tolist() == [0, 1, 2, 3, 4, 5]


def test_a_call_without_effects_writes_no_outputs(tmp_path, values):
    writer, encoder, record = samples.begin(tmp_path, **values)
    samples.finish(writer, encoder, record, None)
    assert names(writer.path) == ["call.json", "inputs.safetensors"]


def test_a_change_beyond_the_first_part_of_a_large_segment_is_seen(tmp_path):
    x = torch.zeros(1 << 20, dtype=torch.uint8)
    writer, encoder, record = samples.begin(tmp_path, x=x)
    x[-1] = 1
    assert samples.finish(writer, encoder, record, None).changed[0].nbytes == 1 << 20


def test_a_result_that_reaches_beyond_the_inputs_is_kept(tmp_path):
    pool = torch.arange(10.0)
    writer, encoder, record = samples.begin(tmp_path, x=pool[2:4])
    read = samples.finish(writer, encoder, record, pool[1:8])
    assert [(item.start, item.nbytes) for item in read.changed] == [(4, 28)]


def test_a_storage_that_the_call_shrank_is_noted(tmp_path):
    x = torch.zeros(8)
    writer, encoder, record = samples.begin(tmp_path, x=x)
    x.untyped_storage().resize_(4)
    record = samples.ended(encoder, record, None)
    left = dump.outcome(encoder.memory, record, writer.stored)
    assert left.incomplete == ["x: the call made its storage smaller"]


def test_everything_is_for_its_owner_only(tmp_path, values):
    session = dump.SessionWriter(tmp_path / "dumps", samples.PROCESS)
    session.add_build("0" * 32, b"{}", "", {"csrc/x.cc": b""})
    writer, encoder, record = samples.begin(session.path, **values)
    samples.finish(writer, encoder, record, torch.ones(2))
    for path in [tmp_path / "dumps", *(tmp_path / "dumps").rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_text_that_is_no_unicode_does_not_lose_the_end_of_a_call(tmp_path, values):
    writer, _, record = samples.begin(tmp_path, **values)
    error = dump.ExceptionInfo(type="OSError", message="no \udcff.txt")
    writer.finish(msgspec.structs.replace(record, status="raised", exception=error))
    read = dump.read_call(Path(writer.path))
    assert (read.status, read.exception.message) == ("raised", "no \\udcff.txt")


class Killed(BaseException):
    """Stands for the end of the process: nothing after it may be needed."""


LAST = 13
LAST_OF_TAKING_OVER = 12
STEPS = ("mkdir", "open", "writev", "rename", "replace")


def kill_before(patch, fatal, steps):
    """Have the process die before its n-th file operation."""
    done = []

    def guard(name):
        real = getattr(os, name)

        def step(*args, **kwargs):
            if len(done) >= fatal:
                raise Killed
            done.append(name)
            return real(*args, **kwargs)

        return step

    for name in steps:
        patch.setattr(os, name, guard(name))
    exchange = dump._files.exchange

    def exchange_unless_killed(*paths):
        if len(done) >= fatal:
            raise Killed
        done.append("exchange")
        return exchange(*paths)

    patch.setattr("kernlib.dump._files.exchange", exchange_unless_killed)


@pytest.mark.parametrize("fatal", range(20))
def test_whatever_step_is_the_last_a_reader_sees_whole_calls(tmp_path, values, monkeypatch, fatal):
    """The process dies before its n-th file operation, and cannot clean up either."""
    samples.begin(tmp_path, sequence=1, **values)
    with monkeypatch.context() as patch:
        kill_before(patch, fatal, STEPS)
        patch.setattr("shutil.rmtree", lambda *_, **__: None)
        patch.setattr(os, "unlink", lambda *_: None)
        survived = False
        with contextlib.suppress(Killed):
            writer, encoder, record = samples.begin(tmp_path, sequence=2, **values)
            values["x"][0] = 5
            samples.finish(writer, encoder, record, torch.ones(3))
            survived = True
    states = {entry.sequence: entry for entry in dump.list_calls(tmp_path)}
    assert states[1].status == "started"
    for entry in states.values():
        if entry.problem is not None:
            assert entry.problem.startswith("was being written when its process ended")
            continue
        read = dump.read_call(entry.path)
        dump.read_inputs(entry.path, read)
        dump.read_outputs(entry.path, read)
        assert samples.read_back(entry.path)["x"].tolist() == [0, 1, 2, 3, 4, 5]
    assert (2 in states) == (fatal > 0)
    assert survived == (fatal >= LAST)
    if survived:
        assert states[2].status == "returned"


@pytest.mark.parametrize("fatal", range(16))
def test_a_kill_while_an_old_capsule_makes_room_leaves_no_mixture(tmp_path, monkeypatch, fatal):
    """The new call takes the folder of the old one; each is there whole, or not at all."""
    session = limited(tmp_path, max_calls=1)
    for number in (1, 2):
        assert run(session, number, 100 * number)
    with monkeypatch.context() as patch:
        kill_before(patch, fatal, (*STEPS, "unlink", "rmdir", "ftruncate", "truncate"))
        patch.setattr("shutil.rmtree", lambda *_, **__: None)
        survived = False
        with contextlib.suppress(Killed):
            run(session, 3, 300)
            survived = True
    whole = [entry for entry in dump.list_calls(session.path) if entry.problem is None]
    for entry in whole:
        x = samples.read_back(entry.path)["x"]
        assert len(x) == 100 * entry.sequence == dump.read_call(entry.path).storages[0].nbytes
        shown = [name for name in names(entry.path) if not name.startswith(".")]
        assert shown == ["call.json", "inputs.safetensors"]
    numbers = [entry.sequence for entry in whole]
    assert numbers in ([2], [], [3])
    if fatal == 0:
        assert numbers == [2]
    if survived:
        assert (numbers, whole[0].status) == ([3], "returned")
    assert survived == (fatal >= LAST_OF_TAKING_OVER)


def test_a_full_disk_leaves_nothing_half_done(tmp_path, values, monkeypatch):
    session = dump.SessionWriter(tmp_path, samples.PROCESS)
    encoder, record = samples.encoded(**values)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    writer = session.begin(1, record.api, dump.input_bytes(record.storages))
    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", full)
        with pytest.raises(OSError, match="No space"):
            writer.start(record, dump.input_blobs(encoder.memory, record))
    assert names(session.path) == ["session.json", "usage.json"]
    writer = session.begin(2, record.api, 0)
    writer.start(record, dump.input_blobs(encoder.memory, record))
    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", full)
        with pytest.raises(OSError, match="No space"):
            samples.finish(writer, encoder, record, torch.ones(2))
    assert names(writer.path) == ["call.json", "inputs.safetensors"]
    assert dump.read_call(Path(writer.path)).status == "started"


def run(session, sequence, nbytes=64, *, finish=True, pin=False, kind=None):
    """Record one call of about ``nbytes`` bytes; return whether the budget admitted it."""
    encoder, record = samples.encoded(x=torch.zeros(nbytes, dtype=torch.uint8))
    record = msgspec.structs.replace(record, sequence=sequence)
    writer = session.begin(sequence, "f", nbytes, kind)
    if writer is None:
        return False
    if pin:
        session.pin(sequence)
    writer.start(record, dump.input_blobs(encoder.memory, record))
    if finish:
        writer.finish(msgspec.structs.replace(record, status="returned"))
    return True


def kept(session):
    return [entry.sequence for entry in dump.list_calls(session.path)]


def limited(tmp_path, **budget):
    return dump.SessionWriter(tmp_path, samples.PROCESS, dump.Budget(**budget))


def test_the_newest_calls_are_kept(tmp_path):
    session = limited(tmp_path, max_calls=3)
    assert all(run(session, number) for number in range(1, 8))
    assert kept(session) == [5, 6, 7]
    session.close()
    assert dump.read_session(session.path).dropped == dump.Dropped(evicted=4)


def test_the_first_calls_are_kept(tmp_path):
    session = limited(tmp_path, max_calls=3, keep="first")
    assert [run(session, number) for number in range(1, 6)] == [True] * 3 + [False] * 2
    assert kept(session) == [1, 2, 3]
    session.close()
    assert dump.read_session(session.path).dropped == dump.Dropped(calls=2, bytes=128)


def test_running_calls_are_never_evicted_nor_counted(tmp_path):
    session = limited(tmp_path, max_calls=1)
    run(session, 1, finish=False)
    for number in range(2, 6):
        run(session, number)
    assert kept(session) == [1, 5]


def test_set_up_calls_stay_as_long_as_their_receiver(tmp_path):
    session = limited(tmp_path, max_calls=2)
    run(session, 1, pin=True)
    for number in range(2, 6):
        run(session, number)
    assert kept(session) == [1, 4, 5]
    session.unpin(1)
    run(session, 6)
    assert kept(session) == [5, 6]


def test_bytes_are_bounded_with_the_oldest_going_first(tmp_path):
    session = limited(tmp_path, max_bytes=40_000)
    assert all(run(session, number, 10_000) for number in range(1, 7))
    assert kept(session) == [4, 5, 6]
    size = sum(path.stat().st_size for path in session.path.rglob("0*/*"))
    assert size <= 40_000


def test_a_call_that_can_never_fit_evicts_nothing(tmp_path):
    session = limited(tmp_path, max_bytes=40_000)
    run(session, 1, 10_000)
    assert not run(session, 2, 50_000)
    assert kept(session) == [1]


def test_no_byte_is_copied_for_a_call_without_room(tmp_path):
    """The session answers before it is given anything but a number."""
    session = limited(tmp_path, max_bytes=100)
    assert session.begin(1, "f", 101) is None
    assert names(session.path) == ["session.json", "usage.json"]


def test_outputs_need_room_as_well(tmp_path):
    session = limited(tmp_path, max_bytes=10_000)
    writer = session.begin(1, "f", 5_000)
    assert writer.reserve(5_000)
    assert not writer.reserve(1)


def test_room_of_a_failed_capsule_is_given_back(tmp_path):
    session = limited(tmp_path, max_bytes=10_000)
    session.begin(1, "f", 9_000).abandon()
    assert session.begin(2, "f", 9_000) is not None


def test_counts_are_not_written_for_every_call(tmp_path, monkeypatch):
    session = limited(tmp_path, max_calls=0, keep="first")
    monkeypatch.setattr("kernlib.dump._session.replace_file", pytest.fail)
    for number in range(100):
        assert session.begin(number, "f", 1) is None


def test_the_counts_of_a_session_from_before_they_were_told_apart_are_read(tmp_path):
    session = dump.SessionWriter(tmp_path, samples.PROCESS)
    path = session.path / "session.json"
    old = json.loads(path.read_text()) | {"dropped": {"calls": 4, "bytes": 128, "errors": 1}}
    assert "evicted" not in path.read_text(), "what is at its default is not written"
    path.write_text(json.dumps(old))
    assert dump.read_session(session.path).dropped == dump.Dropped(calls=4, bytes=128, errors=1)


def test_what_was_lost_is_told_by_its_reason(tmp_path):
    session = limited(tmp_path, max_calls=4, max_bytes=40_000, max_per_kind=2)
    for number in range(1, 6):
        run(session, number, kind="hot")
    for number in range(6, 10):
        run(session, number, kind=number)
    assert not run(session, 10, 50_000)
    session.count_error()
    session.skipped = 7
    session.close()
    assert dump.read_session(session.path).dropped == dump.Dropped(
        calls=1, bytes=50_000, errors=1, evicted=2, over_quota=3, skipped=7
    )


def test_the_folder_of_an_evicted_capsule_is_taken_over_and_nothing_of_it_stays(tmp_path):
    """Whatever the old capsule held, the new one holds its own files only."""
    session = limited(tmp_path, max_calls=1)
    encoder, record = samples.encoded(x=torch.zeros(64))
    writer = session.begin(1, "f", 256)
    writer.start(record, dump.input_blobs(encoder.memory, record))
    samples.finish(writer, encoder, record, torch.ones(2))
    assert names(writer.path) == ["call.json", "inputs.safetensors", "outputs.safetensors"]
    old = Path(writer.path).stat().st_ino
    writer = session.begin(2, "g", 0)
    writer.start(samples.call(2), [])
    assert Path(writer.path).stat().st_ino == old
    assert names(writer.path) == ["call.json"]
    assert names(session.path) == [".spare", "000002-g", "session.json", "usage.json"]
    writer.finish(samples.call(2, status="returned"))
    session.begin(3, "h", 0).abandon()
    assert kept(session) == [], "what was evicted for a call goes although the call failed"


def test_two_sessions_in_one_second_have_two_folders(tmp_path):
    process = msgspec.structs.replace(samples.PROCESS, rank=3)
    sessions = [dump.SessionWriter(tmp_path, process) for _ in range(5)]
    assert len({session.path for session in sessions}) == 5
    assert sessions[0].path.name.endswith("-node_1_lan-77-r3")
    listed = dump.list_sessions(tmp_path)
    assert [entry.path for entry in listed] == [session.path for session in reversed(sessions)]


def test_threads_share_a_session(tmp_path):
    session = limited(tmp_path, max_calls=10)

    def work(first):
        for number in range(first, first + 50):
            run(session, number)

    threads = [threading.Thread(target=work, args=(at * 1000 + 1,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kept(session)) <= 10 + len(threads)
    assert all(entry.problem is None for entry in dump.list_calls(session.path))


def test_a_list_tells_what_is_wrong_and_goes_on(tmp_path, values):
    writer, encoder, record = samples.begin(tmp_path, sequence=1, **values)
    samples.finish(writer, encoder, record, torch.ones(2))
    torn, _, _ = samples.begin(tmp_path, sequence=2, **values)
    path = Path(torn.path, "call.json")
    path.write_bytes(path.read_bytes()[:-9])
    newer, _, _ = samples.begin(tmp_path, sequence=3, **values)
    path = Path(newer.path, "call.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 4}))
    (tmp_path / "000004-f").mkdir()
    (tmp_path / ".000005-f.tmp").mkdir()
    (tmp_path / "notes.txt").touch()
    entries = dump.list_calls(tmp_path)
    assert [(entry.sequence, entry.status) for entry in entries] == [
        (1, "returned"), (2, None), (3, None), (4, None), (5, None),
    ]  # fmt: skip
    assert entries[0].nbytes > 0
    for entry, expected in zip(
        entries[1:], ["truncated", "update kernlib", "has no call.json", "never ran"], strict=True
    ):
        assert expected in entry.problem


def test_a_torn_session_is_listed_with_its_problem(tmp_path):
    dump.SessionWriter(tmp_path, samples.PROCESS)
    folder = tmp_path / "20990101T000000Z-host-1"
    folder.mkdir()
    (folder / "session.json").write_text("{")
    first, second = dump.list_sessions(tmp_path)
    assert "torn" in first.problem
    assert second.session.process == samples.PROCESS


def test_a_user_may_name_a_dump_a_session_or_a_capsule(tmp_path, values):
    session = dump.SessionWriter(tmp_path, samples.PROCESS)
    writer, _, _ = samples.begin(session.path, **values)
    assert dump.locate(tmp_path) == dump.Location((session.path,))
    assert dump.locate(session.path) == dump.Location((session.path,))
    assert dump.locate(Path(writer.path)) == dump.Location((session.path,), Path(writer.path))
    with pytest.raises(SelectionError, match="is not a folder"):
        dump.locate(tmp_path / "x")
    (tmp_path / "x").mkdir()
    with pytest.raises(SelectionError, match="holds no recorded session"):
        dump.locate(tmp_path / "x")


def test_missing_data_is_told():
    _, record = samples.encoded(x=torch.ones(3))
    assert dump.missing_data(record) == ()
    bare = tuple(msgspec.structs.replace(item, segments=()) for item in record.storages)
    record = msgspec.structs.replace(record, storages=bare)
    assert dump.missing_data(record) == ("x: its data was not recorded",)


def test_a_capsule_that_is_gone_is_an_error_of_its_own(tmp_path):
    with pytest.raises(CapsuleError, match="is not a folder"):
        dump.read_call(tmp_path / "000001-f")


def test_the_list_of_calls_needs_no_torch():
    import subprocess
    import sys

    program = (
        "import sys; from pathlib import Path; from kernlib import dump\n"
        "dump.list_calls(Path('.')); dump.list_sessions(Path('.'))\n"
        "assert not {'torch', 'safetensors', 'tvm_ffi'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)

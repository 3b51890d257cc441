"""Files of evicted capsules are written over, but for those that somebody else uses."""

import concurrent.futures
import itertools
import mmap
import os
from pathlib import Path

import dump_samples as samples
import pytest
import torch

from kernlib import dump
from kernlib.dump import _reuse
from kernlib.errors import CapsuleError


@pytest.fixture
def session(tmp_path):
    found = dump.SessionWriter(tmp_path / "dumps", samples.PROCESS, dump.Budget(max_calls=1))
    yield found
    found.close()


def record(session, number, length, *, result=True):
    """Record a call on ``length`` floats of its own number; return its folder."""
    encoder, call = samples.encoded(x=torch.full((length,), float(number)))
    writer = session.begin(number, call.api, dump.input_bytes(call.storages))
    writer.start(call, dump.input_blobs(encoder.memory, call))
    samples.finish(writer, encoder, call, torch.full((length,), -float(number)) if result else None)
    return Path(writer.path)


def check(folder, number, length):
    """Make sure that a capsule holds its own call, and nothing else."""
    x = samples.read_back(folder)["x"]
    assert x.tolist() == [float(number)] * length
    call = dump.read_call(folder)
    (change,) = call.changed
    (left,) = dump.read_outputs(folder, call)
    assert left.data.view(torch.float32).tolist() == [-float(number)] * length
    names = ["call.json", "inputs.safetensors", "outputs.safetensors"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert change.nbytes == 4 * length
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in folder.iterdir())


def inodes(folder):
    return {path.stat().st_ino for path in folder.iterdir()}


@pytest.mark.parametrize("lengths", [(100, 100, 100, 100), (900, 10, 400, 3), (3, 800, 50_000, 9)])
def test_each_capsule_holds_its_own_call_whatever_was_there(session, lengths):
    for number, length in enumerate(lengths, 1):
        check(record(session, number, length), number, length)


def test_the_files_of_an_evicted_capsule_serve_again(session):
    for number in (1, 2):
        record(session, number, 100)
    before = inodes(record(session, 3, 100))
    after = inodes(record(session, 4, 100))
    inputs = 1  # always; the others go round in the spares
    assert len(before & after) >= inputs


@pytest.mark.parametrize("length", [100, 50_000])
def test_who_reads_an_evicted_capsule_keeps_its_bytes(session, length):
    folder = record(session, 1, length)
    mapped = []
    for name in ("inputs.safetensors", "outputs.safetensors", "call.json"):
        with (folder / name).open("rb") as file:
            mapped.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    before = [bytes(each) for each in mapped]
    for number in (2, 3, 4):
        check(record(session, number, 50), number, 50)
    assert [bytes(each) for each in mapped] == before
    assert b'"sequence":1' in before[2]
    for each in mapped:
        each.close()


def test_a_link_to_an_evicted_file_keeps_its_bytes(session, tmp_path):
    folder = record(session, 1, 100)
    kept = tmp_path / "kept"
    kept.mkdir()
    for path in folder.iterdir():
        os.link(path, kept / path.name)
    for number in (2, 3, 4):
        check(record(session, number, 50), number, 50)
    check(kept, 1, 100)


def test_nothing_is_written_through_a_planted_link(session, tmp_path):
    folder = record(session, 1, 100)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o600)
    for name in ("inputs.safetensors", "outputs.safetensors", "call.json"):
        (folder / name).unlink()
        (folder / name).symlink_to(victim)
    for number in (2, 3, 4):
        check(record(session, number, 50), number, 50)
    assert victim.read_text() == "precious"


def test_a_file_that_others_may_read_is_made_anew(session):
    folder = record(session, 1, 100)
    for path in folder.iterdir():
        path.chmod(0o644)
    check(record(session, 2, 50), 2, 50)


def test_a_call_without_tensors_has_no_file_of_the_one_before(session):
    record(session, 1, 100)
    encoder, call = samples.encoded(x=7)
    writer = session.begin(2, call.api, 0)
    writer.start(call, [])
    assert [path.name for path in Path(writer.path).iterdir()] == ["call.json"]
    samples.finish(writer, encoder, call, None)
    assert [path.name for path in Path(writer.path).iterdir()] == ["call.json"]


@pytest.mark.parametrize("lacking", ["leases", "exchange", "both"])
def test_file_systems_that_cannot_do_it_get_new_files(session, monkeypatch, lacking):
    if lacking != "exchange":

        def refuse(*_):
            raise OSError("no leases here")

        monkeypatch.setattr("fcntl.fcntl", refuse)
    if lacking != "leases":
        monkeypatch.setattr(_reuse, "_renameat2", lambda: None)
    for number, length in enumerate((100, 20, 300, 40), 1):
        check(record(session, number, length), number, length)


def test_spare_files_are_few_and_short_and_go_with_the_session(tmp_path):
    budget = dump.Budget(max_calls=40)
    session = dump.SessionWriter(tmp_path / "dumps", samples.PROCESS, budget)
    for number in range(1, 81):
        record(session, number, 30_000)
    for number in range(81, 161):
        record(session, number, 10, result=False)
    spares = list((session.path / ".spare").iterdir())
    assert 0 < len(spares) <= 16
    assert all(path.stat().st_size <= 64 << 10 for path in spares)
    assert len(dump.list_calls(session.path)) == 40
    session.close()
    assert not (session.path / ".spare").exists()


def test_a_call_that_ends_while_its_session_is_closed_is_complete(session):
    """A thread may have taken a spare file when the process's end removes all others."""
    for number in (1, 2, 3):
        record(session, number, 100)
    encoder, call = samples.encoded(x=torch.full((50,), 4.0))
    writer = session.begin(4, call.api, dump.input_bytes(call.storages))
    writer.start(call, dump.input_blobs(encoder.memory, call))
    taken = session._spares.take()
    session.close()
    assert [str(path) for path in (session.path / ".spare").iterdir()] == [taken]
    session._spares.keep(taken)
    samples.finish(writer, encoder, call, torch.full((50,), -4.0))
    check(Path(writer.path), 4, 50)


def test_threads_that_record_at_once_never_share_a_file(tmp_path):
    session = dump.SessionWriter(tmp_path, samples.PROCESS, dump.Budget(max_calls=8))
    numbers = itertools.count(1)
    kept = []

    def work():
        for _ in range(60):
            number = next(numbers)
            length = 1 + number % 40
            folder = record(session, number, length)
            try:
                x = samples.read_back(folder)["x"].tolist()
            except (CapsuleError, OSError):
                continue  # another thread has evicted it by now
            assert x == [float(number)] * length
            kept.append(number)

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(work) for _ in range(6)]:
            done.result()
    assert kept
    for entry in dump.list_calls(session.path):
        assert entry.problem is None
        number = int(entry.path.name.partition("-")[0])
        check(entry.path, number, 1 + number % 40)


def test_spare_files_that_cannot_be_kept_are_removed(session):
    (session.path / ".spare").write_text("in the way")
    for number in (1, 2, 3, 4):
        check(record(session, number, 50), number, 50)


def test_the_spare_files_of_a_killed_session_go_with_it(tmp_path):
    first = dump.SessionWriter(tmp_path, samples.PROCESS, dump.Budget(max_calls=1))
    for number in (1, 2, 3):
        folder = record(first, number, 100)
    assert (first.path / ".spare").is_dir()
    dump._removal.remove_capsule(str(folder))
    dump._ended.Ended(str(first.path)).remove_empty()
    assert not first.path.exists()

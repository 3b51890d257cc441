"""The list shows sessions, calls, and the number of those that are not there, with the reason."""

import json
import re

import dump_samples as samples
import msgspec
import pytest

from kernlib import dump
from kernlib.replay._select import select
from kernlib.replay.cli import main


@pytest.fixture
def session(tmp_path):
    return dump.SessionWriter(tmp_path, samples.PROCESS, dump.Budget(max_calls=3, max_per_kind=2))


def record(session, sequence, api="Thing.run", nbytes=0):
    writer = session.begin(sequence, api, nbytes, api)
    call = samples.call(sequence, api=api)
    writer.start(call, [])
    writer.finish(
        msgspec.structs.replace(
            call, status="returned", finished_at="2026-01-02T03:04:05.001500+00:00"
        )
    )


def listed(capsys, *arguments):
    assert main([*map(str, arguments), "--list"]) == 0
    return capsys.readouterr().out


def test_a_session_that_lost_nothing_says_nothing_of_losses(session, tmp_path, capsys):
    record(session, 1)
    head, line = listed(capsys, tmp_path).splitlines()
    assert head == f"session {session.id}: serve.py (pid 77)"
    assert re.fullmatch(r" +1  Thing\.run +returned +0 B +1\.5 ms", line)


def test_everything_lost_is_counted_by_its_reason(session, tmp_path, capsys):
    for number in range(1, 6):
        record(session, number)
    for number, api in enumerate("abcd", 6):
        record(session, number, api)
    session._ledger.max_bytes = 0
    assert session.begin(10, "large", 2_500_000, "large") is None
    session.skipped = 90
    session.count_error()
    session._allowance._neighbours.cleared = 4
    session.close()
    lines = listed(capsys, tmp_path).splitlines()
    assert lines[1] == (
        "  not here: 3 evicted for newer ones, 3 over the quota of their shapes, 1 without room, "
        "2.5 MB without room, 90 skipped by rules, 1 that could not be recorded"
    )
    assert lines[2] == "  made room: 4 calls of ended sessions were removed"


def test_the_list_as_json_names_every_count(session, tmp_path, capsys):
    for number in range(1, 4):
        record(session, number)
    session.close()
    (path,) = tmp_path.iterdir()
    (path / "000009-torn").mkdir()
    (entry,) = json.loads(listed(capsys, tmp_path, "--json"))["sessions"]
    assert entry["path"] == str(session.path)
    assert entry["problem"] is None
    assert entry["process"]["pid"] == 77
    assert entry["dropped"] == {
        "calls": 0, "bytes": 0, "errors": 0, "evicted": 0, "over_quota": 1, "skipped": 0,
        "cleared": 0,
    }  # fmt: skip
    assert [(call["sequence"], call["status"]) for call in entry["calls"]] == [
        (2, "returned"), (3, "returned"), (9, None),
    ]  # fmt: skip
    assert "no call.json" in entry["calls"][2]["problem"]
    assert entry["calls"][0]["path"] == str(session.path / "000002-Thing.run")


def test_a_session_that_cannot_be_read_is_in_both_lists(session, tmp_path, capsys):
    (session.path / "session.json").write_text("{")
    assert "torn" in listed(capsys, tmp_path).splitlines()[0]
    (entry,) = json.loads(listed(capsys, tmp_path, "--json"))["sessions"]
    assert "torn" in entry["problem"]
    assert entry["dropped"] is None


def test_a_call_that_names_itself_as_the_outer_one_is_chosen_nevertheless(session):
    """Only a damaged capsule says so."""
    writer = session.begin(1, "Thing.run", 0, "Thing.run")
    writer.start(msgspec.structs.replace(samples.call(1, api="Thing.run"), parent=1), [])
    chosen = select(session.path)
    assert [entry.sequence for entry in chosen.calls] == [1]


def test_a_folder_that_cannot_be_written_is_one_line_and_concludes_nothing(
    session, tmp_path, capsys
):
    record(session, 1)
    (tmp_path / "file").write_text("")
    assert main([str(session.path), "--keep", str(tmp_path / "file")]) == 2
    told = capsys.readouterr().err
    assert told.startswith("kernlib-replay: ")
    assert told.endswith("; nothing is concluded\n")

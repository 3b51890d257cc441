"""``kernlib ring show`` reads rings of any making, for people and for programs."""

import json

import pytest

from kernlib import ring
from kernlib._commands import main

X = ring.Tensor("bfloat16", "cpu", 0x1040, (7, 32), (64, 1))


@pytest.fixture
def path(tmp_path):
    facts = {"pid": 7, "host": "node", "rank": 3, "argv": ["serve.py", "--port", "80"]}
    return ring.create_ring(tmp_path / "calls.ring", ring.SMALLEST_RING, facts)


def write(path, *entries):
    writer = ring.RingWriter(path)
    for kind, call, api, values in entries:
        writer.append(
            ring.Entry(kind=ring.Kind[kind], call=call, api=api, values=values, thread=70 + call)
        )


def shown(capsys, *arguments):
    status = main(["ring", "show", *map(str, arguments)])
    return status, capsys.readouterr().out


def three_calls(path):
    write(
        path,
        ("CALL", 1, "rms_norm", {"x": X, "eps": 1e-6}),
        ("RETURN", 1, "rms_norm", {"result": X}),
        ("CALL", 2, "PagedDecode.run", {"q": X}),
        ("RAISE", 2, "PagedDecode.run", {"error": "ValueError: no"}),
        ("CALL", 3, "rms_norm", {"x": X}),
    )


def test_the_table_tells_of_calls_and_of_what_was_running(path, capsys):
    three_calls(path)
    status, text = shown(capsys, path)
    lines = text.splitlines()
    assert status == 0
    assert lines[0] == f"{path}: process 7 on node, rank 3: serve.py --port 80"
    assert lines[1] == "5 records are left."
    assert "x=bfloat16[7,32] stride(64,1) cpu align64 eps=1e-06" in lines[3]
    assert "raised error='ValueError: no'" in lines[4]
    assert "running" in lines[5]
    assert lines[-1].endswith("when the process died: #3 rms_norm")


def test_a_generator_that_waits_is_not_said_to_run(path, capsys):
    write(
        path,
        ("CALL", 1, "stream", {"x": X}),
        ("SUSPEND", 1, "stream", {}),
        ("CALL", 2, "stream", {"x": X}),
        ("SUSPEND", 2, "stream", {}),
        ("RESUME", 2, "stream", {}),
    )
    lines = shown(capsys, path)[1].splitlines()
    assert "waiting" in lines[3]
    assert "running" in lines[4]
    assert lines[-1].endswith("died: #2 stream")
    write(path, ("RETURN", 2, "stream", {"result": None}))
    assert "No call that is left was running" in shown(capsys, path)[1]


def test_json_gives_one_object_a_record(path, capsys):
    three_calls(path)
    _, text = shown(capsys, path, "--json")
    events = [json.loads(line) for line in text.splitlines()]
    assert [event["event"] for event in events] == ["call", "return", "call", "raise", "call"]
    assert events[0]["args"]["x"]["stride"] == [64, 1]
    assert (events[0]["pointers"], events[0]["thread"]) == ({"x": "0x1040"}, 71)


def test_the_last_calls_and_some_apis_can_be_asked_for(path, capsys):
    three_calls(path)
    assert "The last 1 of 3 calls" in shown(capsys, path, "--last", 1)[1]
    _, text = shown(capsys, path, "--api", "Paged*", "--json")
    assert {json.loads(line)["api"] for line in text.splitlines()} == {"PagedDecode.run"}


def test_what_was_overwritten_or_damaged_is_said(path, capsys):
    write(path, *(("CALL", call, "f", {"x": X}) for call in range(1, 2001)))
    records = ring.read_ring(path).records
    data = bytearray(path.read_bytes())
    data[4096 + records[5].position % ring.SMALLEST_RING + 100] ^= 1
    path.write_bytes(data)
    _, text = shown(capsys, path)
    said = f"{len(records) - 1} records are left; {records[0].ordinal} older ones were overwritten"
    assert said in text
    assert "; 1 between them are damaged." in text


def test_a_start_that_was_overwritten_leaves_its_end(path, capsys):
    write(path, ("RETURN", 4, "f", {"result": X}))
    assert "(its start was overwritten)" in shown(capsys, path)[1]


def test_an_empty_ring_is_no_error(path, capsys):
    status, text = shown(capsys, path)
    assert (status, text.splitlines()[1]) == (0, "0 records are left.")


def test_texts_of_a_file_do_not_steer_the_terminal(tmp_path, capsys):
    evil = "\x1b]0;owned\x07\x1b[2J"
    facts = {"pid": evil, "host": evil, "argv": [evil]}
    path = ring.create_ring(tmp_path / "evil.ring", ring.SMALLEST_RING, facts)
    tensor = ring.Tensor(evil, evil, 8, (1,), (1,))
    write(path, ("CALL", 1, evil, {evil: tensor, "b": ring.Described({evil: evil})}))
    _, text = shown(capsys, path)
    assert "\x1b" not in text
    assert "\x07" not in text


@pytest.mark.parametrize("facts", [{"pid": 1, "argv": "text"}, {"pid": None}, {}])
def test_odd_facts_are_no_error(tmp_path, capsys, facts):
    path = ring.create_ring(tmp_path / "odd.ring", ring.SMALLEST_RING, facts)
    assert shown(capsys, path)[0] == 0


def test_what_is_no_ring_is_refused_in_one_line(tmp_path, capsys):
    path = tmp_path / "no.ring"
    path.write_text("hello")
    assert main(["ring", "show", str(path)]) == 2
    assert (
        capsys.readouterr().err == f"kernlib: {path}: 5 bytes are no ring; it has 4176 at least\n"
    )

"""What is read from a dump is checked before anything uses it."""

import json
import os
from pathlib import Path

import dump_samples as samples
import msgspec
import pytest
import torch

from kernlib import dump
from kernlib.errors import CapsuleError

PATH = Path("000001-x/call.json")


@pytest.fixture
def tree():
    """Return the JSON of a sound call, to be spoilt."""
    _, record = samples.encoded(x=torch.zeros(2, 3), n=torch.arange(4), s=1.5, big=1 << 80)
    return json.loads(msgspec.json.encode(record))


def problem(tree):
    data = tree if isinstance(tree, bytes) else json.dumps(tree).encode()
    with pytest.raises(CapsuleError) as caught:
        dump.decode_call(data, PATH)
    text = str(caught.value)
    assert text.startswith(f"{PATH}: ")
    assert "\n" not in text
    return caught.value.problem


def put(tree, keys, value):
    at = tree
    for key in keys[:-1]:
        at = at[key]
    at[keys[-1]] = value


KWARGS = ("arguments", "kwargs")


@pytest.mark.parametrize(
    ("keys", "value", "expected"),
    [
        (["schema_version"], 2, "schema version 2, this kernlib reads up to 1; update kernlib"),
        (["schema_version"], 0, "never was"),
        (["schema_version"], "1", "Expected `int`, got `str`"),
        (["surprise"], 1, "unknown field `surprise`"),
        (["status"], "done", "Invalid enum value 'done'"),
        (["sequence"], -1, "sequence -1 is absurd"),
        (["sequence"], 1.5, "Expected `int`"),
        (["parent"], 1, "parent 1 is not an earlier call"),
        (["api"], "x\x1b[31m", "is no name"),
        (["storages", 0, "nbytes"], -8, "storage 0 of -8 bytes is absurd"),
        (["storages", 0, "nbytes"], 1 << 60, "is absurd"),
        (["storages", 0, "address"], -1, "at address -1 is absurd"),
        (["storages", 0, "nbytes"], 23, "entry 'x', bytes 0 to 24, leaves storage 0 of 23 bytes"),
        (["storages", 0, "segments"], [], None),
        (["storages", 0, "segments", 0, "start"], -1, "leaves storage 0"),
        (["storages", 0, "segments", 0, "nbytes"], 25, "leaves storage 0 of 24 bytes"),
        (["storages", 0, "segments", 0, "nbytes"], 0, "leaves storage 0"),
        (["storages", 0, "segments", 0, "entry"], "n", "two inputs entries are called 'n'"),
        (["views", 0, "storage"], 2, "view 0 (x): storage 2 does not exist; there are 2"),
        (["views", 0, "storage"], -1, "storage -1 does not exist"),
        (["views", 0, "shape"], [2], "has 1 sizes and 2 strides"),
        (["views", 0, "shape"], [2, -3], "has -3 in its shape"),
        (["views", 0, "shape"], [2, 1 << 63], "in its shape"),
        (["views", 0, "shape"], [3, 3], "reaches byte 36 of storage 0, which has 24"),
        (["views", 0, "stride"], [-3, 1], "has -3 in its stride"),
        (["views", 0, "stride"], [1 << 61, 1], "reaches byte"),
        (["views", 0, "offset"], -1, "has -1 in its offset"),
        (["views", 0, "offset"], 1, "reaches byte 28 of storage 0, which has 24"),
        (["views", 0, "itemsize"], 0, "items of 0 bytes"),
        (["views", 0, "shape"], [1] * 65, "has 65 sizes"),
        ([*KWARGS, "x", "view"], 9, "view 9 does not exist; there are 2"),
        ([*KWARGS, "x", "view"], -1, "view -1 does not exist"),
        ([*KWARGS, "x"], {"type": "pickle", "value": ""}, "Invalid value 'pickle'"),
        ([*KWARGS, "x"], {"type": "receiver", "id": 5}, "receiver 5 is not of a call up to 1"),
        ([*KWARGS, "big", "value"], "12", "int '12' is not hexadecimal"),
        ([*KWARGS, "s", "value"], "1e5", "float '1e5' is not inf or nan"),
        ([*KWARGS, "s", "value"], "nan:zz", "is not inf or nan"),
        (["builds"], [{"key": "../../etc", "uri": "u", "backend": "cpu", "target": "cpu",
                       "mode": "m", "reason": "r"}], "build key '../../etc' is not 16 to 64"),
        (["changed"], [{"storage": 3, "entry": "x", "start": 0, "nbytes": 1}],
         "changed 'x': storage 3 does not exist"),
        (["changed"], [{"storage": 0, "entry": "x", "start": 20, "nbytes": 8}],
         "entry 'x', bytes 20 to 28, leaves storage 0"),
    ],
    ids=str,
)  # fmt: skip
def test_spoilt_fields_are_told_in_one_line(tree, keys, value, expected):
    put(tree, keys, value)
    if expected is None:
        dump.decode_call(json.dumps(tree).encode(), PATH)
    else:
        assert expected in problem(tree)


def test_a_number_that_is_none():
    assert "no JSON" in problem(b'{"schema_version": NaN}')


def test_a_float_that_overflows(tree):
    text = json.dumps(tree).replace("1.5", "1e999").encode()
    with pytest.raises(CapsuleError):
        dump.decode_call(text, PATH)


@pytest.mark.parametrize("depth", [200, 5_000, 200_000])
def test_deep_nesting_ends_in_an_error_or_a_call(tree, depth):
    node = '{"type":"list","items":[' * depth + "]}" * depth
    tree["arguments"]["args"] = ["here"]
    data = json.dumps(tree).replace('"here"', node).encode()
    try:
        dump.decode_call(data, PATH)
    except CapsuleError as error:
        assert "nested" in error.problem  # noqa: PT017 - either end is fine


def test_overlapping_segments(tree):
    tree["storages"][0]["segments"] = [
        {"entry": "a", "start": 0, "nbytes": 16},
        {"entry": "b", "start": 8, "nbytes": 16},
    ]
    assert problem(tree) == "segment 'b' overlaps the one before it"


def test_every_truncation_of_call_json_is_told(tree):
    data = json.dumps(tree).encode()
    for length in range(len(data)):
        assert problem(data[:length])


def test_random_damage_never_escapes_as_another_error(tree):
    data = bytearray(json.dumps(tree).encode())
    generator = torch.Generator().manual_seed(5)
    for _ in range(3000):
        spoilt = bytearray(data)
        at = int(torch.randint(len(data), (1,), generator=generator))
        spoilt[at] = int(torch.randint(256, (1,), generator=generator))
        try:
            dump.decode_call(bytes(spoilt), PATH)
        except CapsuleError as error:
            assert "\n" not in str(error)  # noqa: PT017 - both ends are fine


@pytest.fixture
def capsule(tmp_path):
    writer, _, _ = samples.begin(tmp_path, x=torch.arange(3), y=torch.ones(4)[1:3])
    return Path(writer.path)


def inputs_problem(capsule):
    record = dump.read_call(capsule)
    with pytest.raises(CapsuleError) as caught:
        dump.read_inputs(capsule, record)
    assert "\n" not in str(caught.value)
    return caught.value.problem


def test_every_truncation_of_a_tensor_file_is_told(capsule):
    path = capsule / "inputs.safetensors"
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        assert inputs_problem(capsule)


def test_a_tensor_file_that_grew(capsule):
    path = capsule / "inputs.safetensors"
    path.write_bytes(path.read_bytes() + b"\0")
    assert "whole safetensors" in inputs_problem(capsule)


def test_absurd_header_sizes(capsule):
    path = capsule / "inputs.safetensors"
    data = path.read_bytes()
    path.write_bytes(((1 << 64) - 1).to_bytes(8, "little") + data[8:])
    assert "do not hold its header of 18446744073709551615" in inputs_problem(capsule)
    with path.open("r+b") as file:
        file.write((200 << 20).to_bytes(8, "little"))
        file.truncate(300 << 20)
    assert "at most" in inputs_problem(capsule)


def test_missing_and_resized_entries(capsule):
    from safetensors.torch import save_file

    save_file({"x": torch.arange(3)}, capsule / "inputs.safetensors")
    assert inputs_problem(capsule) == "has no entry 'y'"
    save_file({"x": torch.arange(2), "y": torch.ones(2)}, capsule / "inputs.safetensors")
    assert inputs_problem(capsule) == "entry 'x' has 16 bytes, call.json says 24"


def test_links_and_devices_are_refused(capsule, tmp_path):
    for name in ("inputs.safetensors", "call.json"):
        real = tmp_path / name
        (capsule / name).rename(real)
        (capsule / name).symlink_to(real)
    with pytest.raises(CapsuleError, match="symbolic link"):
        dump.read_call(capsule)
    (capsule / "call.json").unlink()
    (tmp_path / "call.json").rename(capsule / "call.json")
    assert inputs_problem(capsule) == "is not a regular file"
    (capsule / "call.json").unlink()
    os.mkfifo(capsule / "call.json")
    with pytest.raises(CapsuleError, match="not a regular file"):
        dump.read_call(capsule)
    (entry,) = dump.list_calls(tmp_path)
    assert entry.problem


def test_a_linked_capsule_folder_is_refused(capsule, tmp_path):
    link = tmp_path / "000009-link"
    link.symlink_to(capsule)
    with pytest.raises(CapsuleError, match="symbolic link"):
        dump.read_call(link)
    assert [entry.problem for entry in dump.list_calls(tmp_path)] == [None, "is not a folder"]


def test_a_session_of_another_kind_or_time(tmp_path):
    session = dump.Session(id="s", started_at="2026", process=samples.PROCESS)
    data = msgspec.json.encode(session)
    assert dump.decode_session(data, tmp_path) == session
    for old, new, expected in [
        (b'"schema_version":1', b'"schema_version":9', "schema version 9"),
        (b"kernlib-session", b"other-session", "format 'other-session'"),
        (b'"pid":77', b'"pid":"77"', "Expected `int`"),
    ]:
        with pytest.raises(CapsuleError, match=expected):
            dump.decode_session(data.replace(old, new), tmp_path)


SOURCES = {"csrc/norm/norm.cc": b"int x;", "include/kernlib/norm.h": b"\xff\n"}
KEY = "0123456789abcdef" * 2


def test_builds_come_back(tmp_path):
    session = dump.SessionWriter(tmp_path, samples.PROCESS)
    session.add_build(KEY, b"{}", "rule x\n", SOURCES)
    session.add_build(KEY, b"other", "", {})
    assert dump.list_builds(session.path) == (KEY,)
    assert dump.read_build(session.path, KEY) == dump.BuildFiles(b"{}", "rule x\n", SOURCES)


@pytest.mark.parametrize("label", ["../x", "/etc/x", "a/../b", "a\\b", "a\0b", "", "a//b", "./a"])
def test_labels_that_lead_elsewhere_are_not_written(tmp_path, label):
    session = dump.SessionWriter(tmp_path, samples.PROCESS)
    with pytest.raises(ValueError, match="not a relative path"):
        session.add_build(KEY, b"{}", "", {label: b""})
    assert dump.list_builds(session.path) == ()
    assert list((session.path / "builds").iterdir()) == []


@pytest.mark.parametrize("key", ["..", "../../etc/passwd", "ABCDEF0123456789", "a" * 65, ""])
def test_keys_that_are_none(tmp_path, key):
    with pytest.raises(CapsuleError, match="build key"):
        dump.read_build(tmp_path, key)


def test_links_among_sources_are_refused(tmp_path):
    session = dump.SessionWriter(tmp_path, samples.PROCESS)
    session.add_build(KEY, b"{}", "", SOURCES)
    sources = session.path / "builds" / KEY / "sources"
    (sources / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(CapsuleError, match="symbolic link"):
        dump.read_build(session.path, KEY)
    (sources / "passwd").unlink()
    (sources / "etc").symlink_to("/etc")
    with pytest.raises(CapsuleError, match="symbolic link"):
        dump.read_build(session.path, KEY)

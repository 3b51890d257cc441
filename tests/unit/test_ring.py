"""A ring file gives back every record that is whole, whatever happened to the others."""

import math
import threading

import pytest

from kernlib import ring
from kernlib.errors import RingError

CAPACITY = ring.SMALLEST_RING
X = ring.Tensor("bfloat16", "cuda:1", 0x7F0000001240, (7, 32, 128), (8192, 128, 1))
VALUES = {
    "x": X,
    "eps": 1e-6,
    "rows": -(1 << 63),
    "name": "paged \N{GREEK SMALL LETTER KAPPA}",
    "causal": True,
    "mask": None,
    "sizes": [1, [2.5, False], X],
    "plan": ring.Described({"class": "<Plan>"}),
    "huge": 1 << 70,
}


def call(number, values=VALUES, **facts):
    return ring.Entry(
        kind=ring.Kind.CALL, api="PagedDecode.run", call=number, values=values, **facts
    )


@pytest.fixture
def path(tmp_path):
    return ring.create_ring(tmp_path / "calls.ring", CAPACITY, {"pid": 7})


def filled(path, count, **facts):
    writer = ring.RingWriter(path)
    for number in range(1, count + 1):
        writer.append(call(number, **facts))
    return ring.read_ring(path)


def test_a_record_comes_back_as_it_was_written(path):
    writer = ring.RingWriter(path)
    writer.append(call(3, parent=2, stream=0, capturing=True))
    writer.append(
        ring.Entry(
            kind=ring.Kind.RETURN, api="rms_norm", call=3, values={"result": X}, nanoseconds=1500
        )
    )
    started, returned = ring.read_ring(path).records
    assert started.values == {**VALUES, "huge": ring.Described(1 << 70)}
    assert (started.api, started.call, started.parent) == ("PagedDecode.run", 3, 2)
    assert (started.stream, started.capturing, returned.stream) == (0, True, None)
    assert started.thread == threading.get_native_id()
    assert (returned.kind, returned.nanoseconds) == (ring.Kind.RETURN, 1500)
    assert returned.ordinal == started.ordinal + 1
    assert returned.time >= started.time


def test_the_event_of_a_record_is_the_log_line():
    record = ring.Record(
        kind=ring.Kind.CALL, api="f", call=2, parent=1, values={"x": X}, position=0, ordinal=0,
        time=1_600_000_000_123_456_789, length=8,
    )  # fmt: skip
    assert record.event() == {
        "event": "call", "api": "f", "call": 2, "parent": 1,
        "args": {"x": {
            "dtype": "bfloat16", "shape": (7, 32, 128), "device": "cuda:1",
            "stride": (8192, 128, 1), "align": 64,
        }},
        "timestamp": "2020-09-13T12:26:40.123456Z",
    }  # fmt: skip


def test_statistics_travel_with_their_tensor(path):
    stats = {"min": -1.5, "nan": 3}
    with_stats = ring.Tensor(*(getattr(X, name) for name in X.__slots__[:5]), statistics=stats)
    ring.RingWriter(path).append(call(1, {"x": with_stats}))
    (record,) = ring.read_ring(path).records
    assert record.values == {"x": with_stats}
    assert record.event()["args"]["x"]["stats"] == stats


def test_the_newest_records_stay_and_those_lost_are_counted(path):
    found = filled(path, 5000)
    calls = [record.call for record in found.records]
    assert calls == list(range(5001 - len(calls), 5001))
    assert found.overwritten == 5000 - len(calls) > 0
    assert (found.damaged, found.torn) == (0, False)
    used = sum(record.length for record in found.records)
    assert CAPACITY - 2 * found.records[0].length < used <= CAPACITY


def test_calls_without_an_end_were_running(path):
    writer = ring.RingWriter(path)
    for number in (1, 2, 3):
        writer.append(call(number))
    writer.append(ring.Entry(kind=ring.Kind.RAISE, api="f", call=2, values={"error": "E: x"}))
    assert [record.call for record in ring.read_ring(path).unfinished()] == [1, 3]


def test_what_is_too_large_for_a_record_says_so(path):
    ring.RingWriter(path).append(call(1, {f"argument{at}": "x" * 100 for at in range(1000)}))
    (record,) = ring.read_ring(path).records
    assert (record.call, record.api) == (1, "PagedDecode.run")
    assert "more than a record" in str(record.event()["args"])


def test_floats_of_every_kind_come_back(path):
    values = {"inf": math.inf, "zero": -0.0, "nan": math.nan, "small": 5e-324}
    ring.RingWriter(path).append(call(1, values))
    read = ring.read_ring(path).records[0].values
    assert list(map(repr, read.values())) == list(map(repr, values.values()))


def test_threads_write_one_record_after_the_other(path):
    writer = ring.RingWriter(path)

    def work(first):
        for number in range(first, first + 50):
            writer.append(call(number, {"x": X}))

    threads = [threading.Thread(target=work, args=(1000 * at,)) for at in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = ring.read_ring(path)
    assert (len(found.records), found.damaged, found.torn) == (200, 0, False)
    assert len({record.thread for record in found.records}) == 4


def test_an_earlier_ring_is_never_overwritten(path):
    filled(path, 3)
    second = ring.create_ring(path, CAPACITY, {})
    assert second == path.with_name("calls.ring.1")
    assert len(ring.read_ring(path).records) == 3


def test_a_ring_that_the_disk_has_no_room_for_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match=r"(?i)too large|no space"):
        ring.create_ring(tmp_path / "calls.ring", 1 << 60, {})
    assert not list(tmp_path.iterdir())


def test_facts_that_no_page_holds_are_left_out(tmp_path):
    path = ring.create_ring(tmp_path / "a", CAPACITY, {"argv": ["x" * 5000], "pid": 7})
    assert ring.read_ring(path).facts == {"pid": 7}


@pytest.fixture
def sample(path):
    """Return a small ring that has run around its end: its path, bytes and records."""
    found = filled(path, 1000)
    return path, path.read_bytes(), found.records


def check_cut(path, data, records, size):
    path.write_bytes(data[:size])
    try:
        found = ring.read_ring(path)
    except RingError:
        assert size < 4096 + 80
        return
    whole = [r for r in records if 4096 + r.position % CAPACITY + r.length <= size]
    assert list(found.records) == whole
    assert found.problems


def test_a_file_cut_at_any_byte_loses_only_what_was_cut_off(path):
    records = filled(path, 3).records
    data = path.read_bytes()
    for size in range(4096 + records[-1].position + records[-1].length + 64):
        check_cut(path, data, records, size)


def test_a_full_ring_that_is_cut_loses_only_what_was_cut_off(sample):
    path, data, records = sample
    for size in range(4096, len(data), 997):
        check_cut(path, data, records, size)


def test_a_flipped_byte_costs_at_most_its_record(path):
    """Every byte of the page and of a few records, each flipped in every bit at once and in one."""
    writer = ring.RingWriter(path)
    for number in range(1, 5):
        writer.append(call(number, {"x": X, "name": "abc"}))
    records = ring.read_ring(path).records
    data = path.read_bytes()
    end = 4096 + records[-1].position + records[-1].length
    for at in range(end + 64):
        for flip in (0xFF, 1 << at % 8):
            path.write_bytes(data[:at] + bytes((data[at] ^ flip,)) + data[at + 1 :])
            found = ring.read_ring(path)
            touched = {
                record.call
                for record in records
                if 4096 + record.position <= at < 4096 + record.position + record.length
            }
            lost = {1, 2, 3, 4} - {record.call for record in found.records}
            assert lost == touched, at
            survivors = [record for record in records if record.call not in touched]
            assert list(found.records) == survivors


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "0 bytes are no ring"),
        (b"x" * 10_000, "it begins with b'xxxxxxxx'"),
        (None, "No such file"),
    ],
)
def test_what_is_no_ring_is_refused_in_one_line(tmp_path, content, said):
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RingError, match=said) as raised:
        ring.read_ring(path)
    assert "\n" not in str(raised.value)
    assert str(path) in str(raised.value)

"""A capsule is judged without running it, wherever it was recorded."""

import json

import pytest
import torch
from recording_samples import Recording
from replay_runs import change_call

from kernlib._checks import AllInRange, Finite, NoOverlap, Rank, SameDevice, Size
from kernlib._registry import Api, registry
from kernlib.replay._diagnose import diagnose, diagnoses_json, diagnosis_text

CHECKS = (
    AllInRange("rows", Size("pool", 0), "rows", "the pool"),
    Rank("pool", 2),
    NoOverlap("out", "pool"),
    SameDevice("rows", "pool"),
)
POOL = torch.zeros(4, 3)


@pytest.fixture
def recording(tmp_path):
    return Recording(tmp_path)


def declared(recording, function, *checks):
    """Return a recorded function whose checks are registered."""
    name = function.__qualname__.rpartition("<locals>.")[2]
    registry.add(Api(name, function, checks=checks))
    return recording.api(function)


@pytest.fixture
def gather(recording):
    """Return an api that fails, as its kernel would have, on whatever it is given."""

    def gather(pool, rows, *, out=None):
        assert (pool, rows, out) is not None
        raise RuntimeError("an illegal memory access was encountered")

    public = declared(recording, gather, *CHECKS)

    def call(*args, **kwargs):
        with pytest.raises(RuntimeError):
            public(*args, **kwargs)
        return list(recording.entries().values())[-1].path

    return call


def test_one_broken_of_four_is_certain(gather):
    found = diagnose(gather(POOL, torch.tensor([0, 9, 1])))
    assert (found.answer, found.confidence, found.exit_status) == ("bad input", "certain", 15)
    assert found.text == "bad input (certain: 1 of 4 declared preconditions is broken)"
    (broken,) = found.findings
    assert broken.message == "rows[1] = 9, but the pool has 4 rows"
    assert [row.state for row in found.preconditions] == ["broken", "held", "held", "held"]


def test_a_kernel_bug_is_suspected_where_all_hold_and_the_call_failed(gather):
    found = diagnose(gather(POOL, torch.tensor([0, 3])))
    assert found.text == ("kernel bug suspected (moderate: all 4 declared preconditions hold)")
    assert (found.confidence, found.exit_status) == ("moderate", 0)


def test_what_could_not_be_evaluated_is_named_and_lowers_the_confidence(gather):
    path = gather(POOL, [0, 3])
    found = diagnose(path)
    assert found.text == (
        "kernel bug suspected (low: 2 of 4 declared preconditions hold; 2 could not be "
        "evaluated: rows is list, no tensor)"
    )
    lines = diagnosis_text(found).splitlines()
    assert lines[0] == "KERNEL BUG SUSPECTED: call 1, gather"
    assert "  not judged  AllInRange(rows, pool.shape[0]): rows is list, no tensor" in lines


def test_where_a_bad_value_comes_from_is_told(recording, gather):
    def choose(rows):
        rows[1] = 9

    def scale(pool):
        return pool * 2

    rows = torch.tensor([0, 1, 2])
    declared(recording, choose)(rows)
    declared(recording, scale)(POOL)
    found = diagnose(gather(POOL, rows))
    origin = found.findings[0].origin
    assert (origin.call, origin.api, origin.same) == (1, "choose", True)
    assert origin.text == "rows was written by call 1, choose"
    rows[0] = 7
    origin = diagnose(gather(POOL, rows)).findings[0].origin
    assert (origin.call, origin.same) == (1, False)
    assert origin.text == (
        "rows was written by call 1, choose, and by something that is not recorded since"
    )


def test_a_result_that_is_passed_on_is_known_again(recording, gather):
    def choose(n):
        return torch.tensor([0, n])

    rows = declared(recording, choose)(5)
    origin = diagnose(gather(POOL, rows)).findings[0].origin
    assert origin.text == "rows was written by call 1, choose"


def test_a_cuda_capsule_is_judged_without_a_device(gather):
    path = gather(POOL, torch.tensor([0, 9, 1]))

    def move(tree):
        for storage in tree["storages"]:
            storage["device"] = "cuda:3"
        tree["device"] = "cuda:3"

    change_call(path, move)
    assert diagnose(path).findings[0].message == "rows[1] = 9, but the pool has 4 rows"

    def part(tree):
        tree["storages"][0]["device"] = "cuda:2"

    change_call(path, part)
    messages = [found.message for found in diagnose(path).findings]
    assert messages[1] == "rows is on cuda:3, but pool is on cuda:2"


def test_memory_of_another_machine_is_not_taken(gather):
    """A pool of terabytes is judged by its shape: none of it is rebuilt."""
    path = gather(POOL, torch.tensor([0, 2**30]))

    def grow(tree):
        pool = tree["storages"][tree["views"][0]["storage"]]
        pool["nbytes"], pool["segments"] = 12 * 2**40, []
        tree["views"][0]["shape"] = [2**30, 3]

    change_call(path, grow)
    found = diagnose(path)
    assert found.findings[0].message == f"rows[1] = {2**30}, but the pool has {2**30} rows"
    assert [row.state for row in found.preconditions] == ["broken", "held", "held", "held"]


def test_without_data_values_are_unknown_and_shapes_are_judged(recording):
    def mean(x):
        raise RuntimeError(x.shape)

    public = declared(recording, mean, Finite("x"), Rank("x", 1))
    with pytest.raises(RuntimeError):
        public(torch.zeros(2, 2))
    path = recording.entries()[1].path

    def capture(tree):
        tree["capturing"] = True
        tree["storages"][0]["segments"] = []

    change_call(path, capture)
    found = diagnose(path)
    assert [row.state for row in found.preconditions] == ["unknown", "broken"]
    assert "a CUDA graph was being captured, so no data was read" in found.preconditions[0].reason


HOSTILE = {
    "shape": lambda tree: tree["views"][1].update(shape=[2**61, 3], stride=[0, 0]),
    "rank": lambda tree: tree["views"][1].update(shape=[2**40] * 60, stride=[0] * 60),
    "dtype": lambda tree: tree["views"][1].update(dtype="load"),
    "itemsize": lambda tree: tree["views"][1].update(itemsize=1),
    "opaque": lambda tree: tree["arguments"]["args"].__setitem__(
        1, {"type": "opaque", "path": "rows", "class_name": "X", "reason": "odd"}
    ),
    "receiver": lambda tree: tree["arguments"]["args"].__setitem__(
        1, {"type": "receiver", "id": 1}
    ),
    "fewer": lambda tree: tree["arguments"]["args"].pop(),
    "number": lambda tree: tree["arguments"]["args"].__setitem__(
        1, {"type": "int", "value": "0x" + "f" * 4000}
    ),
    "nothing": lambda tree: tree["arguments"]["args"].clear(),
    "entries": lambda tree: tree["storages"][1]["segments"][0].update(entry="gone"),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_capsule_is_unknown_and_no_failure(gather, change):
    path = gather(POOL, torch.tensor([0, 3]))
    change_call(path, change)
    found = diagnose(path)
    assert found.answer in {"unknown", "kernel bug suspected", "bad input"}
    assert "unknown" in [row.state for row in found.preconditions]
    assert all(row.reason for row in found.preconditions if row.state == "unknown")
    json.loads(diagnoses_json([found]))


def test_a_torn_capsule_is_no_answer(gather):
    path = gather(POOL, torch.tensor([0, 3]))
    (path / "call.json").write_text("{", encoding="utf-8")
    found = diagnose(path)
    assert (found.answer, found.exit_status) == ("unknown", 3)
    assert "call.json" in found.text


def test_a_torn_file_of_inputs_leaves_shapes_to_judge(gather):
    path = gather(POOL, torch.tensor([0, 9]))
    (path / "inputs.safetensors").write_bytes(b"\0" * 4)
    found = diagnose(path)
    assert [row.state for row in found.preconditions] == ["unknown", "held", "held", "held"]
    assert "rows cannot be read" in found.preconditions[0].reason


def test_an_api_without_checks_is_unknown(recording):
    def plain(x):
        return x

    declared(recording, plain)(POOL)
    found = diagnose(recording.entries()[1].path)
    assert found.text == "unknown (no preconditions are declared for plain)"

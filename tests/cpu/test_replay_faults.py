"""A recorded fault comes back in a replay, with its line and the argument behind it."""

import signal

import pytest
import replay_runs as runs

pytestmark = pytest.mark.requires("gxx", "asan")

#: The page is 2^26 pages, about half a terabyte, past the cache.
DECODE = """
int32 = torch.int32
decode = kernlib.PagedDecode(4, 2, 64, 16)
indices = torch.tensor([0, 1, 67108864, 3], dtype=int32)
decode.plan(torch.tensor([0, 2, 4], dtype=int32), indices, torch.tensor([16, 3], dtype=int32))
decode.run(torch.zeros(2, 4, 64), torch.zeros(4, 2, 2, 16, 64))
"""

#: Each leaves its tensor of sixteen elements by one: what an allocator hides.
BY_ONE = """
faultlib.take_rows(floats(16, 1), ints(15, 16))
faultlib.put(floats(16), ints(16), floats(1))
faultlib.look_back(floats(16), ints(1, *[0] * 15))
faultlib.sum_rows(floats(4, 4), 5)
"""


def died(done):
    return done.returncode == -signal.SIGSEGV


@pytest.mark.parametrize("planted", runs.PLANTED, ids=lambda planted: planted.marker)
def test_a_fault_comes_back_with_its_line_and_argument(tmp_path, planted):
    done = runs.record(planted.code, tmp_path)
    assert died(done), done.stderr
    assert runs.recorded_call(runs.capsule(tmp_path))["status"] == "started"
    replayed = runs.replay(tmp_path)
    assert (replayed.status, replayed.verdict) == (10, "reproduced")
    assert replayed.call["api"] == planted.api
    source = replayed.call["source"]
    assert (source["line"], source["text"]) == runs.fault_line(planted.marker)
    assert (source["file"], source["certain"]) == (runs.ELEMENTS, True)
    assert replayed.findings == ([planted.finding] if planted.finding else [])
    first, named = replayed.call["attempts"]
    assert (first["rung"], first["mode"], first["verdict"]) == ("recorded", "release", "reproduced")
    assert (named["rung"], named["tool"]) == ("address", "AddressSanitizer")
    assert replayed.call["rung"] == "recorded"


def test_a_debug_build_without_a_sanitizer_has_the_line_too(tmp_path):
    planted = runs.PLANTED[0]
    assert died(runs.record(planted.code, tmp_path))
    replayed = runs.replay(tmp_path, "--mode", "debug")
    assert replayed.verdict == "reproduced"
    assert replayed.call["source"]["line"] == runs.fault_line(planted.marker)[0]
    assert [build["mode"] for build in replayed.builds] == ["debug"]


def test_a_fault_in_a_method_comes_back_after_its_set_up(tmp_path, repository):
    """An api of kernlib: nothing need be imported, and the bad index is in the receiver."""
    assert died(runs.record(DECODE, tmp_path))
    replayed = runs.replay(tmp_path, packages=())
    assert (replayed.status, replayed.call["api"]) == (10, "PagedDecode.run")
    expected = runs.marked_line(repository / "include/kernlib/paged_decode_cpu.h", "reads the page")
    source = replayed.call["source"]
    assert (source["line"], source["text"]) == expected
    assert source["file"] == "include/kernlib/paged_decode_cpu.h"
    message = "kv_indices[2] = 67108864, but the pool has 4 pages"
    assert replayed.findings == [("self.kv_indices", message)]


def test_a_fault_that_went_unnoticed_is_found_by_a_sanitizer(tmp_path):
    """One element too far: the recorded calls returned, so what is found is another end."""
    done = runs.record(BY_ONE, tmp_path)
    assert done.returncode == 0, done.stderr
    replayed = runs.replay(tmp_path, "--mode", "sanitize")
    assert replayed.status == 11
    assert len(replayed.calls) == len(runs.PLANTED)
    for call, planted in zip(replayed.calls, runs.PLANTED, strict=True):
        assert call["api"] == planted.api
        assert bool(call["findings"]) == (planted.finding is not None)
        assert call["verdict"] == "different_fault"
        # Before a storage may lie the bytes that align it, which are forbidden too.
        kinds = ("heap-buffer-overflow", "use-after-poison")
        told = tuple(f"recorded, the call returned; replayed: {kind}" for kind in kinds)
        assert call["reason"].startswith(told)
        access = "write" if planted.api == "put" else "read"
        assert f"{access} of 4 bytes" in call["reason"]
        assert call["source"]["line"] == runs.fault_line(planted.marker)[0]


def test_an_innocent_call_passes_under_the_sanitizer(tmp_path):
    """An api of those with sound arguments: a fault above is not the sanitizer's own doing."""
    assert runs.record("faultlib.take_rows(floats(16, 1), ints(15, 0))", tmp_path).returncode == 0
    replayed = runs.replay(tmp_path, "--mode", "sanitize")
    assert (replayed.status, replayed.verdict) == (0, "passed")
    assert replayed.findings == []

"""Declared preconditions name the element, both numbers, and nothing that is not known."""

import torch

from kernlib._checks import (
    Aligned,
    AllInRange,
    LengthsInRange,
    Monotone,
    SameSize,
    Size,
    run_checks,
)

PAGES = AllInRange(
    "self.kv_indices", Size("kv_cache", 0), "pages", "the pool", used="self.kv_indptr"
)


def messages(check, **values):
    named = {name.replace("self_", "self."): value for name, value in values.items()}
    return [finding.message for finding in check.findings(named)]


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


def test_an_index_past_the_pool_is_named_with_both_numbers():
    found = messages(
        PAGES,
        self_kv_indices=int32(0, 1, 67108864, 3),
        self_kv_indptr=int32(0, 4),
        kv_cache=torch.empty(64, 2),
    )
    assert found == ["kv_indices[2] = 67108864, but the pool has 64 pages"]


def test_a_negative_index_is_out_of_range_and_further_ones_are_counted():
    found = messages(
        PAGES,
        self_kv_indices=int32(0, -1, -2),
        self_kv_indptr=int32(0, 3),
        kv_cache=torch.empty(64, 2),
    )
    assert found == ["kv_indices[1] = -1, but the pool has 64 pages (2 such entries)"]


def test_slack_behind_the_used_prefix_is_not_judged():
    values = {
        "self_kv_indices": int32(0, 1, 999),
        "self_kv_indptr": int32(0, 2),
        "kv_cache": torch.empty(64, 2),
    }
    assert messages(PAGES, **values) == []


def test_offsets_that_reach_past_the_indices_are_named():
    found = messages(
        PAGES,
        self_kv_indices=int32(0, 1),
        self_kv_indptr=int32(0, 5),
        kv_cache=torch.empty(64, 2),
    )
    assert found == ["kv_indptr ends at 5, but kv_indices has 2 elements"]


def test_an_index_in_two_dimensions_is_written_with_two_brackets():
    check = AllInRange("table", Size("pool", 0), "rows", "the pool")
    found = messages(check, table=torch.tensor([[0, 1], [2, 9]]), pool=torch.empty(4))
    assert found == ["table[1][1] = 9, but the pool has 4 rows"]


def test_offsets_must_start_at_zero_and_never_fall():
    assert messages(Monotone("indptr"), indptr=int32(0, 2, 2, 5)) == []
    assert messages(Monotone("indptr"), indptr=int32(1, 4, 3)) == [
        "indptr[0] = 1, but offsets start at 0",
        "indptr[2] = 3 is less than indptr[1] = 4, but offsets never fall",
    ]


def test_last_page_lengths_of_sequences_without_pages_are_not_judged():
    check = LengthsInRange("last", "indptr", Size("self.page_size"))
    values = {"indptr": int32(0, 1, 1, 2), "self_page_size": 16}
    assert messages(check, last=int32(16, 0, 1), **values) == []
    assert messages(check, last=int32(17, 0, 1), **values) == [
        "last[0] = 17, but a page holds 1 to 16 tokens"
    ]


def test_sizes_that_disagree_are_both_named():
    check = SameSize(Size("indptr", 0), Size("q", 0), offset=1)
    assert messages(check, indptr=int32(0, 1, 2), q=torch.empty(2, 4)) == []
    assert messages(check, indptr=int32(0, 1, 2), q=torch.empty(5, 4)) == [
        "indptr.shape[0] = 3, but q.shape[0] + 1 = 6"
    ]


def test_alignment_is_judged_on_the_recorded_address():
    check = Aligned("x", 16)
    assert messages(check, **{"x": torch.empty(4), "x.address": 4096}) == []
    assert messages(check, **{"x": torch.empty(4), "x.address": 4100}) == [
        "x starts 4 bytes past a multiple of 16"
    ]


def test_what_is_not_known_is_not_judged():
    checks = (PAGES, Monotone("a"), SameSize(Size("a", 0), Size("b")), Aligned("a", 16))
    assert run_checks(checks, {}) == []
    assert run_checks(checks, {"a": None, "kv_cache": 3}) == []

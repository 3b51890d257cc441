"""What the operators declare: their preconditions and the kernels of a call."""

import pytest
import torch

from kernlib._checks import Size, run_checks
from kernlib.ops._norm import FUSED_ADD_RMS_NORM_CHECKS, RMS_NORM_CHECKS
from kernlib.ops._own_checks import PositionsInPages
from kernlib.ops._paged_cache import APPEND_PAGED_KV_CHECKS
from kernlib.ops._paged_decode import PAGED_DECODE_CHECKS

#: Two sequences: three pages of 16 tokens and one page.
APPEND = {
    "kv_cache": torch.zeros(8, 2, 1, 16, 4),
    "kv_indices": [7, 0, 3, 5],
    "kv_indptr": [0, 3, 4],
    "kv_last_page_len": [2, 16],
    "batch_indices": [0, 1, 1],
    "positions": [33, 0, 15],
}
DECODE = {
    "q": torch.zeros(2, 4, 64),
    "kv_cache": torch.zeros(8, 2, 2, 16, 64),
    "self.num_qo_heads": 4,
    "self.num_kv_heads": 2,
    "self.head_dim": 64,
    "self.page_size": 16,
    "self.kv_indptr": [0, 3, 4],
    "self.kv_indices": [7, 0, 3, 5, 2**31 - 1],
    "self.kv_last_page_len": [2, 16],
}


def messages(checks, values, **changes):
    merged = values | {name.replace("self_", "self."): value for name, value in changes.items()}
    tensors = {
        name: torch.tensor(value, dtype=torch.int32) if isinstance(value, list) else value
        for name, value in merged.items()
    }
    return [finding.message for finding in run_checks(checks, tensors)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"kv_indices": [7, 0, 8, 5]}, "kv_indices[2] = 8, but the pool has 8 pages"),
        ({"kv_indptr": [0, 5, 4]}, "kv_indptr[2] = 4 is less than kv_indptr[1] = 5"),
        ({"batch_indices": [0, 2, 1]}, "batch_indices[1] = 2, but the page table has 2 sequences"),
        ({"positions": [48, 0, 15]},
         "positions[0] = 48, but sequence 0 has pages for 48 tokens"),
        ({"positions": [0, 0, -1]},
         "positions[2] = -1, but sequence 1 has pages for 16 tokens"),
    ],
)  # fmt: skip
def test_append_paged_kv(changes, message):
    found = messages(APPEND_PAGED_KV_CHECKS, APPEND, **changes)
    assert found == [] if message is None else found[0].startswith(message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"self_kv_indices": [7, 67108864, 3, 5]},
         "kv_indices[1] = 67108864, but the pool has 8 pages"),
        ({"self_kv_indptr": [1, 3, 4]}, "kv_indptr[0] = 1, but offsets start at 0"),
        ({"self_kv_last_page_len": [2, 17]},
         "kv_last_page_len[1] = 17, but a page holds 1 to 16 tokens"),
        ({"q": torch.zeros(3, 4, 64)}, "kv_indptr.shape[0] = 3, but q.shape[0] + 1 = 4"),
        ({"q": torch.zeros(2, 8, 64)}, "q.shape[1] = 8, but num_qo_heads = 4"),
        ({"self_page_size": 8}, "kv_cache.shape[3] = 16, but page_size = 8"),
    ],
)  # fmt: skip
def test_paged_decode(changes, message):
    found = messages(PAGED_DECODE_CHECKS, DECODE, **changes)
    assert found == [] if message is None else message in found


def test_norms():
    values = {"x": torch.zeros(3, 8), "residual": torch.zeros(2, 8), "weight": torch.zeros(5)}
    assert messages(RMS_NORM_CHECKS, values) == ["weight.shape[0] = 5, but x.shape[-1] = 8"]
    assert messages(FUSED_ADD_RMS_NORM_CHECKS, values)[1:] == [
        "residual.shape[0] = 2, but x.shape[0] = 3"
    ]


def test_positions_of_an_unknown_sequence_are_left_to_its_own_check():
    check = PositionsInPages("positions", "batch_indices", "kv_indptr", Size("kv_cache", 3))
    assert messages((check,), APPEND, batch_indices=[0, 9, 1]) == []
    assert messages((check,), APPEND, positions=None) == []

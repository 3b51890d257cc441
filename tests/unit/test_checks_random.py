"""Random right inputs break nothing; one random wrong value in them is found and named."""

import random

import pytest
import torch

from kernlib._checks import evaluate
from kernlib.ops._norm import FUSED_ADD_RMS_NORM_CHECKS
from kernlib.ops._paged_cache import APPEND_PAGED_KV_CHECKS
from kernlib.ops._paged_decode import PAGED_DECODE_CHECKS

INTS = {"dtype": torch.int32}
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def table(chance):
    """Return the pages of random sequences: indptr, indices with slack, lengths of last pages."""
    page_size, counts = (
        chance.randint(1, 9),
        [chance.randint(0, 4) for _ in range(chance.randint(1, 6))],
    )
    total = sum(counts)
    pool = total + chance.randint(1, 5)
    indptr = [sum(counts[:at]) for at in range(len(counts) + 1)]
    slack = [chance.randint(-9, 2**31 - 1) for _ in range(chance.randint(0, 3))]
    indices = chance.sample(range(pool), total) + slack
    last = [chance.randint(1, page_size) if count else 0 for count in counts]
    return page_size, pool, counts, (indptr, indices, last)


def strided(chance, *shape, dtype):
    """Return a tensor of random strides, dense in its last dimension."""
    wide = list(shape)
    at = chance.randrange(len(shape))
    wide[at] += chance.randint(0, 3)
    tensor = torch.zeros(*wide, dtype=dtype)
    return tensor.narrow(at, 0, shape[at])


def decode_values(chance):
    page_size, pool, counts, lists = table(chance)
    dtype, heads, group = chance.choice(DTYPES), chance.randint(1, 3), chance.randint(1, 3)
    head_dim, batch = 8 * chance.randint(1, 4), len(counts)
    q = strided(chance, batch, heads * group, head_dim, dtype=dtype)
    names = ("self.kv_indptr", "self.kv_indices", "self.kv_last_page_len")
    tensors = {n: torch.tensor(part, **INTS) for n, part in zip(names, lists, strict=True)}
    return {
        "q": q, "kv_cache": strided(chance, pool, 2, heads, page_size, head_dim, dtype=dtype),
        "out": chance.choice((None, q, torch.zeros_like(q))),
        "self.num_qo_heads": heads * group, "self.num_kv_heads": heads,
        "self.head_dim": head_dim, "self.page_size": page_size, **tensors,
    }  # fmt: skip


def append_values(chance):
    page_size, pool, counts, lists = table(chance)
    dtype, heads, head_dim = chance.choice(DTYPES), chance.randint(1, 3), chance.randint(1, 9)
    held = [at for at, count in enumerate(counts) if count]
    rows = [chance.choice(held) for _ in range(chance.randint(1, 6))] if held else []
    places = [chance.randrange(counts[row] * page_size) for row in rows]
    names = ("kv_indptr", "kv_indices", "kv_last_page_len", "batch_indices", "positions")
    parts = (*lists, rows, places)
    tensors = {name: torch.tensor(part, **INTS) for name, part in zip(names, parts, strict=True)}
    sources = {name: strided(chance, max(len(rows), 1), heads, head_dim, dtype=dtype)
               [: len(rows)] for name in ("k", "v")}  # fmt: skip
    cache = strided(chance, pool, 2, heads, page_size, head_dim, dtype=dtype)
    return {**sources, "kv_cache": cache, **tensors}


def norm_values(chance):
    dtype, rows, hidden = chance.choice(DTYPES), chance.randint(1, 5), chance.randint(1, 33)
    both = torch.zeros(rows, 2 * hidden, dtype=dtype)
    return {
        "x": both[:, :hidden], "residual": both[:, hidden:],
        "weight": torch.zeros(hidden, dtype=dtype), "eps": 1e-6,
    }  # fmt: skip


def spoil(values, name, at, value):
    """Return the values with one element of a list changed."""
    changed = values[name].clone()
    changed[at] = value
    return values | {name: changed}


def findings(checks, values):
    outcomes = evaluate(checks, values)
    assert [outcome.reason for outcome in outcomes if outcome.state == "unknown"] == []
    return [found for outcome in outcomes for found in outcome.findings]


@pytest.mark.parametrize(
    ("checks", "make"),
    [(PAGED_DECODE_CHECKS, decode_values), (APPEND_PAGED_KV_CHECKS, append_values),
     (FUSED_ADD_RMS_NORM_CHECKS, norm_values)],
)  # fmt: skip
def test_right_inputs_break_nothing(checks, make):
    chance = random.Random(7)  # noqa: S311 - no secret
    for _ in range(60):
        assert findings(checks, make(chance)) == []


def corruptions(chance, values, prefix):
    """Yield the name of a list and the values with one wrong element in it, or one wrong shape."""
    indptr = values[f"{prefix}kv_indptr"]
    batch, used = indptr.numel() - 1, int(indptr[-1])
    pool = values["kv_cache"].shape[0]
    if used:
        bad = chance.choice((-1, pool, pool + 7, 2**31 - 1, -(2**31)))
        yield (
            f"{prefix}kv_indices",
            spoil(values, f"{prefix}kv_indices", chance.randrange(used), bad),
        )
    yield f"{prefix}kv_indptr", spoil(values, f"{prefix}kv_indptr", 0, chance.choice((1, -1)))
    yield f"{prefix}kv_indptr", spoil(values, f"{prefix}kv_indptr", batch, -(2**31))
    for name in ("kv_indptr", "kv_indices", "kv_last_page_len"):
        yield prefix + name, values | {prefix + name: values[prefix + name].long()}


def test_one_wrong_value_of_a_decode_is_found():
    chance = random.Random(8)  # noqa: S311 - no secret
    for _ in range(40):
        values = decode_values(chance)
        for name, wrong in corruptions(chance, values, "self."):
            assert name in {found.argument for found in findings(PAGED_DECODE_CHECKS, wrong)}
        pages = values["self.kv_indptr"].diff()
        for at in (pages > 0).nonzero().flatten().tolist():
            bad = chance.choice((0, -1, values["self.page_size"] + 1, 2**31 - 1))
            wrong = spoil(values, "self.kv_last_page_len", at, bad)
            (found,) = findings(PAGED_DECODE_CHECKS, wrong)
            assert found.message.startswith(f"kv_last_page_len[{at}] = {bad}, but a page holds")


def test_one_wrong_value_of_an_append_is_found():
    chance = random.Random(9)  # noqa: S311 - no secret
    for _ in range(40):
        values = append_values(chance)
        for name, wrong in corruptions(chance, values, ""):
            assert name in {found.argument for found in findings(APPEND_PAGED_KV_CHECKS, wrong)}
        if not (tokens := values["positions"].numel()):
            continue
        at = chance.randrange(tokens)
        for name in ("batch_indices", "positions"):
            wrong = spoil(values, name, at, chance.choice((-1, 2**31 - 1, -(2**31))))
            (found,) = findings(APPEND_PAGED_KV_CHECKS, wrong)
            assert found.message.startswith(f"{name}[{at}] = ")

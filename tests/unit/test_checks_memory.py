"""Preconditions on layouts, dtypes and numbers; and what is told of those not evaluated."""

import random

import pytest
import torch

from kernlib._checks import (
    Aligned,
    AllInRange,
    Contiguous,
    DenseLast,
    DtypeIn,
    Finite,
    InRange,
    Int32Product,
    Int32Reach,
    Largest,
    Layout,
    Monotone,
    Multiple,
    NoOverlap,
    Rank,
    SameDevice,
    SameDtype,
    SameShape,
    Size,
    Stride,
    Writable,
    evaluate,
    label,
)
from kernlib._checks._layout import overlaps

BASE = torch.zeros(6, 8)
HUGE = torch.zeros(1).expand(2**40)


def messages(check, **values):
    named = {name.replace("self_", "self."): value for name, value in values.items()}
    return [finding.message for finding in check.findings(named)]


def state(check, **values):
    (outcome,) = evaluate([check], values)
    return outcome.state, outcome.reason


BROKEN = [
    (SameDtype("a", "b"), {"a": torch.zeros(1), "b": torch.zeros(1, dtype=torch.half)},
     "a is float32, but b is float16"),
    (SameDtype("a", "b", (("int8", "float16"),)), {"a": torch.zeros(1), "b": torch.zeros(1).half()},
     "a is float32, but b is float16"),
    (DtypeIn("a", ("int32", "int64")), {"a": BASE}, "a is float32, but int32 or int64 is needed"),
    (SameShape("a", "b"), {"a": BASE, "b": BASE[:, :7]}, "a.shape[1] = 8, but b.shape[1] = 7"),
    (SameShape("a", "b"), {"a": BASE, "b": BASE[0]}, "a has 2 dimensions, but b 1"),
    (Rank("a", 1), {"a": BASE}, "a has 2 dimensions, but 1 are needed"),
    (Rank("a", 3, 4), {"a": BASE}, "a has 2 dimensions, but 3 to 4 are needed"),
    (SameDevice("a", "b"), {"a": BASE, "b": torch.zeros(1, device="meta")},
     "a is on cpu, but b is on meta"),
    (DenseLast("a"), {"a": BASE.t()}, "a has stride 8 in its last dimension, but only 1 is"),
    (Contiguous("a"), {"a": BASE[:, :4]}, "a.stride(0) = 8, but must be contiguous: 4"),
    (Writable("a"), {"a": torch.zeros(1, 4).expand(3, 4)}, "a has stride 0 in dimension 0 of size"),
    (Writable("a"), {"a": torch.zeros(8).unfold(0, 4, 1)}, "a has more elements than its memory"),
    (Aligned("a", 16), {"a": BASE, "a.address": 4100}, "a starts 4 bytes past a multiple of 16"),
    (Aligned("a"), {"a": BASE, "a.address": 4098},
     "a starts 2 bytes past a multiple of 4, its element size"),
    (NoOverlap("a", "b"), {"a": BASE[1:3], "b": BASE[2:]},
     "a shares memory with b (a starts 32 bytes before it)"),
    (NoOverlap("a", "b"), {"a": BASE, "b": BASE},
     "a shares memory with b (a starts where it does)"),
    (NoOverlap("a", "b", in_place=True), {"a": BASE[1:], "b": BASE[:-1]},
     "a shares memory with b (a starts 32 bytes after it), but may do so only as b itself"),
    (NoOverlap("a", "b", in_place=True), {"a": BASE[:, 2:6], "b": BASE}, "a shares memory with b"),
    (Finite("a"), {"a": torch.tensor([[1.0, 2.0], [float("nan"), float("inf")]])},
     "a[1][0] = nan, but must be finite (2 such entries)"),
    (Finite("a"), {"a": torch.tensor([1.0, -float("inf")]).to(torch.float8_e5m2)},
     "a[1] = -inf, but must be finite"),
    (InRange(Size("n"), 1), {"n": 0}, "n = 0, but must be at least 1"),
    (InRange(Size("n"), 0.0, 1.0), {"n": 1.5}, "n = 1.5, but must be at most 1.0"),
    (InRange(Size("n"), 0.0), {"n": float("nan")}, "n = nan, but a number is needed"),
    (InRange(Size("a", 0), 7), {"a": BASE}, "a.shape[0] = 6, but must be at least 7"),
    (Multiple(Size("n"), Size("m")), {"n": 7, "m": 2}, "n = 7, which is not a multiple of m = 2"),
    (Multiple(Size("n"), 8), {"n": 12}, "n = 12, which is not a multiple of 8"),
    (Int32Reach("a"), {"a": torch.empty(2**31 + 1, dtype=torch.int8, device="meta")},
     "a reaches 2147483648 elements past its first, but the kernel counts in int32"),
    (Int32Reach("a", nbytes=True), {"a": torch.empty(2**29 + 1, device="meta")},
     "a reaches 2147483651 bytes past its first"),
    (Int32Product((Largest("i"), Stride("a", 0))),
     {"i": torch.tensor([5, 2**26]), "a": torch.zeros(2, 64)},
     "the largest of i = 67108864 times a.stride(0) = 64 is 4294967296, but the kernel counts"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "values", "message"), BROKEN)
def test_a_broken_precondition_names_argument_value_and_limit(check, values, message):
    (found,) = messages(check, **values)
    assert found.startswith(message)


HOLDS = [
    (SameDtype("a", "b", (("float32", "float16"),)), {"a": BASE, "b": BASE.half()}),
    (DtypeIn("a", ("float32",)), {"a": BASE}),
    (SameShape("a", "b"), {"a": BASE, "b": BASE.clone()}),
    (Contiguous("a"), {"a": BASE[2:]}),
    (Contiguous("a"), {"a": BASE[:, :0]}),
    (DenseLast("a"), {"a": torch.zeros(3, 8)[:, ::8]}),
    (Writable("a"), {"a": torch.zeros(4, 1).expand(4, 1)}),
    (NoOverlap("a", "b"), {"a": BASE[:3], "b": BASE[3:]}),
    (NoOverlap("a", "b"), {"a": BASE[:, :4], "b": BASE[:, 4:]}),
    (NoOverlap("a", "b"), {"a": BASE[:, ::2], "b": BASE[:, 1::2]}),
    (NoOverlap("a", "b", in_place=True), {"a": BASE, "b": BASE}),
    (NoOverlap("a", "b", in_place=True), {"a": BASE[:, :4], "b": BASE}),
    (NoOverlap("a", "b"), {"a": BASE, "b": BASE[:0]}),
    (Finite("a"), {"a": BASE}),
    (Finite("a"), {"a": torch.arange(3)}),
    (InRange(Size("n"), 1, 8), {"n": 8}),
    (Multiple(Size("n"), Size("m")), {"n": 8, "m": 0}),
    (Int32Reach("a"), {"a": BASE}),
    (Int32Product((Size("a", 0), Size("a", 1))), {"a": BASE}),
]


@pytest.mark.parametrize(("check", "values"), HOLDS)
def test_a_precondition_that_holds_is_counted_as_held(check, values):
    assert state(check, **values) == ("held", "")


@pytest.mark.parametrize("check", [row[0] for row in BROKEN])
def test_what_is_absent_is_unknown_and_what_is_none_is_no_problem(check):
    kind, reason = state(check)
    assert kind == "unknown"
    assert reason.endswith("is not known")
    names = ("a", "b", "n", "m", "i")
    assert state(check, **dict.fromkeys(names)) == ("held", "")


HOSTILE = [HUGE, torch.zeros(0), torch.zeros(()), torch.zeros(2, device="meta"), [1, 2], "x",
           2**70, float("nan"), torch.zeros(1).to_sparse(), torch.tensor([1 + 2j]), b"", object,
           torch.tensor([True]), torch.zeros(1, dtype=torch.float8_e4m3fn)]  # fmt: skip
CHECKS = [*(row[0] for row in BROKEN), Monotone("a"),
          AllInRange("a", Size("b", 0), "rows", "the pool", used="n")]  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=label)
def test_no_value_makes_a_check_fail_or_run_long(check):
    for value in HOSTILE:
        for other in (BASE, value):
            (outcome,) = evaluate([check], {"a": value, "b": other, "n": value, "m": 3, "i": value})
            assert outcome.state in {"broken", "held", "unknown"}
            assert (outcome.state == "unknown") == bool(outcome.reason)


def test_values_of_another_kind_are_not_counted_as_held():
    assert state(DenseLast("a"), a=[1, 2]) == ("unknown", "a is list, no tensor")
    assert state(Finite("a"), a=3) == ("unknown", "a is int, no tensor")
    assert state(InRange(Size("n"), 1), n="many") == ("unknown", "n is str, no number")
    assert state(Finite("a"), a=HUGE) == ("unknown", "a shows its memory too often to be read")


def test_a_check_that_fails_is_unknown_and_the_others_go_on():
    class Wrong:
        def findings(self, values):
            return values["a"].nothing

    outcomes = evaluate([Wrong(), DenseLast("a")], {"a": BASE.t()})
    assert [outcome.state for outcome in outcomes] == ["unknown", "broken"]
    assert outcomes[0].reason.startswith("it failed: AttributeError")


def test_a_check_is_called_by_its_kind_and_arguments():
    assert label(NoOverlap("out", "x")) == "NoOverlap(out, x)"
    assert label(InRange(Size("self.page_size"), 1)) == "InRange(page_size)"


def places(tensor):
    """Return every byte of a layout, by counting."""
    found = {tensor.address}
    for size, stride in zip(tensor.shape, tensor.stride, strict=True):
        found = {at + i * stride * tensor.itemsize for at in found for i in range(size)}
    return {at + byte for at in found for byte in range(tensor.itemsize)}


def test_overlap_is_what_counting_every_byte_says():
    chance = random.Random(20)  # noqa: S311 - no secret
    seen = {True: 0, False: 0}
    for _ in range(3000):
        pair = []
        for _ in range(2):
            rank = chance.randint(0, 3)
            shape = tuple(chance.randint(1, 4) for _ in range(rank))
            stride = tuple(chance.choice((0, 1, 2, 3, 5, 8, 12)) for _ in range(rank))
            itemsize = chance.choice((1, 2, 4, 8))
            pair.append(Layout("x", itemsize, shape, stride, chance.randint(100, 160), "cpu"))
        wanted = not places(pair[0]).isdisjoint(places(pair[1]))
        assert overlaps(*pair) is wanted, pair
        seen[wanted] += 1
    assert min(seen.values()) > 300


def test_overlap_gives_up_where_telling_would_take_long():
    steps = [(1 << 20) + 2 * i for i in range(24)]
    size = 1 << 12
    one = Layout("x", 2, (size,) * 24, tuple(steps), 1 << 20, "cpu")
    other = Layout("x", 2, (size,) * 24, tuple(step + 1 for step in steps), 1 << 21, "cpu")
    assert overlaps(one, other) in {True, None}

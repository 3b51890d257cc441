"""Comparison knows NaN, eight-bit floats and the difference between close and identical."""

import pytest
import torch

from kernlib.replay._compare import TOLERANCES, compare


def test_nan_and_infinities_equal_themselves():
    values = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
    outcome = compare("result", values.clone(), values)
    assert outcome.matches
    assert outcome.identical


def test_another_nan_payload_still_matches_but_is_not_identical():
    one = torch.tensor([0x7FC00000], dtype=torch.int32).view(torch.float32)
    other = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
    outcome = compare("result", other, one)
    assert outcome.matches
    assert not outcome.identical


@pytest.mark.parametrize("name", sorted(TOLERANCES))
def test_a_small_difference_is_within_tolerance_and_a_large_one_is_not(name):
    dtype = getattr(torch, name)
    one = torch.ones(4).to(dtype)
    far = torch.full((4,), 2.0).to(dtype)
    assert compare("result", one, one).identical
    outcome = compare("result", far, one)
    assert not outcome.matches
    assert "result[0]" in outcome.detail
    assert "rtol" in outcome.tolerance


def test_one_step_of_bfloat16_is_close_but_not_identical():
    one = torch.tensor([1.0], dtype=torch.bfloat16)
    next_one = torch.tensor([1.0078125], dtype=torch.bfloat16)
    outcome = compare("result", next_one, one)
    assert outcome.matches
    assert not outcome.identical


def test_integers_must_agree_in_every_bit():
    outcome = compare("result", torch.tensor([1, 2, 3]), torch.tensor([1, 2, 4]))
    assert not outcome.matches
    assert outcome.tolerance == "exact"


def test_a_nan_against_a_number_is_named():
    outcome = compare("result", torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 2.0]))
    assert not outcome.matches
    assert "result[1] = nan, recorded 2" in outcome.detail


def test_shape_and_dtype_are_compared_first():
    outcome = compare("result", torch.ones(2, 3), torch.ones(3, 2))
    assert outcome.detail == "float32[2, 3], recorded float32[3, 2]"
    assert not compare("result", torch.ones(2), torch.ones(2).double()).matches


def test_strided_conjugated_and_empty_tensors():
    base = torch.randn(4, 4)
    assert compare("result", base.t(), base.t().contiguous()).identical
    value = torch.tensor([1 + 2j])
    assert compare("result", value.conj(), torch.tensor([1 - 2j])).identical
    assert compare("result", torch.empty(0), torch.empty(0)).matches

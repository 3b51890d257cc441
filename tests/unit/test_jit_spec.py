"""A spec says what to build, or says what is wrong with it."""

import dataclasses
import pickle
from pathlib import Path

import pytest
from jit_samples import chosen, fake_config, plain_spec, python

from kernlib import jit
from kernlib.errors import SpecError

ROOT = Path("/nowhere")


def test_the_uri_is_name_backend_and_sorted_parameters():
    spec = plain_spec(ROOT, params=(("head_dim", 128), ("causal", True), ("dtype", "f16")))
    assert spec.uri == "twice-cpu-causal_True-dtype_f16-head_dim_128"
    assert plain_spec(ROOT).uri == "twice-cpu"


def test_the_uri_is_safe_as_a_file_name():
    uri = plain_spec(ROOT, params=(("layout", "../N H/D"),)).uri
    assert "/" not in uri
    assert " " not in uri


def test_the_order_in_which_parameters_are_given_means_nothing():
    one = plain_spec(ROOT, params=(("a", 1), ("b", 2)))
    other = plain_spec(ROOT, params=(("b", 2), ("a", 1)))
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "Twice"}, "lower-case"),
        ({"name": "a/b"}, "lower-case"),
        ({"backend": "tpu"}, "'tpu'"),
        ({"sources": ()}, "no source"),
        ({"targets": ()}, "no supported target"),
        ({"targets": ("cpu", "sm_90a")}, "'sm_90a'"),
        ({"params": (("a", 1), ("a", 2))}, "twice"),
        ({"params": (("a", "x" * 200),)}, "characters"),
        ({"sources": ("/etc/x.cc",)}, "/etc/x.cc"),
        ({"sources": ("../x.cc",)}, "../x.cc"),
        ({"include_dirs": ("a/../../b",)}, "relative"),
        ({"headers": (("../x.h", ""),)}, "../x.h"),
        ({"sources": ("csrc/x.cu",)}, ".cc"),
    ],
)
def test_a_spec_that_cannot_be_built_is_refused(changes, words):
    with pytest.raises(SpecError) as raised:
        plain_spec(ROOT, **changes)
    assert words in str(raised.value)


@pytest.mark.parametrize("family", ["cpu", "sm80", "sm_80++", "compute_80", "90a", ""])
def test_a_cuda_spec_supports_architectures_only(family):
    with pytest.raises(SpecError, match="sm_90a or sm_80"):
        plain_spec(ROOT, "cuda", targets=("sm_80+", family))


def test_a_spec_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        plain_spec(ROOT).name = "other"


def test_a_choice_that_went_through_a_file_is_found_again(tmp_path):
    """The hash of a text differs between processes; a pickled spec must not bring its old one."""
    file = tmp_path / "choice"
    file.write_bytes(pickle.dumps(chosen(plain_spec(ROOT))))
    code = f"""
import pickle
found = pickle.loads(Path({str(file)!r}).read_bytes())
made = chosen(plain_spec(root))
print(found == made, hash(found) == hash(made), found in {{made}})
"""
    config = fake_config(tmp_path)
    assert python(code, ROOT, config, PYTHONHASHSEED="1") == "True True True"
    assert python(code, ROOT, config, PYTHONHASHSEED="2") == "True True True"


def test_choices_for_two_targets_differ():
    spec = plain_spec(ROOT, "cuda")
    assert chosen(spec, "sm_80") != chosen(spec, "sm_90a")
    assert chosen(spec, "sm_80") == chosen(spec, "sm_80")
    assert isinstance(chosen(spec), jit.KernelChoice)

"""Every error says what, which value and what is expected, also after pickling."""

import copy
import inspect
import pickle
from pathlib import Path

import pytest

from kernlib import errors

#: One of each, with the facts that its sentence has to hold.
SAMPLES = {
    "ConfigError": ("KERNLIB_SYNC", "maybe", "0 or 1"),
    "SpecError": ("norm", "no sources"),
    "IncludeError": ("csrc/norm/norm.cu", 3, "kernlib/gone.cuh", ("include", "csrc")),
    "ToolchainError": ("nvcc", "not found", "Install CUDA or set KERNLIB_NVCC"),
    "UnsupportedTargetError": ("norm-cuda", "sm_70", ("sm_80+", "sm_90a")),
    "MissingArtifactError": ("norm-cpu", "0123abcd", "an artifact of version 0.0.9"),
    "StaleArtifactError": (
        "norm-cpu",
        "0123abcd",
        Path("/aot/89ef"),
        "kernlib: recorded 0.0.9, here 0.1.0",
        "KERNLIB_JIT_DISABLE is set",
    ),
    "BuildError": ("norm-cpu", "cpu", "debug", Path("/ws/build.log"), "norm.cc:3: error: no"),
    "LoadError": (Path("/ws/norm.so"), "undefined symbol"),
    "LaunchError": ("silu_and_mul_fp16_256", "cuda:1", "invalid device context", 201),
    "RegistryError": ("rms_norm", "is claimed twice"),
    "RingError": (Path("/rings/7.ring"), "5 bytes are no ring"),
    "RecordingError": (Path("/dumps"), "it cannot be read"),
    "CapsuleError": (Path("/dumps/000042-rms_norm"), "call.json is torn"),
    "SelectionError": ("no call 42 in /dumps", "Look with --list"),
    "NotReplayableError": ("call 42 rms_norm", ("x is opaque", "no receiver")),
    "FenceError": ("cuMemCreate", "CUDA_ERROR_OUT_OF_MEMORY"),
    "InvalidInputError": ("rms_norm", "x", "x.shape[1] = 3, but weight.shape[0] = 4"),
    "ArgumentError": ("rms_norm", "x has 3 dimensions, but 4 are needed"),
}
CLASSES = {
    name: kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.KernlibError) and kind is not errors.KernlibError
}


def make(name):
    return CLASSES[name](*SAMPLES[name])


def facts(value):
    return [str(part) for part in value] if isinstance(value, tuple) else [str(value)]


def test_every_class_is_public_and_has_a_sample():
    assert sorted(CLASSES) == sorted(SAMPLES)
    assert sorted([*CLASSES, "KernlibError"]) == errors.__all__


@pytest.mark.parametrize("name", SAMPLES)
def test_the_sentence_holds_every_fact(name):
    sentence = str(make(name))
    missing = [fact for value in SAMPLES[name] for fact in facts(value) if fact not in sentence]
    assert missing == []
    assert sentence != str(SAMPLES[name])


@pytest.mark.parametrize("name", SAMPLES)
def test_the_facts_are_attributes_under_the_constructors_names(name):
    names = list(inspect.signature(CLASSES[name].__init__).parameters)[1:]
    assert [getattr(make(name), field) for field in names] == list(SAMPLES[name])


def through_pickle(error):
    return pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes


@pytest.mark.parametrize("carried", [through_pickle, copy.copy])
@pytest.mark.parametrize("name", SAMPLES)
def test_an_error_arrives_as_it_was_sent(name, carried):
    sent = make(name)
    arrived = carried(sent)
    assert type(arrived) is type(sent)
    assert vars(arrived) == vars(sent)
    assert str(arrived) == str(sent)


@pytest.mark.parametrize("name", ["IncludeError", "UnsupportedTargetError", "NotReplayableError"])
def test_lists_are_kept_as_tuples(name):
    made = CLASSES[name](*(list(v) if isinstance(v, tuple) else v for v in SAMPLES[name]))
    assert vars(made) == vars(make(name))


def test_an_empty_list_reads_as_none():
    error = errors.UnsupportedTargetError("norm", "sm_70", ())
    assert str(error).endswith("supported: none")


def test_a_build_errors_last_line_is_the_compilers():
    assert str(make("BuildError")).splitlines()[-1] == "norm.cc:3: error: no"


def test_bad_values_can_be_caught_as_value_errors():
    assert isinstance(make("ConfigError"), ValueError)
    assert isinstance(make("SpecError"), ValueError)

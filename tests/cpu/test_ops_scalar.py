"""Conversions of the 16-bit types on the host, against torch's, bit by bit."""

import ctypes
import subprocess

import pytest
import torch

pytestmark = pytest.mark.requires("gxx")

SOURCE = """
#include "kernlib/scalar.h"
using namespace kernlib;
#define CONVERSIONS(name, Type)                                                     \\
  extern "C" void widen_##name(const Type* from, float* to, long count) {           \\
    for (long i = 0; i < count; ++i) to[i] = to_float(from[i]);                     \\
  }                                                                                 \\
  extern "C" void narrow_##name(const float* from, Type* to, long count) {          \\
    for (long i = 0; i < count; ++i) to[i] = from_float<Type>(from[i]);             \\
  }
CONVERSIONS(float16, Half)
CONVERSIONS(bfloat16, BFloat16)
"""
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@pytest.fixture(scope="module")
def convert(repository, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scalar")
    (folder / "scalar.cc").write_text(SOURCE)
    command = ["g++", "-std=c++17", "-O3", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    command += [f"-I{repository / 'include'}", "scalar.cc", "-o", "scalar.so"]
    subprocess.run(command, cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "scalar.so"))

    def call(name, values, dtype):
        result = torch.zeros(values.shape, dtype=dtype)
        pointers = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (values, result))
        getattr(library, name)(*pointers, ctypes.c_long(values.numel()))
        return result

    return call


def bits(tensor):
    return tensor.view(torch.int32 if tensor.dtype == torch.float32 else torch.int16)


def same_bits(actual, expected, source):
    """Compare bits; NaN must stay NaN and keep its sign, which torch loses now and then."""
    nan = source.isnan()
    assert torch.equal(actual.isnan(), nan)
    assert torch.equal(bits(actual)[~nan], bits(expected)[~nan])
    assert torch.equal(actual[nan].signbit(), source[nan].signbit())


def every(dtype):
    return torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(dtype)


@pytest.mark.parametrize("name", DTYPES)
def test_every_value_widens_exactly(convert, name):
    values = every(DTYPES[name])
    same_bits(convert(f"widen_{name}", values, torch.float32), values.float(), values)


@pytest.mark.parametrize("name", DTYPES)
def test_every_value_survives_the_way_there_and_back(convert, name):
    values = every(DTYPES[name])
    same_bits(convert(f"narrow_{name}", values.float(), DTYPES[name]), values, values)


@pytest.mark.parametrize("name", DTYPES)
def test_random_floats_round_to_nearest_even(convert, name):
    values = torch.randint(-(2**31), 2**31, (2**20,), dtype=torch.int64).to(torch.int32)
    values = values.view(torch.float32)
    same_bits(convert(f"narrow_{name}", values, DTYPES[name]), values.to(DTYPES[name]), values)


@pytest.mark.parametrize("name", DTYPES)
def test_ties_and_their_neighbours_round_to_nearest_even(convert, name):
    """Halfway points between all neighbours, and the float just above and below each."""
    exact = every(DTYPES[name]).double()
    exact = exact[exact.isfinite()].unique()
    middle = ((exact[1:] + exact[:-1]) / 2).float()
    values = torch.cat(
        [middle, torch.nextafter(middle, -middle), torch.nextafter(middle, 2 * middle)]
    )
    same_bits(convert(f"narrow_{name}", values, DTYPES[name]), values.to(DTYPES[name]), values)


def test_subnormals_survive_a_process_that_flushes_denormals(convert):
    values = every(torch.float16)
    expected = values.float()
    assert torch.set_flush_denormal(True)
    try:
        wide = convert("widen_float16", values, torch.float32)
        narrow = convert("narrow_float16", expected, torch.float16)
    finally:
        torch.set_flush_denormal(False)
    same_bits(wide, expected, values)
    same_bits(narrow, values, expected)

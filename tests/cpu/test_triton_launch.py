"""Launching through a driver that pretends: what it is told, and what its errors become."""

import ctypes
import hashlib
import subprocess
from pathlib import Path

import ops_reference as reference
import pytest
import torch

import kernlib
from kernlib.errors import LaunchError, LoadError, ToolchainError
from kernlib.jit._triton_launch import KernelRow, Listing, TritonModule, _Driver
from kernlib.ops import _activation_triton

pytestmark = pytest.mark.requires("gxx")

#: Writes what it is told to the file named by PRETENDED_LOG; a device of number 7 is in error.
DRIVER = r"""
#include <cstdio>
#include <cstdlib>
static int told(const char* format, long long a = 0, long long b = 0, long long c = 0) {
  std::FILE* file = std::fopen(std::getenv("PRETENDED_LOG"), "a");
  std::fprintf(file, format, a, b, c);
  std::fputc('\n', file);
  std::fclose(file);
  return 0;
}
extern "C" {
int cuInit(unsigned) { return told("init"); }
int cuDeviceGet(int* device, int ordinal) { *device = ordinal; return 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(0x100000000LL + device);
  return told("retain %lld", device);
}
int cuCtxPushCurrent_v2(void* context) { return told("push %llx", (long long)context); }
int cuCtxPopCurrent_v2(void** context) { *context = nullptr; return told("pop"); }
int cuThreadExchangeStreamCaptureMode(int* mode) {
  told("capture mode %lld", *mode);
  *mode = *mode == 2 ? 0 : 2;
  return 0;
}
int cuModuleLoadData(void** module, const char* image) {
  if (image[0] == '!') return 209;
  *module = reinterpret_cast<void*>(0x200000000LL);
  return told("load %lld", image[0]);
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = reinterpret_cast<void*>(0x300000000LL);
  return told("function %lld of %llx", name[0], (long long)module);
}
int cuFuncSetAttribute(void*, int which, int value) { return told("set %lld %lld", which, value); }
int cuGetErrorString(int code, const char** text) {
  *text = code == 209 ? "no kernel image" : "an illegal memory access was encountered";
  return 0;
}
int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned,
                   unsigned, unsigned shared, void* stream, void** parameters, void**) {
  told("launch %llx grid %lld %lld", (long long)function, x, y);
  told("threads %lld shared %lld stream %llx", threads, shared, (long long)stream);
  told("values %llx %lld %lld", *(long long*)parameters[0], *(long long*)parameters[1],
       *(int*)parameters[2]);
  told("scratch %llx %llx", *(long long*)parameters[3], *(long long*)parameters[4]);
  return stream == reinterpret_cast<void*>(7) ? 700 : 0;
}
}
"""
ROW = {
    "object": "scale.cubin", "size": 4, "sha256": hashlib.sha256(b"code").hexdigest(),
    "symbol": "scale", "parameters": ("*fp32", "i64", "i32"), "scratch": 2, "threads": 128,
    "shared": 65536,
}  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.cc").write_text(DRIVER)
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-o", folder / "libpretended.so", folder / "driver.cc"],
        check=True,
    )
    return str(folder / "libpretended.so")


@pytest.fixture
def log(tmp_path, monkeypatch):
    path = tmp_path / "log"
    monkeypatch.setenv("PRETENDED_LOG", str(path))
    return path


def module(folder, image=b"code", **changes):
    (folder / "scale.cubin").write_bytes(image)
    listing = Listing(schema_version=1, kernels={"scale": KernelRow(**ROW | changes)})
    return TritonModule(folder, listing)


def test_what_the_driver_is_told(library, log, tmp_path):
    scale = module(tmp_path).scale
    scale.launch(_Driver(library), (3, 0x500000000), (2**31 - 1, 65535), (2**47, -(2**40), -1))
    assert log.read_text().splitlines() == [
        "init",
        "retain 3",
        "push 100000003",
        "capture mode 2",
        f"load {ord('c')}",
        f"function {ord('s')} of 200000000",
        "set 8 65536",
        "capture mode 0",
        "launch 300000000 grid 2147483647 65535",
        "threads 128 shared 65536 stream 500000000",
        f"values 800000000000 {-(2**40)} -1",
        "scratch 0 0",
        "pop",
    ]


def test_an_object_is_loaded_once_a_device(library, log, tmp_path):
    scale, driver = module(tmp_path).scale, _Driver(library)
    for index in (0, 1, 0, 1):
        scale.launch(driver, (index, 0), (1, 1), (1, 2, 3))
    lines = log.read_text().splitlines()
    assert sum(line.startswith("load") for line in lines) == 2
    assert sum(line.startswith("launch") for line in lines) == 4
    assert [line for line in lines if line.startswith("push")] == [
        "push 100000000", "push 100000001",
    ] * 2  # fmt: skip


def test_an_error_of_the_driver_names_kernel_and_device(library, log, tmp_path):
    scale = module(tmp_path).scale
    with pytest.raises(LaunchError) as raised:
        scale.launch(_Driver(library), (1, 7), (1, 1), (1, 2, 3))
    assert isinstance(raised.value, RuntimeError)
    assert str(raised.value) == (
        "scale on cuda:1: an illegal memory access was encountered (error 700)"
    )
    assert log.read_text().splitlines()[-1] == "pop", "the context is given back"


@pytest.mark.usefixtures("log")
def test_an_object_that_the_driver_refuses(library, tmp_path):
    scale = module(tmp_path, image=b"!").scale
    with pytest.raises(LoadError, match=r"scale\.cubin: .*no kernel image \(error 209\)"):
        scale.launch(_Driver(library), (0, 0), (1, 1), (1, 2, 3))
    Path(tmp_path, "scale.cubin").unlink()
    with pytest.raises(LoadError, match="No such file"):
        scale.launch(_Driver(library), (0, 0), (1, 1), (1, 2, 3))


@pytest.mark.usefixtures("log")
def test_a_wrong_number_of_arguments_never_reaches_the_driver(library, tmp_path):
    with pytest.raises(TypeError, match="scale takes 3 arguments, 2 were given"):
        module(tmp_path).scale.launch(_Driver(library), (0, 0), (1, 1), (1, 2))


def test_a_machine_without_a_driver_says_so():
    with pytest.raises(ToolchainError, match="Install the NVIDIA driver"):
        _Driver("libgone.so.1")


def tensors(case):
    """Return an ``out`` and an ``x`` that do not fit together."""
    x = torch.zeros(3, 8)
    return {
        "dtype": lambda: (torch.zeros(3, 4, dtype=torch.int64), x.long()),
        "misaligned": lambda: (torch.zeros(1, 4), _misaligned()),
        "other dtype": lambda: (torch.zeros(3, 4, dtype=torch.float16), x),
        "scalar": lambda: (torch.zeros(()), torch.zeros(())),
        "odd": lambda: (torch.zeros(3, 3), torch.zeros(3, 7)),
        "dims": lambda: (torch.zeros(12), x),
        "leading": lambda: (torch.zeros(2, 4), x),
        "width": lambda: (torch.zeros(3, 5), x),
        "expanded": lambda: (torch.zeros(1, 4).expand(3, 4), x),
        "strided": lambda: (torch.zeros(3, 4), torch.zeros(3, 16)[:, ::2]),
        "three levels": lambda: (torch.zeros(2, 2, 2, 4), torch.zeros(3, 3, 3, 8)[:2, :2, :2]),
    }[case]()


def _misaligned():
    """Return numbers that start two bytes past a multiple of their size."""
    buffer = (ctypes.c_char * 64)()
    offset = 4 - ctypes.addressof(buffer) % 4 + 2
    return torch.frombuffer(buffer, dtype=torch.float32, count=8, offset=offset).view(1, 8)


@pytest.mark.parametrize(
    "case",
    ["dtype", "misaligned", "other dtype", "scalar", "odd", "dims", "leading", "width", "expanded",
     "strided", "three levels"],
)  # fmt: skip
def test_triton_refuses_what_the_binding_refuses_in_its_words(case):
    out, x = tensors(case)
    with pytest.raises((TypeError, ValueError)) as bound:
        kernlib.silu_and_mul(x, out=out)
    with pytest.raises(type(bound.value)) as launched:
        _activation_triton.silu_and_mul(None, out, x)
    assert str(launched.value) in str(bound.value)


class Noted:
    """A kernel that computes what it is asked to, from what it is passed."""

    def function(self, name):
        self.name = name
        return self.launch

    def launch(self, device, grid, out, x, width, *rows):
        del device
        self.grid = grid
        kind = {"fp32": ctypes.c_float}[self.name.split("_")[3]]
        count, inner, outer_stride, inner_stride = rows[4:]
        _, out_inner, out_outer_stride, out_inner_stride = rows[:4]
        for row in range(count):
            source = row // inner * outer_stride + row % inner * inner_stride
            target = row // out_inner * out_outer_stride + row % out_inner * out_inner_stride
            x_row = (kind * (2 * width)).from_address(x + 4 * source)
            out_row = (kind * width).from_address(out + 4 * target)
            values = torch.tensor(x_row[:], dtype=torch.float64)
            out_row[:] = reference.silu_and_mul(values[None])[0].tolist()


@pytest.mark.parametrize("view", reference.VIEWS)
@pytest.mark.parametrize("shape", [(7,), (1, 1), (3, 5), (2, 3, 8), (2, 2, 2, 24), (3, 600)])
def test_rows_and_grid_that_a_launch_is_given(view, shape):
    *lead, width = shape
    x = reference.fresh((*lead, 2 * width), torch.float32, "cpu", view)
    out = reference.poisoned(shape, torch.float32, "cpu", view)
    kernel = Noted()
    _activation_triton.silu_and_mul(kernel, out, x)
    reference.assert_rounded(out, reference.silu_and_mul(x))
    block = int(kernel.name.rpartition("_")[2])
    assert block * kernel.grid[1] >= width > block * (kernel.grid[1] - 1)


def test_nothing_is_launched_for_nothing():
    for shape in ((0, 16), (3, 0), (2, 0, 8)):
        _activation_triton.silu_and_mul(
            None, torch.zeros(*shape[:-1], shape[-1] // 2), torch.zeros(shape)
        )

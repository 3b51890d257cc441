"""A bad page id faults, as it does in real life; nothing catches it on the way."""

import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.requires("gxx")

#: The page is 2^26 pages, about a terabyte, past the cache.
DECODE = """
import torch
from kernlib import PagedDecode
int32 = torch.int32
decode = PagedDecode(4, 2, 64, 16)
indices = torch.tensor([0, 1, {page}, 3], dtype=int32)
decode.plan(torch.tensor([0, 2, 4], dtype=int32), indices, torch.tensor([16, 3], dtype=int32))
decode.run(torch.zeros(2, 4, 64), torch.zeros(4, 2, 2, 16, 64))
"""
APPEND = """
import torch
from kernlib import append_paged_kv
one = torch.ones(1, 2, 64)
lists = [[0, {page}], [0, 1, 2], [5, 6], [1], [4]]
tensors = [torch.tensor(values, dtype=torch.int32) for values in lists]
append_paged_kv(one, one, torch.zeros(4, 2, 2, 16, 64), *tensors)
"""


def run(code, page, **variables):
    command = [sys.executable, "-c", code.format(page=page)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120,
        env=os.environ | variables,
    )  # fmt: skip


@pytest.mark.parametrize("code", [DECODE, APPEND], ids=["decode", "append"])
def test_a_page_id_beyond_the_cache_ends_the_process(code):
    healthy = run(code, 2)
    assert healthy.returncode == 0, healthy.stderr
    assert run(code, 2**26).returncode == -signal.SIGSEGV


@pytest.mark.parametrize("mode", ["lineinfo", "debug"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_fault_has_the_line_of_the_read(repository, mode, dtype):
    """An optimised read must not take the line of an address computation or of its use."""
    kernel = (repository / "include/kernlib/paged_decode_cpu.h").read_text().splitlines()
    (line,) = [number for number, text in enumerate(kernel, 1) if "// reads the page" in text]
    code = f"import torch; torch.set_default_dtype(torch.{dtype})\n{DECODE}"
    trace = run(code, 2**26, KERNLIB_JIT_MODE=mode).stderr
    assert "Segfault" in trace, "tvm-ffi prints a trace of the native frames"
    innermost = next(text for text in trace.splitlines() if "kernlib/" in text and "File" in text)
    assert f'paged_decode_cpu.h", line {line},' in innermost

"""A GPU's core dump gives kernel, block, thread and line; what cannot be read is stated."""

import pytest

from kernlib.replay import _coredump
from kernlib.replay._coredump import (
    core_dump_environment,
    find_operand,
    parse_core_dump,
    parse_lanes,
    read_core_dump,
)

DUMPED = """Opening GPU coredump: /tmp/run/gpu-core.77
[New Thread 77]

CUDA Exception: Warp Illegal Address
The exception was triggered at PC 0x7f31abd9d4c0  load_key (k.cuh:24)
[Current focus set to CUDA kernel 0, grid 5, block (5,0,0), thread (32,0,0), device 0, sm 8, lane 0]
#0  0x00007f31abd9d500 in faultlib::TakeRows::operator() (this=0x7f31, i=8) at /ws/include/k.cuh:25
25\t    to[i] = value * scale;
Line 24 of "/ws/include/k.cuh" starts at address 0x7f31abd9d4a0 <load+32> and ends at 0x7f31abd9d4c0.
#0  0x00007f31abd9d500 in faultlib::TakeRows::operator() (this=0x7f31, i=8) at /ws/include/k.cuh:25
#1  each<faultlib::TakeRows><<<(1,1,1),(128,1,1)>>> (task=...) at /ws/csrc/k.cu:14
  Kernel Parent Dev Grid Status   SMs Mask GridDim  BlockDim Invocation
*      0      -   0    5 Active 0x00000100 (1,1,1) (128,1,1) each(task=...)
"""  # noqa: E501 - as it is printed


#: As cuda-gdb 13.0 prints it of code with line tables, addresses shortened.
INLINED = """Opening GPU coredump: /tmp/run/gpu-core.4312
[Current focus set to CUDA kernel 0, grid 2, block (0,0,0), thread (0,0,0), device 0, sm 124, lane 0]

CUDA Exception: Warp Misaligned Address
The exception was triggered at PC 0x7f72c37a1710  void each<Misalignment>(Misalignment)  (selftest.h:65 in _ZNK12MisalignmentclEl inlined from selftest.cuh:14)
#0  each<Misalignment><<<(1,1,1),(64,1,1)>>> () at /ws/include/selftest.h:66 in _ZNK12MisalignmentclEl inlined from selftest.cuh:14
66\t    out[i] = pair.first + pair.second;
Line 65 of "/ws/include/selftest.h" starts at address 0x7f72c37a16f0 <_Z4each+1008> and ends at 0x7f72c37a1720 <_Z4each+1056> inlined from _ZNK12MisalignmentclEl at line 14 of selftest.cuh.
*> 0x7f72c37a1710 <_Z4each+1040>:\tLDG.E.64 R6,desc[UR6][R6.64]
#0  each<Misalignment><<<(1,1,1),(64,1,1)>>> () at /ws/include/selftest.h:66 in _ZNK12MisalignmentclEl inlined from selftest.cuh:14
  Kernel Parent Dev Grid Status SMs Mask GridDim BlockDim Invocation
*      0      -   0    2 Active 0x0010 (1,1,1) (64,1,1) each<Misalignment>()
"""  # noqa: E501


def test_what_was_inlined_has_the_line_that_it_was_inlined_at():
    fault = parse_core_dump(INLINED)
    assert fault.kind == "Warp Misaligned Address"
    assert [(f.function, f.file, f.line) for f in fault.frames] == [
        ("each<Misalignment>", "/ws/include/selftest.h", 65),
        ("each<Misalignment>", "selftest.cuh", 14),
    ]
    assert find_operand(INLINED) == (6, 0)


def test_a_failed_assertion_is_an_exception_too():
    text = INLINED.replace("CUDA Exception: Warp Misaligned Address", "Assertion failed.")
    assert parse_core_dump(text).kind == "Assertion failed"


def test_a_dump_gives_kernel_block_thread_and_the_faulting_line():
    fault = parse_core_dump(DUMPED)
    assert (fault.kind, fault.tool) == ("Warp Illegal Address", "GPU core dump")
    assert fault.thread == "block (5,0,0) thread (32,0,0)"
    assert [(f.function, f.file, f.line) for f in fault.frames] == [
        ("faultlib::TakeRows::operator()", "/ws/include/k.cuh", 24),
        ("each<faultlib::TakeRows>", "/ws/csrc/k.cu", 14),
    ]
    assert fault.address is None


def test_without_the_line_of_the_instruction_the_place_of_the_exception_counts():
    lines = [line for line in DUMPED.splitlines() if not line.startswith("Line ")]
    fault = parse_core_dump("\n".join(lines))
    assert (fault.frames[0].file, fault.frames[0].line) == ("/ws/include/k.cuh", 24)


def test_a_release_build_has_functions_without_lines():
    text = (
        "Program terminated with signal CUDA_EXCEPTION_14, Warp Illegal Address.\n"
        "[Current focus set to CUDA kernel 0, grid 1, block (0,0,0), thread (0,0,0), device 0]\n"
        "Illegal access to address (@global)0x7f2a00000040 detected.\n"
        "#0  0x00007f31 in each<faultlib::Put><<<(1,1,1),(128,1,1)>>> ()\n"
    )
    fault = parse_core_dump(text)
    assert (fault.kind, fault.address) == ("Warp Illegal Address", 0x7F2A00000040)
    assert [(f.function, f.line) for f in fault.frames] == [("each<faultlib::Put>", 0)]


@pytest.mark.parametrize("text", ["", "no such file\n", "Opening GPU coredump: x\n"])
def test_output_without_an_exception_is_no_fault(text):
    assert parse_core_dump(text) is None


def test_a_dump_without_a_reader_is_stated(tmp_path, monkeypatch):
    assert read_core_dump(tmp_path) is None
    (tmp_path / "gpu-core.77").write_bytes(b"dump")
    monkeypatch.setattr(_coredump, "find_cuda_gdb", lambda: None)
    fault = read_core_dump(tmp_path)
    assert fault.frames == ()
    assert fault.note == "gpu-core.77 was written, but cuda-gdb was not found to read it"


def test_a_reader_that_says_nothing_useful_is_stated_and_kept(tmp_path, monkeypatch):
    (tmp_path / "gpu-core.77").write_bytes(b"dump")
    monkeypatch.setattr(_coredump, "find_cuda_gdb", lambda: "/bin/echo")
    fault = read_core_dump(tmp_path)
    assert fault.note == "cuda-gdb names no exception in gpu-core.77"
    assert "target cudacore" in (tmp_path / "gpu-core.txt").read_text()


def test_what_a_reader_prints_need_be_no_text(tmp_path, monkeypatch):
    """A debugger prints strings of the dump, and paths, as the bytes they are."""
    printed = DUMPED.encode().replace(b"[New Thread 77]", b"[New Thread \xff\xfe\x80]")
    (tmp_path / "printed").write_bytes(printed)
    reader = tmp_path / "cuda-gdb"
    reader.write_text(f"#!/bin/sh\ncat {tmp_path}/printed\n")
    reader.chmod(0o700)
    (tmp_path / "gpu-core.77").write_bytes(b"dump")
    monkeypatch.setattr(_coredump, "find_cuda_gdb", lambda: str(reader))
    fault = read_core_dump(tmp_path)
    assert (fault.kind, fault.frames[0].line) == ("Warp Illegal Address", 24)
    assert "New Thread" in (tmp_path / "gpu-core.txt").read_text(encoding="utf-8")


def test_a_dump_is_asked_for_without_memory_and_in_the_runs_own_folder(tmp_path):
    asked = dict(core_dump_environment(tmp_path))
    assert asked["CUDA_ENABLE_COREDUMP_ON_EXCEPTION"] == "1"
    assert asked["CUDA_COREDUMP_FILE"].startswith(str(tmp_path))
    assert "skip_global_memory" in asked["CUDA_COREDUMP_GENERATION_FLAGS"]


@pytest.mark.parametrize(
    ("instruction", "operand"),
    [
        ("LDG.E R7, desc[UR4][R2.64]", (2, 0)),
        ("LDG.E.128 R4, desc[UR6][R10.64+0x10]", (10, 16)),
        ("STG.E desc[UR4][R2.64+-0x4], R5", (2, -4)),
        ("LD.E R0, [R6.64]", (6, 0)),
        ("LDS R0, [R6+0x4]", None),
        ("LDG.E R7, desc[UR4][R2.64+UR8]", None),
        ("EXIT", None),
    ],
)
def test_the_address_is_in_the_registers_of_the_instruction(instruction, operand):
    output = DUMPED + f"*> 0x7f31abd9d4c0 <_Z4eachI8TakeRowsEvT_+320>:\t{instruction} \n"
    assert find_operand(output) == operand
    assert find_operand(DUMPED) is None


def test_each_lane_of_the_warp_is_a_candidate():
    """An exception is the warp's: the lane in focus may be innocent."""
    focus = "[Switching focus to CUDA kernel 0, grid 5, block (5,0,0), thread ({},0,0), device 0]"
    output = "\n".join(
        [
            focus.format(32), "lane 0 100 7f2a",
            focus.format(33), "lane 1 fffffffc 7f2a",
            "Invalid coordinates. CUDA focus unchanged.", "lane 2 fffffffc 7f2a",
        ]
    )  # fmt: skip
    assert parse_lanes(output, 4) == (
        (0x7F2A00000104, "block (5,0,0) thread (32,0,0)"),
        (0x7F2B00000000, "block (5,0,0) thread (33,0,0)"),
    )
    assert parse_lanes("No symbol table is loaded.\n", 0) == ()

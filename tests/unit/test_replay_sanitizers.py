"""Sanitizer reports are read as they come, also torn ones."""

import pytest

from kernlib.replay._compute_sanitizer import (
    read_compute_sanitizer,
    read_compute_sanitizer_text,
)
from kernlib.replay._sanitizers import (
    read_address_sanitizer,
    read_device_assertion,
    read_thread_sanitizer,
    read_undefined,
)

HEAP = """noise before
=================================================================
==77==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x615000db25d0 at pc 0x7fe96650b1ec
READ of size 4 at 0x615000db25d0 thread T0
    #0 0x7fe96650b1eb in load_key(float const*, long) /ws/include/kernlib/k.h:3
    #1 0x7fe96650b1eb in run /ws/csrc/k.cc:21:7
    #2 0x7fe9895d0f79  (/lib/x86_64-linux-gnu/libffi.so.8+0x6f79)
    #3 0x7fe98a55861c in _PyObject_MakeTpCall Objects/call.c:214

0x615000db25d0 is located 0 bytes to the right of 464-byte region [0x615000db2400,0x615000db25d0)
allocated by thread T0 here:
    #0 0x7fe98aab89cf in posix_memalign (/lib/libasan.so.8+0xb89cf)
"""

WILD = """==77==ERROR: AddressSanitizer: SEGV on unknown address 0x61ad22b6c440 (pc 0x7efc bp 0x7f)
==77==The signal is caused by a READ memory access.
    #0 0x7efc8ccb71d2 in run /ws/csrc/k.cc:2
"""

UNDEFINED = """csrc/k.cc:3:41: runtime error: signed integer overflow: 5 + 2147483647
    #0 0x7f5ab9e8220d in wide /ws/csrc/k.cc:3
    #1 0x7f5add33cf79  (/lib/x86_64-linux-gnu/libffi.so.8+0x6f79)
"""

RECORD = """  <record>
    <kind>Precise</kind>
    <level>Error</level>
    <who>
      <threadIdx><x>3</x><y>0</y><z>0</z></threadIdx>
      <blockIdx><x>5</x><y>1</y><z>0</z></blockIdx>
    </who>
    <what>
      <text>Invalid __global__ read of size 4 bytes is out of bounds</text>
      <size>4</size>
      <error>out of bounds</error>
      <address>0x7f7bca801000</address>
    </what>
    <where><func>load_key&lt;float&gt;</func><path>/ws/include/kernlib/k.cuh</path><line>4</line></where>
    <deviceStack>
      <frame><func>kernel</func><path>/ws/csrc/k.cu</path><line>30</line></frame>
    </deviceStack>
    <hostStack><frame><func>launch</func><path>/ws/csrc/k.cu</path><line>55</line></frame></hostStack>
  </record>
"""
MEMCHECK = f"<?xml version='1.0'?>\n<ComputeSanitizerOutput>\n{RECORD}{RECORD}"


#: Functions and paths with blanks in them, and a path that no folder comes before.
BLANKS = """==77==ERROR: AddressSanitizer: SEGV on unknown address 0x61ad22b6c440 (pc 0x7efc)
    #0 0x7f98 in faultlib::Take::operator()(long) const /my ws/include/elements.h:24
    #1 0x7f98 in (anonymous namespace)::run(Take const&) /ws/csrc/k.cc:21:7
    #2 0x7f98 in operator()<long int> ../sysdeps/start.c:58
"""


def test_a_heap_overflow_gives_kind_access_place_and_stack():
    fault = read_address_sanitizer(HEAP)
    assert fault.kind == "heap-buffer-overflow"
    assert fault.text == (
        "heap-buffer-overflow: read of 4 bytes, 0 bytes to the right of 464-byte region"
    )
    assert fault.address == 0x615000DB25D0
    assert (fault.access, fault.size) == ("read", 4)
    assert fault.region == (0x615000DB2400, 0x615000DB25D0)
    first, second, third, _ = fault.frames
    assert (first.function, first.file, first.line) == (
        "load_key(float const*, long)", "/ws/include/kernlib/k.h", 3,
    )  # fmt: skip
    assert (second.file, second.line) == ("/ws/csrc/k.cc", 21)
    assert (third.file, third.line) == ("", 0)


def test_a_wild_read_is_a_segv_with_its_direction():
    fault = read_address_sanitizer(WILD)
    assert fault.kind == "SEGV"
    assert fault.text == "SEGV on unknown address 0x61ad22b6c440, a read"
    assert fault.frames[0].line == 2


def test_undefined_behaviour_is_read_with_its_stack():
    fault = read_undefined(UNDEFINED)
    assert fault.text.startswith("signed integer overflow")
    assert (fault.frames[0].function, fault.frames[0].line) == ("wide", 3)


def test_memcheck_gives_thread_block_and_the_inlined_function_first():
    fault = read_compute_sanitizer(MEMCHECK + "</ComputeSanitizerOutput>")
    assert fault.text == "Invalid __global__ read of size 4 bytes is out of bounds"
    assert fault.thread == "block (5,1,0) thread (3,0,0)"
    assert fault.address == 0x7F7BCA801000
    assert [(frame.file, frame.line) for frame in fault.frames] == [
        ("/ws/include/kernlib/k.cuh", 4),
        ("/ws/csrc/k.cu", 30),
    ]
    assert (fault.count, fault.access, fault.size) == (2, "read", 4)


@pytest.mark.parametrize("cut", range(0, len(MEMCHECK), 7))
def test_a_torn_memcheck_file_is_read_up_to_the_tear(cut):
    fault = read_compute_sanitizer(MEMCHECK[:cut])
    assert (fault is not None) == ("</record>" in MEMCHECK[:cut])


@pytest.mark.parametrize(
    "read",
    [
        read_address_sanitizer,
        read_undefined,
        read_thread_sanitizer,
        read_compute_sanitizer,
        read_compute_sanitizer_text,
    ],
)
def test_a_log_without_a_report_is_no_fault(read):
    assert read("all is well\n") is None
    assert read("") is None


def test_blanks_are_told_apart_in_functions_and_paths():
    """A const member function was once taken for a file called ``const /my ws/...``."""
    frames = [(f.function, f.file, f.line) for f in read_address_sanitizer(BLANKS).frames]
    assert frames == [
        ("faultlib::Take::operator()(long) const", "/my ws/include/elements.h", 24),
        ("(anonymous namespace)::run(Take const&)", "/ws/csrc/k.cc", 21),
        ("operator()<long int>", "../sysdeps/start.c", 58),
    ]


#: As g++ 12 prints it for two threads that add to one element.
RACE = """==================
WARNING: ThreadSanitizer: data race (pid=9681)
  Read of size 4 at 0x7b0400000004 by thread T2:
    #0 bump(int*) /ws/include/k.h:4 (a+0x1271)
    #1 operator() /ws/csrc/k.cc:9 (a+0x1271)
    #2 <null> <null> (libstdc++.so.6+0xd44a2)

  Previous write of size 4 at 0x7b0400000004 by main thread:
    #0 bump(int*) /ws/include/k.h:5 (a+0x12f3)

  Location is heap block of size 16 at 0x7b0400000000 allocated by main thread:
    #0 operator new[](unsigned long) ../../tsan_new_delete.cpp:70 (libtsan.so.2+0x87423)

SUMMARY: ThreadSanitizer: data race /ws/include/k.h:4 in bump(int*)
==================
"""
LINELESS = """WARNING: ThreadSanitizer: data race (pid=9681)
  Write of size 8 at 0x7b0400000f00 by thread T5:
    #0 memcpy <null> (libtsan.so.2+0x1)

SUMMARY: ThreadSanitizer: data race (libtorch.so+0x2) in at::f
"""


def test_a_race_is_told_with_both_accesses():
    fault = read_thread_sanitizer(RACE)
    assert (fault.kind, fault.tool, fault.count) == ("data race", "ThreadSanitizer", 1)
    assert fault.text == (
        "data race: read of 4 bytes, against a write by main thread at /ws/include/k.h:5"
    )
    assert [(f.function, f.file, f.line) for f in fault.frames] == [
        ("bump(int*)", "/ws/include/k.h", 4),
        ("operator()", "/ws/csrc/k.cc", 9),
        ("", "", 0),
    ]
    assert (fault.thread, fault.access, fault.size) == ("thread T2", "read", 4)
    assert (fault.address, fault.region) == (0x7B0400000004, (0x7B0400000000, 0x7B0400000010))


def test_a_race_without_a_line_gives_way_to_one_that_has_one():
    fault = read_thread_sanitizer(LINELESS + RACE)
    assert (fault.frames[0].line, fault.count) == (4, 2)
    only = read_thread_sanitizer(LINELESS)
    assert (only.frames[0].function, only.frames[0].line) == ("memcpy", 0)


HAZARD = """<ComputeSanitizerOutput>
<record><kind>Api</kind><what><text>Program hit cudaErrorX</text></what>
<hostStack><frame><func>main</func><path>/ws/a.cc</path><line>1</line></frame></hostStack></record>
<record><kind>Racecheck</kind><level>Error</level>
<what><text>Race reported between Write access at sum_rows()+0x90 and Read access</text></what>
<write><where><func>sum_rows</func><path>/ws/csrc/k.cu</path><line>41</line></where></write>
<read><where><func>sum_rows</func><path>/ws/csrc/k.cu</path><line>51</line></where></read>
</record></ComputeSanitizerOutput>
"""


def test_a_race_on_a_device_has_two_places():
    fault = read_compute_sanitizer(HAZARD)
    assert (fault.kind, fault.access, fault.count) == ("race", "write", 1)
    assert [frame.line for frame in fault.frames] == [41, 51]
    assert fault.address is None


#: As the tools' own manual shows them.
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sumKernel(int *, int *)+0x90 in /ws/b.cu:41
=========     and Read access at sumKernel(int *, int *)+0x100 in /ws/b.cu:51 [508 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
INITCHECK = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at vectorAdd(int *)+0x70 in /ws/memset_error.cu:41
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
=========     Saved host backtrace up to driver entry point at kernel launch time
=========     Host Frame: main [0x1] in a.out
=========
========= ERROR SUMMARY: 48 errors
"""
SYNCCHECK = """========= Barrier error detected. Divergent thread(s) in block.
=========     at [clone myKernel(int *, int *)] outlineSync()+0x11f0 in test.cu:42
=========     by thread (32,0,0) in block (0,0,0)
=========         Device Frame: myKernel(int *, int *)+0xe40 in test.cu:60
=========
"""
MEMCHECK_TEXT = """========= Invalid __global__ read of size 4 bytes
=========     at load(const float *)+0x70 in /ws/k.cuh:4
=========     by thread (3,0,0) in block (5,1,0)
=========     Access to 0x7f7bca801000 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f7bca800000 of size 4096 bytes
=========         Device Frame:kernel(float *)+0x40 in /ws/k.cu:30
"""


@pytest.mark.parametrize(
    ("log", "kind", "lines", "address", "thread"),
    [
        (RACECHECK, "race", [41, 51], None, ""),
        (INITCHECK, "uninitialized read", [41], 0x7F3C7EC000FC, "block (1,0,0) thread (31,0,0)"),
        (SYNCCHECK, "barrier error", [42, 60], None, "block (0,0,0) thread (32,0,0)"),
        (MEMCHECK_TEXT, "device error", [4, 30], 0x7F7BCA801000, "block (5,1,0) thread (3,0,0)"),
    ],
)
def test_what_the_tools_print_is_read_too(log, kind, lines, address, thread):
    fault = read_compute_sanitizer_text(log)
    assert (fault.kind, fault.address, fault.thread) == (kind, address, thread)
    assert [frame.line for frame in fault.frames] == lines
    assert fault.count == 1
    assert read_compute_sanitizer_text(log + "\n" + log).count == 2


def test_printed_reports_say_what_was_accessed():
    fault = read_compute_sanitizer_text(MEMCHECK_TEXT)
    assert (fault.access, fault.size) == ("read", 4)
    assert fault.region == (0x7F7BCA800000, 0x7F7BCA801000)
    assert fault.frames[0].function == "load(const float *)"
    assert "and Read access at sumKernel" in read_compute_sanitizer_text(RACECHECK).text


ASSERTION = (
    "/ws/generated/selftest-cuda/5ab3/include/kernlib/selftest.h:79: void kernlib::selftest::"
    "Assertion::operator()(signed long) const: block: [0,0,0], thread: [1,0,0] Assertion "
    "`indices[i] >= 0 && indices[i] < rows` failed.\n"
)


def test_a_failed_assertion_of_a_kernel_tells_its_line_and_thread():
    """It is printed by every build, release too."""
    fault = read_device_assertion(f"noise\n{ASSERTION}{ASSERTION}Traceback\n")
    assert (fault.text, fault.thread) == (
        "Assertion `indices[i] >= 0 && indices[i] < rows` failed",
        "block (0,0,0) thread (1,0,0)",
    )
    (frame,) = fault.frames
    assert frame.file.endswith("include/kernlib/selftest.h")
    assert (frame.line, fault.count) == (79, 2)
    assert frame.function == "void kernlib::selftest::Assertion::operator()(signed long) const"
    assert read_device_assertion("k.cc:3: int main(): Assertion `x` failed.\n") is None

"""Sanitizer reports are read as they come, also torn ones."""

import pytest

from kernlib.replay._sanitizers import read_address_sanitizer, read_memcheck, read_undefined

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
    fault = read_memcheck(MEMCHECK + "</ComputeSanitizerOutput>")
    assert fault.text == "Invalid __global__ read of size 4 bytes is out of bounds"
    assert fault.thread == "block (5,1,0) thread (3,0,0)"
    assert fault.address == 0x7F7BCA801000
    assert [(frame.file, frame.line) for frame in fault.frames] == [
        ("/ws/include/kernlib/k.cuh", 4),
        ("/ws/csrc/k.cu", 30),
    ]
    assert fault.count == 2


@pytest.mark.parametrize("cut", range(0, len(MEMCHECK), 7))
def test_a_torn_memcheck_file_is_read_up_to_the_tear(cut):
    fault = read_memcheck(MEMCHECK[:cut])
    assert (fault is not None) == ("</record>" in MEMCHECK[:cut])


@pytest.mark.parametrize("read", [read_address_sanitizer, read_undefined, read_memcheck])
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

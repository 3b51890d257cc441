"""What a handler wrote of a signal gives address, access and stack, however far it came."""

from pathlib import Path

import pytest

from kernlib.replay import _crash
from kernlib.replay._crash import CRASH_FILE, PYTHON_FILE, fault_of_crash, parse_crash, read_symbols

REPORT = """signal 11
code 2
address 0x7f2a40100000
access read
pc 0x7f2a50001234
frame 0x7f2a60000100
frame 0x7f2a60000200
frame 0x7f2a50001234
frame 0x7f2a50001301
frame 0x7f2a70000010
maps
7f2a50000000-7f2a50001000 r--p 00000000 08:01 11 {artifacts}/k e y/lib.so
7f2a50001000-7f2a50002000 r-xp 00001000 08:01 11 {artifacts}/k e y/lib.so
7f2a60000000-7f2a60001000 r-xp 00000000 08:01 12 /usr/lib/libcrash.so
7f2a70000000-7f2a70001000 rw-p 00000000 00:00 0
7f2a80000000-7f2a80001000 r-xp 00000000 08:01 13 /usr/lib/libc.so (deleted)
"""

SYMBOLS = """0x0000000000001234
faultlib::TakeRows::operator()(long) const
/ws/include/faultlib/elements.h:25
run<faultlib::TakeRows>
/ws/csrc/faults_cpu.cc:11 (discriminator 3)
0x0000000000001300
??
??:0
"""


def test_a_report_gives_access_and_stack_without_the_handlers_own_frames():
    crash = parse_crash(REPORT.format(artifacts="/ws"))
    assert (crash.signal, crash.address, crash.access) == (11, 0x7F2A40100000, "read")
    # Callers are looked up one byte before the address they return to.
    assert crash.stack == (0x7F2A50001234, 0x7F2A50001300, 0x7F2A7000000F)
    module = crash.module_of(crash.stack[0])
    assert (module.path, module.base) == ("/ws/k e y/lib.so", 0x7F2A50000000)
    assert crash.module_of(crash.stack[2]) is None


@pytest.mark.parametrize("lines", range(16))
def test_a_report_that_stops_early_is_read_up_to_there(lines):
    torn = "".join(REPORT.splitlines(keepends=True)[:lines])
    crash = parse_crash(torn)
    assert (crash is not None) == (lines > 0)
    if lines > 2:
        assert crash.address == 0x7F2A40100000


def test_inlined_functions_come_first_and_what_has_no_line_has_none():
    found = read_symbols(SYMBOLS)
    assert [(f.function, f.line) for f in found[0x1234]] == [
        ("faultlib::TakeRows::operator()(long) const", 25),
        ("run<faultlib::TakeRows>", 11),
    ]
    assert [(f.function, f.file, f.line) for f in found[0x1300]] == [("", "", 0)]


@pytest.fixture
def told(tmp_path):
    def fault(text):
        (tmp_path / CRASH_FILE).write_text(text, encoding="utf-8")
        return fault_of_crash(tmp_path, tmp_path / "ws")

    return fault


def test_a_fault_has_lines_for_kernels_and_places_for_other_libraries(told, tmp_path, monkeypatch):
    asked = []

    def symbols(module, offsets):
        asked.append((module, list(offsets)))
        return read_symbols(SYMBOLS), ""

    monkeypatch.setattr(_crash, "_symbols", symbols)
    fault = told(REPORT.format(artifacts=tmp_path / "ws"))
    assert asked == [(str(tmp_path / "ws/k e y/lib.so"), [0x1234, 0x1300])]
    assert fault.text == "SIGSEGV: a read at 0x7f2a40100000"
    assert (fault.kind, fault.access, fault.address) == ("SIGSEGV", "read", 0x7F2A40100000)
    assert [frame.line for frame in fault.frames] == [25, 11, 0, 0]
    assert fault.frames[3].function == "0x7f2a7000000f"
    bare = told(REPORT.format(artifacts="/elsewhere"))
    assert [f.function for f in bare.frames[:2]] == ["lib.so+0x1234", "lib.so+0x1300"]


PYTHON = """Fatal Python error: Segmentation fault

Current thread 0x00007fec49049b80 (most recent call first):
  File "/pkg/faultlib/_apis.py", line 24 in run
  File "/pkg/faultlib/_apis.py", line 33 in take_rows
  File "{replay}/_steps.py", line 60 in run_out
  File "{replay}/_worker.py", line 128 in _run_step

Extension modules: torch._C (total: 1)
"""


def test_pythons_own_stack_follows_down_to_the_replays(told, tmp_path):
    replay = Path(_crash.__file__).parent
    (tmp_path / PYTHON_FILE).write_text(PYTHON.format(replay=replay), encoding="utf-8")
    fault = told(REPORT.format(artifacts="/elsewhere"))
    assert [(f.function, f.file, f.line) for f in fault.frames[-2:]] == [
        ("run", "/pkg/faultlib/_apis.py", 24),
        ("take_rows", "/pkg/faultlib/_apis.py", 33),
    ]


def test_an_address_that_no_process_has_is_not_told(told):
    fault = told("signal 11\ncode 128\naccess unknown\npc 0x10\nmaps\n")
    assert (fault.address, fault.access) == (None, "")
    assert fault.text == "SIGSEGV: an access to an address that no process can have"
    assert told("signal 6\ncode -6\npc 0x10\nmaps\n").text == "SIGABRT"


def test_a_missing_tool_is_stated(told, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    fault = told(REPORT.format(artifacts=tmp_path / "ws"))
    assert "addr2line was not found" in fault.note
    assert fault.address == 0x7F2A40100000


def test_without_a_report_there_is_no_fault(tmp_path):
    assert fault_of_crash(tmp_path, tmp_path) is None


@pytest.mark.parametrize("torn", ["pc 0x", "frame 0x", "address 0x", "code -", "frame 0xzz"])
def test_a_line_that_was_cut_is_left_out(torn):
    crash = parse_crash(f"signal 11\naddress 0x30\nframe 0x7f0000000010\n{torn}")
    assert (crash.signal, crash.address, crash.stack) == (11, 0x30, (0, 0x7F000000000F))

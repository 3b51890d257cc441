"""A fault's stack is told in the labels of kernel sources, inlined functions included."""

from kernlib.replay._locate import locate, stack_text
from kernlib.replay._sanitizers import Fault, Frame


def test_the_stack_names_each_inlined_function_and_leaves_out_other_sources(tmp_path):
    root = tmp_path / "generated" / "faults-cpu" / "0a1b"
    header = root / "include" / "faultlib" / "elements.h"
    header.parent.mkdir(parents=True)
    header.write_text("one\ntwo\nconst float value = pool[from];\nfour\n")
    frames = (
        Frame("memmove", "", 0),
        Frame("TakeRows::operator()(long) const", str(header), 3),
        Frame("run<TakeRows>", str(root / "csrc/faults_cpu.cc"), 11),
        Frame("unpack_call", "/site-packages/tvm_ffi/function.h", 229),
        Frame("", str(root / "csrc/binding.cc"), 74),
    )
    fault = Fault("SIGSEGV", "", "operating system", frames)
    assert stack_text(fault, tmp_path / "generated") == [
        "TakeRows::operator()(long) const at include/faultlib/elements.h:3",
        "run<TakeRows> at csrc/faults_cpu.cc:11",
        "unknown function at csrc/binding.cc:74",
    ]
    source = locate(fault, tmp_path / "generated")
    assert (source.line, source.text) == (3, "const float value = pool[from];")
    assert [number for number, _ in source.around] == [1, 2, 3, 4]


def test_a_stack_without_kernel_sources_is_empty(tmp_path):
    fault = Fault("SIGSEGV", "", "", (Frame("f", "/usr/include/x.h", 3),))
    assert stack_text(fault, tmp_path) == []

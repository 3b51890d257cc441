"""The first real error of a log, whichever tool it came from."""

import pytest

from kernlib.jit._errors import first_error

GXX = """[1/3] cxx a.o
FAILED: [code=1] csrc_a.cc.o
/usr/bin/g++ -O3 -c /ws/csrc/a.cc -o csrc_a.cc.o
In file included from /ws/csrc/a.cc:1:
/ws/include/b.h: In function 'int g()':
/ws/include/b.h:1:24: error: 'bar' was not declared in this scope
    1 | inline int g(){ return bar; }
      |                        ^~~
/ws/csrc/a.cc:2:19: error: 'foo' was not declared in this scope
    2 | int main(){return foo;}
      |                   ^~~
ninja: build stopped: subcommand failed.
"""
NVCC = """FAILED: csrc_b.cu.o
/cuda/bin/nvcc -O3 -c /ws/csrc/b.cu -o csrc_b.cu.o
/ws/csrc/b.cu(3): warning #177-D: variable "x" was declared but never referenced
/ws/csrc/b.cu(5): error: identifier "foo" is undefined
  __attribute__((global)) void k(){ foo(); }
                                    ^

1 error detected in the compilation of "/ws/csrc/b.cu".
ninja: build stopped: subcommand failed.
"""
LINKER = """FAILED: [code=1] a.so
/usr/bin/g++ a.o -o a.so -shared -lnothing
/usr/bin/ld: cannot find -lnothing: No such file or directory
collect2: error: ld returned 1 exit status
ninja: build stopped: subcommand failed.
"""


@pytest.mark.parametrize(
    ("log", "first", "last"),
    [
        (GXX, "/ws/include/b.h:1:24: error: 'bar' was", "^~~"),
        (NVCC, '/ws/csrc/b.cu(5): error: identifier "foo"', "^"),
        (LINKER, "/usr/bin/ld: cannot find -lnothing", "No such file or directory"),
        ("x\na.cc:1:10: fatal error: gone.h: No such file\n", "a.cc:1:10: fatal", "No such file"),
        ("nvcc fatal   : Unknown option '--bogus'\n", "nvcc fatal", "'--bogus'"),
        ("/usr/bin/ld: a.o: in function `f':\na.cc:(.text+0x5): undefined reference to `h()'\n",
         "a.cc:(.text+0x5): undefined", "`h()'"),
        ("/usr/bin/ld: warning: odd\n/usr/bin/ld: a.o: recompile with -fPIC\ncollect2: error: ld\n",
         "/usr/bin/ld: a.o: recompile", "-fPIC"),
        ("/usr/bin/ld: b.o: in function `f()':\nb.cc:(.text+0x0): multiple definition of `f()'\n",
         "b.cc:(.text+0x0): multiple", "`f()'"),
        ("cc1plus: error: unrecognized option\n", "cc1plus: error", "option"),
        ("one\ntwo\nthree\nfour\n", "two", "four"),
        ("", "the compiler said nothing", "nothing"),
    ],
)  # fmt: skip
def test_the_first_error_of_a_log(log, first, last):
    found = first_error(log)
    assert found.startswith(first)
    assert found.endswith(last)


def test_one_error_and_not_the_next():
    assert "foo" not in first_error(GXX)
    assert "return bar" in first_error(GXX)

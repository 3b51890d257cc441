"""A fatal signal is told, wherever it comes from, and ends the process as it did before."""

import signal

import pytest

from kernlib import jit
from kernlib._crash_handler import crash_spec
from kernlib.config import Mode, get_config
from kernlib.replay._crash import fault_of_crash

pytestmark = pytest.mark.requires("gxx")

PROGRAM = """
import ctypes, os, signal, threading
from pathlib import Path
from kernlib.replay._catch import catch_signals
assert catch_signals(Path({folder!r})) == ""
def here():
    {code}
here()
"""
THREAD = "threading.Thread(target=lambda: ctypes.string_at(48)).start(); threading.Event().wait(60)"


@pytest.fixture
def end(server, tmp_path):
    """Return a function that runs a line in a child and returns its end and what it told."""

    def run(code, **variables):
        done = server.run(PROGRAM.format(folder=str(tmp_path), code=code), **variables)
        fault = fault_of_crash(tmp_path, jit.artifacts_dir(get_config()))
        return done, fault

    return run


@pytest.mark.parametrize(
    ("code", "number", "address", "access"),
    [
        ("ctypes.string_at(48)", signal.SIGSEGV, 48, "read"),
        ("ctypes.memset(64, 0, 1)", signal.SIGSEGV, 64, "write"),
        ("ctypes.string_at(1 << 62, 1)", signal.SIGSEGV, None, ""),
        ("os.kill(os.getpid(), signal.SIGBUS)", signal.SIGBUS, None, ""),
        ("os.abort()", signal.SIGABRT, None, ""),
    ],
)
def test_a_signal_is_told_and_ends_the_process(end, code, number, address, access):
    done, fault = end(code)
    assert done.status == -number
    assert (fault.kind, fault.address, fault.access) == (number.name, address, access)
    line = PROGRAM.splitlines().index("    {code}") + 1
    assert ("here", "<program>", line) in [(f.function, f.file, f.line) for f in fault.frames]


def test_a_thread_of_its_own_is_told_too(end):
    done, fault = end(THREAD)
    assert done.status == -signal.SIGSEGV
    assert (fault.address, fault.access) == (48, "read")


def test_a_stack_that_overflowed_is_told_too(end):
    code = "import sys; sys.setrecursionlimit(1 << 30); kind = ctypes.CFUNCTYPE(None)"
    done, fault = end(f"{code}; again = kind(lambda: again()); again()")
    assert done.status == -signal.SIGSEGV
    assert fault.access == "write"


def test_a_handler_that_cannot_be_built_is_stated(server, tmp_path):
    program = """
    from pathlib import Path
    from kernlib.replay._catch import catch_signals
    print(catch_signals(Path(".")))
    """.replace("\n    ", "\n")
    done = server.run(program, KERNLIB_JIT_DISABLE="1", KERNLIB_WORKSPACE=tmp_path)
    assert done.status == 0, done.stderr
    assert done.stdout.startswith("the address and the line of a signal cannot be told: crash-cpu:")


def test_the_handler_is_built_as_it_is_whatever_mode_kernels_have():
    choice = jit.KernelChoice(spec=crash_spec(), target="cpu")
    kernel = jit.load(choice, get_config().replace(jit_mode=Mode.DEBUG), Mode.RELEASE)
    assert kernel.artifact.record.mode == Mode.RELEASE

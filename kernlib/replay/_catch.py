"""Has the process say what ended it."""

from __future__ import annotations

import ctypes
import faulthandler
import signal
from typing import TYPE_CHECKING

from kernlib import jit
from kernlib._crash_handler import crash_spec
from kernlib.config import Mode, get_config
from kernlib.errors import KernlibError
from kernlib.replay._crash import CRASH_FILE, PYTHON_FILE

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["catch_signals"]

_FATAL = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)


def catch_signals(folder: Path) -> str:
    """Have fatal signals told in ``folder``; return why that is not so, or an empty text.

    It comes after the loading of tvm-ffi, which installs a handler of its own. Under a sanitizer
    nothing is done: its report says more.
    """
    process = ctypes.CDLL(None)
    if hasattr(process, "__asan_init") or hasattr(process, "__tsan_init"):
        return ""
    choice = jit.KernelChoice(spec=crash_spec(), target="cpu", reason="tells what ends a replay")
    try:
        kernel = jit.load(choice, get_config(), Mode.RELEASE)
    except KernlibError as error:
        problem = str(error).splitlines()[0]
        return f"the address and the line of a signal cannot be told: {problem}"
    _catch_in_python(folder)
    kernel.function("install")(str(folder / CRASH_FILE))
    return ""


def _catch_in_python(folder: Path) -> None:
    """Have Python tell its own stack, after the handler that is installed next has told the rest.

    What tvm-ffi has installed is taken away: it would format a stack for seconds.
    """
    for number in _FATAL:
        signal.signal(number, signal.SIG_DFL)
    faulthandler.enable((folder / PYTHON_FILE).open("wb"), all_threads=False)

"""Flags of nvcc, and of the host compiler beside it."""

from __future__ import annotations

from kernlib.config import Mode
from kernlib.errors import SpecError
from kernlib.jit._target import gencode

__all__ = ["compile_flags", "link_flags"]

#: ``-lineinfo`` leaves the machine code as it is; ``-G`` does not.
_BY_MODE = {
    Mode.RELEASE: ("-O3",),
    Mode.LINEINFO: ("-O3", "-lineinfo"),
    Mode.DEBUG: ("-O0", "-g", "-G"),
}


def compile_flags(name: str, mode: Mode, target: str) -> tuple[str, ...]:
    """Return what every ``.cu`` unit is compiled with.

    Raises SpecError for the modes that only the CPU has.
    """
    if mode not in _BY_MODE:
        raise SpecError(
            name, f"mode {mode} is for the CPU; on CUDA build lineinfo and run compute-sanitizer"
        )
    # Without -ccbin nvcc takes whatever g++ is on PATH, and the record does not know it.
    host = ("-ccbin", "{cxx}", "-Xcompiler", "-fPIC")
    return ("-std=c++17", *host, "-gencode", gencode(target), *_BY_MODE[mode])


def link_flags() -> tuple[str, ...]:
    """Return what a CUDA library is linked with besides the host's flags.

    The runtime is linked in, so that no version of it need be on the machine that loads the
    library. The driver is not: a build machine may have none.
    """
    return ("-L{cuda}/lib64", "-L{cuda}/lib", "-lcudart_static", "-lpthread", "-ldl", "-lrt")

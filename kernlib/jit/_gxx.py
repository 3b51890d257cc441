"""Flags of the host compiler."""

from __future__ import annotations

from pathlib import PurePath

from kernlib.config import Mode

__all__ = ["compile_flags", "is_clang", "link_flags"]

_SANITIZERS = {
    Mode.SANITIZE: "-fsanitize=address,undefined",
    Mode.UNDEFINED: "-fsanitize=undefined",
    Mode.THREAD: "-fsanitize=thread",
}
#: Version 5, the default, has addr2line of binutils 2.40 give a header's line to the unit.
_DEBUG_FORMAT = "-gdwarf-4"
_UNOPTIMISED = ("-O0", _DEBUG_FORMAT, "-g")
_CHECKED = (*_UNOPTIMISED, "-fno-omit-frame-pointer")

#: lineinfo adds line tables and nothing else: the machine code is that of release. sanitize does
#: not optimise, since an optimised sanitized build reports the line of the caller it inlined into.
_BY_MODE = {
    Mode.RELEASE: ("-O3",),
    Mode.LINEINFO: ("-O3", _DEBUG_FORMAT, "-g1"),
    Mode.DEBUG: _UNOPTIMISED,
    Mode.SANITIZE: (*_CHECKED, _SANITIZERS[Mode.SANITIZE], "-fno-sanitize-recover=undefined"),
    Mode.UNDEFINED: (*_CHECKED, _SANITIZERS[Mode.UNDEFINED], "-fno-sanitize-recover=undefined"),
    Mode.THREAD: (*_CHECKED, _SANITIZERS[Mode.THREAD]),
}


def compile_flags(mode: Mode) -> tuple[str, ...]:
    """Return what every C++ unit is compiled with."""
    return ("-std=c++17", "-fPIC", "-Wall", *_BY_MODE[mode])


def is_clang(cxx: str) -> bool:
    """Return whether a compiler is clang, by its name: the flags must be known without it."""
    return "clang" in PurePath(cxx).name


def link_flags(mode: Mode, *, clang: bool = False) -> tuple[str, ...]:
    """Return what every library is linked with; tvm-ffi is in the process that loads it.

    A symbol that nothing defines is an error of the build: bound lazily, it would end the process
    at the first call. A sanitizer's runtime may come with the process, so there the load fails.
    """
    complete: tuple[str, ...] = ("-Wl,-z,defs",)
    if mode.instruments:
        complete = ("-Wl,-z,now", _SANITIZERS[mode])
        if clang:
            complete += ("-shared-libsan",)  # its own default is a runtime inside the program
    return ("-shared", *complete, "-L{tvm_ffi}/lib", "-ltvm_ffi")

"""Flags of the host compiler."""

from __future__ import annotations

from pathlib import PurePath

from kernlib.config import Mode

__all__ = ["compile_flags", "is_clang", "link_flags"]

_SANITIZERS = "-fsanitize=address,undefined"

#: lineinfo adds line tables and nothing else: the machine code is that of release. sanitize does
#: not optimise, since an optimised sanitized build reports the line of the caller it inlined into.
_BY_MODE = {
    Mode.RELEASE: ("-O3",),
    Mode.LINEINFO: ("-O3", "-g1"),
    Mode.DEBUG: ("-O0", "-g"),
    Mode.SANITIZE: (
        "-O0", "-g", "-fno-omit-frame-pointer", _SANITIZERS, "-fno-sanitize-recover=undefined",
    ),
}  # fmt: skip


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
    sanitize = mode is Mode.SANITIZE
    complete: tuple[str, ...] = ("-Wl,-z,now", _SANITIZERS) if sanitize else ("-Wl,-z,defs",)
    if sanitize and clang:
        complete += ("-shared-libasan",)  # its own default is a runtime inside the program
    return ("-shared", *complete, "-L{tvm_ffi}/lib", "-ltvm_ffi")

"""Finds the sanitizers that stand in front of a child."""

from __future__ import annotations

import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernlib.config import Mode

if TYPE_CHECKING:
    from kernlib.config import Config

__all__ = ["Tool", "tool_for", "tool_named"]

#: Exit status of a child that a sanitizer ended; no program of ours uses it.
SANITIZER_EXIT = 86

_ADDRESS_OPTIONS = {
    "detect_leaks": 0,  # Python keeps what it allocated until the end
    "detect_odr_violation": 0,  # torch repeats symbols in its libraries
    "verify_asan_link_order": 0,
    "alloc_dealloc_mismatch": 0,
    "exitcode": SANITIZER_EXIT,
    "abort_on_error": 0,
    # 2: libraries that install handlers of their own, as tvm-ffi does, may not take them away.
    "handle_segv": 2,
    "handle_sigbus": 2,
    "handle_sigfpe": 2,
    "handle_sigill": 2,
    "handle_abort": 2,
    "symbolize": 1,
    "malloc_context_size": 1,  # where a block was allocated is not told: only what left it
    "protect_shadow_gap": 0,  # the CUDA driver maps memory there when torch looks for devices
    # Fresh memory reads as NaN in every float type, so that stale bytes show in the results.
    "max_malloc_fill_size": 1 << 28,
    "malloc_fill_byte": 0xFF,
}


@dataclass(frozen=True, slots=True)
class Tool:
    """What stands in front of a child: a command, environment variables, a report file.

    ``padding`` is how many bytes around each allocation it keeps free.
    """

    name: str
    command: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    report: Path | None = None
    missing: str = ""
    padding: int = 0


def _options(options: dict[str, int]) -> str:
    return ":".join(f"{name}={value}" for name, value in options.items())


#: ThreadSanitizer sees what is compiled for it: races inside torch are none of the kernel's.
_THREAD_OPTIONS = {
    "exitcode": SANITIZER_EXIT,
    "ignore_noninstrumented_modules": 1,
    "report_signal_unsafe": 0,
    "report_thread_leaks": 0,
    "detect_deadlocks": 0,
    "halt_on_error": 0,
}
#: Those of the undefined-behaviour sanitizer, which needs nothing in front of the child.
UNDEFINED_OPTIONS = {"print_stacktrace": 1, "halt_on_error": 1, "exitcode": SANITIZER_EXIT}


def _runtime(config: Config, name: str, short: str) -> str | Tool:
    """Return the path of a sanitizer's runtime to preload, or what is missing."""
    clang = "clang" in Path(config.cxx).name
    library = f"libclang_rt.{short}-{platform.machine()}.so" if clang else f"lib{short}.so"
    try:
        found = subprocess.run(
            [config.cxx, f"-print-file-name={library}"],
            capture_output=True, text=True, check=True, timeout=20,
        ).stdout.strip()  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return Tool("", missing=f"{name}: {config.cxx} does not answer ({error})")
    if not Path(found).is_absolute() or not Path(found).exists():
        return Tool("", missing=f"{name}: {config.cxx} has no {library}; install it")
    return str(Path(found).resolve())


def _address_sanitizer(config: Config) -> Tool:
    """Preload the compiler's AddressSanitizer; it names lines in any library built with ``-g``."""
    library = _runtime(config, "AddressSanitizer", "asan")
    if isinstance(library, Tool):
        return library
    return Tool(
        "AddressSanitizer",
        environment=(
            ("LD_PRELOAD", library),
            ("ASAN_OPTIONS", _options(_ADDRESS_OPTIONS)),
            ("UBSAN_OPTIONS", _options(UNDEFINED_OPTIONS)),
        ),
    )


def _thread_sanitizer(config: Config) -> Tool:
    """Preload the compiler's ThreadSanitizer."""
    library = _runtime(config, "ThreadSanitizer", "tsan")
    if isinstance(library, Tool):
        return library
    options = ("TSAN_OPTIONS", _options(_THREAD_OPTIONS))
    return Tool("ThreadSanitizer", environment=(("LD_PRELOAD", library), options))


def _find_compute_sanitizer() -> str | None:
    """Return compute-sanitizer from PATH, a CUDA toolkit, or its package."""
    if found := shutil.which("compute-sanitizer"):
        return found
    candidates = [Path("/usr/local/cuda/bin/compute-sanitizer")]
    try:
        from importlib.metadata import PackageNotFoundError, files

        shipped = files("nvidia-cuda-sanitizer-api") or ()
        candidates += [Path(str(f.locate())) for f in shipped if f.name == "compute-sanitizer"]
    except PackageNotFoundError:
        pass
    return next((str(path) for path in candidates if path.is_file()), None)


#: memcheck misses an access that lands in a neighbour's memory; here there is none so close.
_PADDING = 4096


def _compute_sanitizer(name: str, folder: Path) -> Tool:
    program = _find_compute_sanitizer()
    if program is None:
        return Tool(
            "",
            missing="compute-sanitizer was not found, so no source line can be named; "
            "install the CUDA toolkit or `pip install nvidia-cuda-sanitizer-api`",
        )
    report = folder / f"{name}.xml"
    padding = _PADDING if name == "memcheck" else 0
    padded = ("--padding", str(padding)) if padding else ()
    command = (program, "--tool", name, *padded, "--xml", "--save", str(report),
               "--target-processes", "application-only",
               "--error-exitcode", str(SANITIZER_EXIT))  # fmt: skip
    # Without the caching allocator every tensor is an allocation that the tool knows.
    uncached = (("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),)
    return Tool("compute-sanitizer", command, uncached, report, padding=padding)


def tool_named(name: str, config: Config, folder: Path) -> Tool:
    """Return a tool by its rung's name, such as ``racecheck``; an empty name is no tool.

    One that is not found comes back with ``missing`` saying so.
    """
    if name == "address":
        return _address_sanitizer(config)
    if name == "thread":
        return _thread_sanitizer(config)
    if name:
        return _compute_sanitizer(name, folder)
    if config.jit_mode is Mode.UNDEFINED:
        return Tool("", environment=(("UBSAN_OPTIONS", _options(UNDEFINED_OPTIONS)),))
    return Tool("")


def tool_for(mode: Mode, *, on_cuda: bool, config: Config, folder: Path) -> Tool:
    """Return what to put in front of a child; nothing for a release build.

    A tool that is needed and not found comes back with ``missing`` saying so.
    """
    if mode is Mode.RELEASE:
        return Tool("")
    return _compute_sanitizer("memcheck", folder) if on_cuda else _address_sanitizer(config)

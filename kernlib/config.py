"""The frozen configuration, read from the environment once.

``Config.from_env`` reads every variable, ``Config.to_env`` writes back those that are not at
their default, so that a child process gets the same configuration through its environment.
"""

from __future__ import annotations

import dataclasses
import enum
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernlib._variables import (
    Variable,
    at_least_bytes,
    count,
    flag_list,
    one_of,
    optional_path,
    path,
    pattern_list,
    size,
    size_text,
    switch,
    variable,
)  # fmt: skip
from kernlib.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Config", "Level", "Mode", "Variable", "get_config", "recording_variables", "using",
           "variables"]  # fmt: skip


class Level(enum.IntEnum):
    """How much is recorded of a call."""

    OFF = 0
    CALLS = 1
    ARGS = 3
    STATS = 5
    DUMP = 10


class Mode(str, enum.Enum):
    """How a kernel is built."""

    RELEASE = "release"
    LINEINFO = "lineinfo"
    DEBUG = "debug"
    SANITIZE = "sanitize"
    UNDEFINED = "undefined"
    THREAD = "thread"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def _missing_(cls, value: object) -> Mode:
        names = ", ".join(mode.value for mode in cls)
        raise ValueError(f"no kernel is built in mode {value!r}; the modes are {names}")

    @property
    def instruments(self) -> bool:
        """Whether the compiler puts a sanitizer's checks into the code; only g++ and clang do."""
        return self in {Mode.SANITIZE, Mode.UNDEFINED, Mode.THREAD}


def _level(text: str) -> Level:
    try:
        return Level[text.upper()]
    except KeyError:
        return Level(int(text))


_LEVELS = "off, calls, args, stats, dump, or 0, 1, 3, 5, 10"
#: Variables of other tools that are respected where kernlib's own is not set.
_ALIASES = {"KERNLIB_MAX_JOBS": "MAX_JOBS"}
_LOADER_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything a user can set; each field is one environment variable."""

    log_level: Level = variable(
        "KERNLIB_LOG_LEVEL", Level.OFF, _LEVELS, "How much is recorded of every call.",
        parse=_level, render=lambda value: value.name.lower(),
    )  # fmt: skip
    log_dest: str = variable(
        "KERNLIB_LOG_DEST", "stderr", "stderr, stdout or a path",
        "Where log lines or the ring go; `%p` pid, `%r` rank, `%h` host in a path.",
    )  # fmt: skip
    log_format: str = variable(
        "KERNLIB_LOG_FORMAT", "console", "console, json or ring",
        "Lines for people or programs, or a file of fixed size that keeps the last calls.",
        parse=one_of("console", "json", "ring"),
    )  # fmt: skip
    ring_bytes: int = variable(
        "KERNLIB_RING_BYTES", 16 * 2**20, "a size from 128KiB on, such as 64MiB",
        "What a ring holds, of each process.", parse=at_least_bytes(1 << 17), render=size_text,
    )  # fmt: skip
    include: tuple[str, ...] = pattern_list(
        "KERNLIB_INCLUDE", "Record only these apis (log lines, statistics and dumps)."
    )
    exclude: tuple[str, ...] = pattern_list("KERNLIB_EXCLUDE", "Record none of these apis.")
    from_call: int = count(
        "KERNLIB_FROM_CALL", 1, "a whole number of at least 1",
        "Record nothing before the process's call of this number; set-up calls always are.", 1,
    )  # fmt: skip
    every: int = count(
        "KERNLIB_EVERY", 1, "a whole number of at least 1",
        "Of each api's calls record only every Nth: with 10 the 1st, the 11th, ...", 1,
    )  # fmt: skip
    first_per_shape: int = count(
        "KERNLIB_FIRST_PER_SHAPE", 0, "a whole number; 0 is no limit",
        "Of each api's calls with the same shapes and dtypes record only the first so many.", 0,
    )  # fmt: skip
    dump_include: tuple[str, ...] = pattern_list(
        "KERNLIB_DUMP_INCLUDE", "Of the recorded apis, dump only these."
    )
    dump_exclude: tuple[str, ...] = pattern_list(
        "KERNLIB_DUMP_EXCLUDE", "Of the recorded apis, dump none of these."
    )
    dump_dir: Path = variable(
        "KERNLIB_DUMP_DIR", Path("kernlib_dumps"), "a folder", "Where sessions are written.",
        parse=path,
    )  # fmt: skip
    dump_max_calls: int = count(
        "KERNLIB_DUMP_MAX_CALLS", 1000, "a whole number of at least 1",
        "Finished capsules kept in the dump folder, all processes together.", 1,
    )  # fmt: skip
    dump_max_bytes: int = variable(
        "KERNLIB_DUMP_MAX_BYTES", 20 * 10**9, "a size such as 20GB or 512MiB",
        "Bytes kept in the dump folder, all processes together.", parse=size, render=size_text,
    )  # fmt: skip
    dump_max_per_shape: int = count(
        "KERNLIB_DUMP_MAX_PER_SHAPE", 100, "a whole number; 0 is no limit",
        "Finished capsules a process keeps of one api with the same shapes and dtypes.", 0,
    )  # fmt: skip
    dump_keep: str = variable(
        "KERNLIB_DUMP_KEEP", "last", "last or first",
        "Which capsules stay when a budget is reached.", parse=one_of("last", "first"),
    )  # fmt: skip
    sync: bool = switch(
        "KERNLIB_SYNC",
        "Wait for the device after every recorded call, so that a fault is raised by its call.",
    )
    check: bool = switch(
        "KERNLIB_CHECK",
        "Refuse calls that break a declared precondition; reading indices waits for the device.",
    )
    # What stands above can be switched in a running process; what follows is read once.
    control: Path | None = optional_path(
        "KERNLIB_CONTROL", "a file that only its owner may write",
        "Lines such as `KERNLIB_LOG_LEVEL=args` in it switch the recording while the process runs.",
    )  # fmt: skip
    workspace: Path | None = optional_path(
        "KERNLIB_WORKSPACE", "a folder",
        "Generated sources and artifacts; the user's cache folder when unset.",
    )  # fmt: skip
    cuda_arch_list: tuple[str, ...] = variable(
        "KERNLIB_CUDA_ARCH_LIST", (), "architectures such as `8.0 9.0a 10.0f`, `native`",
        "CUDA targets that `kernlib jit build` builds for, beside the detected devices.",
        parse=lambda text: tuple(text.replace(",", " ").replace(";", " ").split()),
        render=" ".join,
    )  # fmt: skip
    jit_mode: Mode = variable(
        "KERNLIB_JIT_MODE", Mode.RELEASE, ", ".join(Mode),
        "How kernels are built.", parse=Mode, render=lambda value: value.value,
    )  # fmt: skip
    jit_disable: bool = switch("KERNLIB_JIT_DISABLE", "Never build; only load valid artifacts.")
    jit_cache: bool = switch(
        "KERNLIB_JIT_CACHE", "0 ignores artifacts on disk; only to diagnose.", default=True
    )
    jit_verbose: bool = switch(
        "KERNLIB_JIT_VERBOSE", "Show compiler commands and output; changes nothing else."
    )
    max_jobs: int = count(
        "KERNLIB_MAX_JOBS", 0, "a whole number; 0 follows cores and memory",
        "Compilers that run at once; `MAX_JOBS` counts where this is not set.", 0,
    )  # fmt: skip
    nvcc_threads: int = count(
        "KERNLIB_NVCC_THREADS", 1, "a whole number of at least 1",
        "Threads inside one nvcc.", 1,
    )  # fmt: skip
    cxx: str = variable(
        "KERNLIB_CXX", "g++", "a C++ compiler", "The host compiler: a name or a path."
    )
    nvcc: str = variable("KERNLIB_NVCC", "nvcc", "an nvcc", "The CUDA compiler: a name or a path.")
    compiler_launcher: tuple[str, ...] = flag_list(
        "KERNLIB_COMPILER_LAUNCHER", "Put before every compiler, such as `ccache`."
    )
    extra_cflags: tuple[str, ...] = flag_list(
        "KERNLIB_EXTRA_CFLAGS", "Appended to the C++ flags; part of the build record."
    )
    extra_cudaflags: tuple[str, ...] = flag_list(
        "KERNLIB_EXTRA_CUDAFLAGS", "Appended to the nvcc flags; part of the build record."
    )
    extra_ldflags: tuple[str, ...] = flag_list(
        "KERNLIB_EXTRA_LDFLAGS", "Appended to the linker flags; part of the build record."
    )
    jit_sources: Path | None = optional_path(
        "KERNLIB_JIT_SOURCES", "a folder with one folder per kernel URI",
        "Take the sources of a kernel from here instead of the installed package; to diagnose.",
    )  # fmt: skip
    aot_dir: Path | None = optional_path(
        "KERNLIB_AOT_DIR", "a folder that `kernlib aot build` wrote",
        "Artifacts built ahead of time; the installed package kernlib-aot when unset.",
    )  # fmt: skip
    allow_version_mismatch: bool = switch(
        "KERNLIB_ALLOW_VERSION_MISMATCH",
        "An experiment: load an ahead-of-time artifact of another version or other sources.",
    )
    loader_log_level: str = variable(
        "KERNLIB_LOADER_LOG_LEVEL", "warning", ", ".join(_LOADER_LEVELS),
        "What the JIT and the artifact loader say, apart from the call log.",
        parse=one_of(*_LOADER_LEVELS),
    )  # fmt: skip

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Config:
        """Read every variable once; unset and empty variables keep their default.

        Raises ConfigError with the variable, its value and what is allowed.
        """
        environ = os.environ if environ is None else environ
        values = {}
        for row in variables():
            name = row.name
            if not environ.get(name, "").strip():
                name = _ALIASES.get(name, name)
            if text := environ.get(name, "").strip():
                try:
                    values[row.field] = row.parse(text)
                except (ValueError, KeyError, OverflowError, RuntimeError):
                    raise ConfigError(name, text, row.expected) from None
        return cls(**values)

    def to_env(self) -> dict[str, str]:
        """Return the variables that are not at their default; the inverse of ``from_env``."""
        return {
            row.name: row.render(getattr(self, row.field))
            for row in variables()
            if getattr(self, row.field) != row.default
        }

    def replace(self, **changes: Any) -> Config:  # noqa: ANN401 - any field
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)


def variables() -> tuple[Variable, ...]:
    """Return every environment variable, in the order of the fields."""
    return tuple(
        dataclasses.replace(field.metadata["variable"], field=field.name)
        for field in dataclasses.fields(Config)
    )


def recording_variables() -> tuple[Variable, ...]:
    """Return the variables that can be switched in a running process."""
    rows = variables()
    return rows[: [row.field for row in rows].index("control")]


_current: Config | None = None


def get_config() -> Config:
    """Return the configuration of this process, read from the environment at first use."""
    global _current  # noqa: PLW0603 - the one configuration of the process
    if _current is None:
        _current = Config.from_env()
    return _current


@contextmanager
def using(config: Config) -> Iterator[Config]:
    """Make ``config`` the configuration of this process for the length of a ``with`` block."""
    global _current  # noqa: PLW0603 - see get_config
    before, _current = _current, config
    try:
        yield config
    finally:
        _current = before

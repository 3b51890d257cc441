"""Builds an artifact: lock, compile in a private folder, publish."""

# What only a build needs is imported where it is needed: a warm load has a few milliseconds.

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kernlib.config import get_config
from kernlib.errors import BuildError, LoadError, MissingArtifactError, ToolchainError
from kernlib.jit._cache import (
    Artifact,
    examine,
    find_artifact,
    private_folder,
    publish,
    take,
)
from kernlib.jit._lock import locked
from kernlib.jit._log import loader_logger
from kernlib.jit._ninja import compile_commands
from kernlib.jit._plan import plan as make_plan
from kernlib.jit._toolchain import clean_environment
from kernlib.jit._usage import discard
from kernlib.jit._workspace import artifacts_dir, logs_dir, workspace_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernlib.config import Config, Mode
    from kernlib.jit._plan import BuildPlan
    from kernlib.jit._spec import KernelChoice

__all__ = [
    "begin_build",
    "build_plan",
    "failure",
    "ninja_program",
    "prepare",
    "prepare_plan",
    "stop_ninja",
    "unusable",
]

_QUIET_SECONDS = 1.0
_PATIENCE_SECONDS = 10
#: A compiler that found no room may find none for its message either.
_ROOM = 64 << 10
_NO_ROOM = re.compile("No space left on device|Disk quota exceeded|File size limit exceeded")


def prepare(
    choice: KernelChoice, config: Config | None = None, mode: Mode | str | None = None
) -> Artifact:
    """Return the valid artifact of a choice, building it if there is none.

    Raises MissingArtifactError if building is disabled, BuildError with the first compiler
    error, LoadError if the workspace cannot be written, and what ``plan`` raises.
    """
    config = get_config() if config is None else config
    return prepare_plan(make_plan(choice, config, mode), config)


def prepare_plan(plan: BuildPlan, config: Config) -> Artifact:
    """Return the valid artifact of a plan: from disk, from a package, or built now."""
    if config.jit_disable:
        return _existing(plan, config)
    if config.jit_cache and (found := take(plan, config)) is not None:
        loader_logger(config).debug("found %s: %s", plan.record.uri, found.path)
        return found
    from kernlib.jit._aot import find_ahead, stale, tell_refusal

    ahead = find_ahead(plan, config) if config.jit_cache else None
    if isinstance(ahead, Artifact):
        return ahead
    if ahead is not None and plan.missing is not None:
        raise stale(ahead, plan, str(plan.missing))
    if ahead is not None:
        tell_refusal(ahead, plan, config)
    return build_plan(plan, config)


def build_plan(plan: BuildPlan, config: Config) -> Artifact:
    """Return the artifact of a plan, built here: now, or by another process meanwhile."""
    if plan.missing is not None:
        raise plan.missing
    look = partial(take if config.jit_cache else _nothing, plan, config)
    try:
        with locked(plan, config, look) as theirs:
            found = theirs or (find_artifact(plan, config) if config.jit_cache else None)
            return found or _build(plan, config)
    except OSError as error:
        raise unusable(config, error) from error


def _nothing(_: BuildPlan, __: Config) -> None:
    """Look where there is nothing to find: the cache is off."""


def unusable(config: Config, error: OSError) -> LoadError:
    """Return what to say when the workspace cannot be written: no permission, or no room."""
    full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
    closed = error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}
    remedy = "make room" if full else "make it writable" if closed else "see what it is"
    suitable = "with room" if full else "that can be written"
    # The file itself has a name that only this process knows.
    where = f" in {Path(error.filename).parent}" if error.filename else ""
    reason = f"{error.strerror}{where}; {remedy}, or set KERNLIB_WORKSPACE to a folder {suitable}"
    return LoadError(workspace_dir(config), reason)


def _existing(plan: BuildPlan, config: Config) -> Artifact:
    """Return the valid artifact; a bad one stays where it is, since no build will replace it."""
    if config.jit_cache and (artifact := take(plan, config)) is not None:
        return artifact
    from kernlib.jit._aot import absence, find_ahead, stale

    ahead = find_ahead(plan, config) if config.jit_cache else None
    if isinstance(ahead, Artifact):
        return ahead
    if ahead is not None:
        raise stale(ahead, plan, "KERNLIB_JIT_DISABLE is set")
    found = examine(plan, config)
    if isinstance(found, Artifact):
        found = f"{found.path}, which KERNLIB_JIT_CACHE=0 ignores"
    elif plan.missing is not None:
        found = f"none of this record among the artifacts, and no toolchain ({plan.missing})"
    if config.jit_cache:
        found += f"; {absence(plan, config)}"
    raise MissingArtifactError(plan.record.uri, plan.key, found)


def begin_build(plan: BuildPlan, config: Config) -> Path:
    """Return a private folder with the manifest of a plan, its sources being in place."""
    _write_sources(plan)
    folder = private_folder(plan, config)
    try:
        (folder / "build.ninja").write_text(plan.manifest, encoding="utf-8")
        commands = compile_commands(plan.steps, str(artifacts_dir(config) / plan.key))
        (folder / "compile_commands.json").write_bytes(msgspec.json.encode(commands))
    except OSError:
        discard(folder)
        raise
    return folder


def _build(plan: BuildPlan, config: Config) -> Artifact:
    folder = begin_build(plan, config)
    with contextlib.ExitStack() as undo:
        undo.callback(discard, folder)
        begin = time.monotonic()
        with _progress(plan):
            status, log = _run_ninja(folder, config)
        error = failure(plan, config, log) if status else None
        seconds = time.monotonic() - begin
        if error is not None:
            raise error
        loader_logger(config).info(
            "built %s for %s (%s) in %.1f s: %s",
            plan.record.uri, plan.record.target, plan.record.mode, seconds, plan.key,
        )  # fmt: skip
        artifact = publish(folder, plan, config, seconds)
        undo.pop_all()
    return artifact


def _write_sources(plan: BuildPlan) -> None:
    """Put the include closure where the compilers and their line tables will name it.

    The folder's time says that a build needs it now, before there is an artifact to say so.
    """
    plan.source_dir.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(PermissionError):
        os.utime(plan.source_dir)
    for label, text in plan.files.items():
        path = plan.source_dir / label
        try:
            if path.read_bytes() == text:
                continue
        except OSError:
            path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        temporary.write_bytes(text)
        temporary.replace(path)


def ninja_program() -> str:
    """Return ninja, from its package or from PATH."""
    try:
        import ninja

        program = Path(ninja.BIN_DIR) / "ninja"
        if program.is_file():
            return str(program)
    except ImportError:
        pass
    found = shutil.which("ninja")
    if found is None:
        raise ToolchainError("ninja", "not found", "Install the package: pip install ninja")
    return found


def _run_ninja(folder: Path, config: Config) -> tuple[int, str]:
    """Run the manifest; the compilers see none of what was injected into this process."""
    from kernlib.jit._resources import job_count

    command = [ninja_program(), "-C", str(folder), "-j", str(job_count(config))]
    command += ["-v"] if config.jit_verbose else []
    log_path = folder / "build.log"
    with log_path.open("wb") as log:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            env=clean_environment(), start_new_session=True,
        )  # fmt: skip
        try:
            child.wait()
        finally:
            stop_ninja(child)
    text = log_path.read_text(encoding="utf-8", errors="replace")
    if config.jit_verbose:
        sys.stderr.write(text)
    return child.returncode, text


def stop_ninja(ninja: subprocess.Popen[bytes]) -> None:
    """End a build that still runs: each compiler is in a group that only ninja knows and ends."""
    if ninja.poll() is not None:
        return
    ninja.terminate()
    try:
        ninja.wait(_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(ninja.pid, signal.SIGKILL)
        ninja.wait()


def failure(plan: BuildPlan, config: Config, log: str) -> BuildError | LoadError:
    """Keep the log of a failed build, and return the error that tells of it."""
    from kernlib.jit._errors import first_error

    first = first_error(log)
    if _NO_ROOM.search(log) or shutil.disk_usage(artifacts_dir(config)).free < _ROOM:
        return unusable(config, OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {first}"))
    path = logs_dir(config) / f"{plan.key}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(log, encoding="utf-8")
    record = plan.record
    return BuildError(record.uri, record.target, record.mode, path, first)


@contextlib.contextmanager
def _progress(plan: BuildPlan) -> Iterator[None]:
    """Tell a terminal what is being built once it takes over a second; be silent in pipes."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    record, done, begin = plan.record, threading.Event(), time.monotonic()

    def tell() -> None:
        while not done.wait(_QUIET_SECONDS):
            seconds = time.monotonic() - begin
            sys.stderr.write(
                f"\rkernlib: building {record.uri} for {record.target} "
                f"({record.mode}), {seconds:.0f} s"
            )
            sys.stderr.flush()

    thread = threading.Thread(target=tell, name="kernlib-build-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        if time.monotonic() - begin >= _QUIET_SECONDS:
            sys.stderr.write("\n")

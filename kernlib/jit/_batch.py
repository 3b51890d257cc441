"""Builds many kernels in one run of ninja."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernlib.errors import ConfigError, KernlibError
from kernlib.jit._build import begin_build, failure, ninja_program, stop_ninja, unusable
from kernlib.jit._cache import find_artifact, publish, take
from kernlib.jit._lock import locked
from kernlib.jit._ninja import batch_text
from kernlib.jit._plan import plan as make_plan
from kernlib.jit._resources import job_count
from kernlib.jit._toolchain import clean_environment
from kernlib.jit._usage import discard
from kernlib.jit._workspace import artifacts_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kernlib.config import Config, Mode
    from kernlib.jit._cache import Artifact
    from kernlib.jit._plan import BuildPlan
    from kernlib.jit._spec import KernelChoice

    Tell = Callable[[int, int, str], None]

__all__ = ["BatchResult", "build_many"]

#: What ninja writes before every step: how many are done, of how many.
_STATUS = "[kernlib %f/%t] "
_STEP = re.compile(r"\[kernlib (\d+)/(\d+)\] (.*)")


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What became of one kernel: its artifact or the error, and the seconds its steps took.

    ``seconds`` is None where nothing had to be built.
    """

    uri: str
    target: str
    mode: str
    artifact: Artifact | None
    error: KernlibError | None = None
    seconds: float | None = None


def build_many(
    choices: Iterable[KernelChoice], mode: Mode, config: Config, tell: Tell | None = None
) -> list[BatchResult]:
    """Build what is not in the cache yet, all in one run of ninja; return what became of each.

    ``tell`` is called with the number of steps done, of all, and the step that is done. A kernel
    that fails does not stop the others. An interruption publishes nothing that is not whole.

    Raises ConfigError where building is disabled, LoadError for a workspace that cannot be
    written, and what planning raises, before any compiler starts.
    """
    if config.jit_disable:
        raise ConfigError("KERNLIB_JIT_DISABLE", "1", "0 or unset to build")
    plans = {found.key: found for found in (make_plan(choice, config, mode) for choice in choices)}
    for plan in plans.values():
        if plan.missing is not None:
            raise plan.missing
    results: dict[str, BatchResult] = {}
    for key, plan in plans.items():
        if config.jit_cache and (found := take(plan, config)) is not None:
            results[key] = _result(plan, found)
    missing = [plan for key, plan in sorted(plans.items()) if key not in results]
    try:
        if missing:
            results |= _build(missing, config, tell)
    except OSError as error:
        raise unusable(config, error) from error
    return [results[key] for key in plans]


def _result(
    plan: BuildPlan,
    artifact: Artifact | None,
    error: KernlibError | None = None,
    seconds: float | None = None,
) -> BatchResult:
    record = plan.record
    return BatchResult(record.uri, record.target, record.mode, artifact, error, seconds)


def _build(plans: list[BuildPlan], config: Config, tell: Tell | None) -> dict[str, BatchResult]:
    """Build plans, whose locks are taken in the order of their keys: no two batches can block."""
    results: dict[str, BatchResult] = {}
    with contextlib.ExitStack() as held:
        folders: dict[Path, BuildPlan] = {}
        for plan in plans:
            look = _looker(plan, config)
            theirs = held.enter_context(locked(plan, config, look))
            if theirs is None and config.jit_cache:
                theirs = find_artifact(plan, config)
            if theirs is not None:
                results[plan.key] = _result(plan, theirs)
                continue
            folder = begin_build(plan, config)
            held.callback(_discard_private, folder, plan, config)
            folders[folder] = plan
        if folders:
            results |= _run(folders, config, tell)
    return results


def _looker(plan: BuildPlan, config: Config) -> Callable[[], Artifact | None]:
    return lambda: take(plan, config) if config.jit_cache else None


def _discard_private(folder: Path, plan: BuildPlan, config: Config) -> None:
    """Remove what is left of a build: nothing after publishing, unless the cache is off."""
    kept = not config.jit_cache and (folder / "build.json").exists()
    if not kept and folder != artifacts_dir(config) / plan.key:
        discard(folder)


def _run(
    folders: dict[Path, BuildPlan], config: Config, tell: Tell | None
) -> dict[str, BatchResult]:
    with tempfile.TemporaryDirectory(prefix="kernlib-batch-") as scratch:
        manifest = batch_text({str(folder): plan.steps for folder, plan in folders.items()})
        Path(scratch, "build.ninja").write_text(manifest, encoding="utf-8")
        log = _ninja(Path(scratch), config, tell)
        spent = _seconds(Path(scratch, ".ninja_log"))
    results = {}
    for folder, plan in folders.items():
        own = _own_log(log, folder)
        (folder / "build.log").write_text(own, encoding="utf-8")
        if not (folder / plan.library).is_file() or "\nFAILED: " in f"\n{own}":
            results[plan.key] = _result(plan, None, failure(plan, config, own))
            continue
        seconds = sum(time for path, time in spent.items() if path.startswith(f"{folder}/"))
        artifact = publish(folder, plan, config, seconds)
        results[plan.key] = _result(plan, artifact, None, seconds)
    return results


def _ninja(scratch: Path, config: Config, tell: Tell | None) -> str:
    """Run all steps, also after one has failed; return what ninja and the compilers wrote."""
    command = [ninja_program(), "-C", str(scratch), "-k", "0", "-j", str(job_count(config))]
    command += ["-v"] if config.jit_verbose else []
    lines = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=clean_environment() | {"NINJA_STATUS": _STATUS}, start_new_session=True,
    ) as child:  # fmt: skip
        try:
            for raw in child.stdout or ():
                line = raw.decode(errors="replace").rstrip("\n")
                lines.append(line)
                if tell is not None and (step := _STEP.match(line)):
                    tell(int(step[1]), int(step[2]), step[3])
            child.wait()
        finally:
            stop_ninja(child)
    return "\n".join(lines) + "\n"


def _own_log(log: str, folder: Path) -> str:
    """Return the parts of a common log that belong to the steps of one folder."""
    parts: list[str] = []
    own = False
    for line in log.splitlines():
        step = _STEP.match(line)
        if step is not None or line.startswith("FAILED: "):
            own = str(folder) in line
        if own:
            parts.append(line)
    return "\n".join(parts) + "\n"


def _seconds(path: Path) -> dict[str, float]:
    """Return how long each output took, from ninja's own log (times are in milliseconds)."""
    spent: dict[str, float] = {}
    for row in _rows(path):
        begin, end, output = int(row[0]), int(row[1]), row[3]
        spent[os.fspath(output)] = (end - begin) / 1000
    return spent


def _rows(path: Path) -> Iterator[list[str]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        fields = line.split("\t")
        if len(fields) > 3 and fields[0].isdigit() and fields[1].isdigit():  # noqa: PLR2004 - columns
            yield fields

"""Loads kernels and compares their builds with the recording."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kernlib import dump, jit
from kernlib.config import Mode, get_config
from kernlib.errors import SelectionError, ToolchainError
from kernlib.jit._cache import take
from kernlib.jit._machine_code import HOST_CODE, compare_code, machine_code
from kernlib.replay._chain import session_of
from kernlib.replay._protocol import Built

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kernlib.dump import BuildRef
    from kernlib.jit import Artifact, BuildRecord, KernelChoice
    from kernlib.replay._chain import Step

__all__ = ["describe_builds"]


def describe_builds(step: Step, choices: Iterable[KernelChoice], *, last: bool) -> Iterator[Built]:
    """Load every chosen kernel; for the last call of a chain, tell how it relates to its record."""
    recorded = {(ref.uri, ref.target): ref for ref in step.call.builds}
    for choice in choices:
        artifact = jit.load(choice).artifact
        if not last:
            continue
        ref = recorded.get((choice.spec.uri, choice.target))
        experiment = ref is not None and ref.library is not None and ref.problem is not None
        same_key, differences = _compared(step, choice, ref, artifact)
        yield Built(
            choice.spec.uri,
            choice.target,
            artifact.record.mode,
            artifact.key,
            str(artifact.library),
            artifact.size,
            artifact.sha256,
            ref.key if ref is not None and not experiment else None,
            same_key,
            differences,
            _machine_code(choice, ref, artifact)
            if ref is not None and same_key == ref.key
            else None,
        )


def _compared(
    step: Step, choice: KernelChoice, ref: BuildRef | None, artifact: Artifact
) -> tuple[str | None, list[str]]:
    """Return the key that this installation gives in the recorded mode, and what differs.

    In that mode it is the key of what was loaded, which may have been built elsewhere.
    """
    if artifact.mismatch:
        return None, [jit.mismatch_text(artifact.mismatch)]
    if ref is None:
        return None, []
    if ref.library is not None and ref.problem is not None:
        return None, [f"when it was recorded, {ref.problem}"]
    same_mode = artifact.record.mode == ref.mode
    now = artifact if same_mode else jit.plan(choice, get_config(), Mode(ref.mode))
    if now.key == ref.key:
        return now.key, []
    before = _record(step, ref)
    if before is None:
        return now.key, ["the recorded build record cannot be read"]
    return now.key, [str(difference) for difference in jit.compare_records(before, now.record)]


def _machine_code(choice: KernelChoice, ref: BuildRef, artifact: Artifact) -> str | None:
    """Return whether another mode made other code than the recorded one; builds nothing.

    None where that cannot be told: the recorded library is not in the cache, or no tool reads it.
    """
    modes = {Mode(artifact.record.mode), Mode(ref.mode)}
    if len(modes) == 1 or any(mode.instruments for mode in modes):
        return None
    config = get_config()
    recorded = take(jit.plan(choice, config, Mode(ref.mode)), config)
    if recorded is None or (ref.library is not None and ref.library.sha256 != recorded.sha256):
        return None
    try:
        libraries = (recorded.library, artifact.library)
        found = compare_code(*(machine_code(library, config) for library in libraries))
    except (SelectionError, ToolchainError):
        return None
    if HOST_CODE in found.same or HOST_CODE in found.different:
        return "differs from the recorded build" if found.unlike else "the recorded build's"
    if found.unlike:
        return f"differs from the recorded build in {found.unlike} of {found.total} kernels"
    return f"the recorded build's, in all {found.total} kernels"


def _record(step: Step, ref: BuildRef) -> BuildRecord | None:
    files = dump.read_build(session_of(step.path), ref.key)
    try:
        return jit.decode_record(files.record)
    except msgspec.MsgspecError:
        return None

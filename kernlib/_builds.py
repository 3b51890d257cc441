"""Tells the dump sink what a call will build."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from kernlib import dump, jit
from kernlib.errors import KernlibError
from kernlib.logging import CapturedBuild

if TYPE_CHECKING:
    from kernlib.jit import KernelChoice
    from kernlib.logging import Call

__all__ = ["capture_builds"]

# What an api's ``kernels`` function raises for arguments that the api itself refuses as well.
_BAD_ARGUMENTS = (KernlibError, TypeError, ValueError, AttributeError, LookupError)


def capture_builds(call: Call) -> list[CapturedBuild]:
    """Return the kernels a call will use, built if they were not: the call needs them next.

    A kernel that cannot be built is returned with the problem; the call will meet it too.
    """
    kernels = getattr(call.api, "kernels", None)
    if kernels is None:
        return []
    try:
        choices = kernels(*call.args, **call.kwargs)
    except _BAD_ARGUMENTS:
        return []
    return [captured for choice in choices if (captured := _capture(choice)) is not None]


@lru_cache(maxsize=1024)
def _capture(choice: KernelChoice) -> CapturedBuild | None:
    try:
        plan = jit.plan(choice)
    except KernlibError:
        return None
    key, record = plan.key, plan.record
    library, problem = None, None
    try:
        artifact = jit.prepare(choice)
        library = dump.LibraryRef(
            path=str(artifact.library), size=artifact.size, sha256=artifact.sha256
        )
        if artifact.mismatch:  # the plan, its sources and its key are not those of the library
            problem = jit.mismatch_text(artifact.mismatch)
        else:  # what was built elsewhere names the toolchain there
            key, record = artifact.key, artifact.record
    except KernlibError as error:
        problem = str(error)
    ref = dump.BuildRef(
        key=key,
        uri=choice.spec.uri,
        backend=choice.spec.backend,
        target=choice.target,
        mode=str(plan.mode),
        reason=choice.reason,
        library=library,
        problem=problem,
    )
    return CapturedBuild(ref, jit.record_json(record), plan.manifest, plan.files)

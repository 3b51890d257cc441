"""Brings in the apis that a capsule names."""

from __future__ import annotations

import contextlib
import importlib
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from kernlib._registry import registry
from kernlib.errors import NotReplayableError, RegistryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernlib import dump
    from kernlib._registry import Api
    from kernlib.replay._chain import Step

__all__ = ["api_of", "import_apis"]


def import_apis(call: dump.Call, more: Sequence[str]) -> None:
    """Import what registers apis: the package's own entry points, and what the user named.

    A package named by a capsule is never imported by that name: only installed packages that
    declare the entry-point group, or those typed on the command line.
    """
    for point in entry_points(group="kernlib.apis"):
        if point.module.partition(".")[0] == call.package:
            point.load()
    if call.package == "kernlib":  # a source tree that is not installed has no entry points
        faults = call.api.startswith("selftest_")  # they are wrong on purpose: only by their name
        importlib.import_module("kernlib.selftest" if faults else "kernlib.ops")
    for name in more:
        importlib.import_module(name)


def api_of(step: Step, packages: Sequence[str]) -> Api:
    """Return the registered api of a call.

    What a script defines is recorded as ``__main__``'s, a name that means another module here:
    then the module the user imported for it counts.
    """
    package, name = step.call.package, step.call.api
    if package != "__main__":
        return registry.get(package, name)
    for module in packages:
        with contextlib.suppress(RegistryError):
            return registry.get(module.partition(".")[0], name)
    reason = "it was defined in the script that was run; name its module with --import"
    raise NotReplayableError(step.text, [reason])

"""Replays a recorded fault as the command does."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from kernlib._registry import registry
from kernlib.replay._diagnose import diagnose
from kernlib.replay._replay import Options, replay
from kernlib.replay._select import select
from kernlib.selftest._judge import Observed

if TYPE_CHECKING:
    from pathlib import Path

    from kernlib.replay._report import CallReport

__all__ = ["CHECK", "observe"]

#: What judges the arguments alone and runs nothing: ``kernlib-replay --check``.
CHECK = "check"


def observe(dumps: Path, call: int | None, rung: str | None, timeout: float) -> Observed:
    """Replay a call on one rung, or up the ladder, and return what the report says.

    ``call`` None has the replay choose. ``timeout`` in seconds, for each child.
    """
    name = f"replay-{call or 'chosen'}"
    keep = dumps.parent / name
    keep.mkdir(exist_ok=True)
    selection = select(dumps, call=call)
    options = Options(
        command=f"kernlib-replay {dumps}",
        timeout=timeout,
        keep=keep,
        ladder=rung is None and call is not None,  # a recorded crash climbs it by itself
        rung="recorded" if rung == CHECK else rung,
        live=False,
    )
    report = replay(selection, options)
    (dumps.parent / f"{name}.json").write_bytes(msgspec.json.encode(report))
    worst = max(report.calls, key=lambda told: told.exit_status)
    seen = _seen(worst, tuple(told.call for told in report.calls))
    return _judged(seen, selection.calls[-1].path) if rung == CHECK else seen


def _seen(call: CallReport, calls: tuple[int, ...]) -> Observed:
    return Observed(
        calls=calls,
        api=call.api,
        verdict=call.verdict,
        reason=call.reason,
        rung=call.rung,
        arguments=_arguments(call),
        file=call.source.file if call.source else "",
        line=call.source.line if call.source else 0,
        certain=call.source.certain if call.source else True,
    )


def _judged(seen: Observed, capsule: Path) -> Observed:
    """Return what the declared preconditions say of a call that runs again without a fault."""
    told = diagnose(capsule)
    if seen.verdict != "passed" or not told.findings:
        return seen
    blamed = tuple(found.argument for found in told.findings)
    return replace(seen, verdict="invalid_input", reason=told.text, rung=CHECK, arguments=blamed)


def _arguments(call: CallReport) -> tuple[str, ...]:
    """Return the arguments blamed by a check, an address, the api itself, or by what they held."""
    names = [found.name for found in call.findings]
    if call.target is not None and call.target.argument and call.target.certain:
        names.append(call.target.argument)
    if match := re.search(rf"{call.api}: (\w+) is on ", call.reason):
        names.append(match[1])
    if call.rung == "poison" and call.verdict == "mismatch":
        names += registry.get("kernlib", call.api).workspaces
    return tuple(dict.fromkeys(names))

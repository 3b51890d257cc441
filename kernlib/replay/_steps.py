"""Runs generators and coroutines to their recorded end."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernlib.replay._protocol import Compared

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from kernlib.dump import Call

__all__ = ["Ended", "can_compare", "compare_items", "run_out", "step_notes", "step_obstacles"]


@dataclass(frozen=True, slots=True)
class Ended:
    """What a call gave at its end, and how many items before (None: it is no generator)."""

    result: object
    items: int | None = None


def step_obstacles(call: Call) -> list[str]:
    """Return why the steps of a call cannot be repeated; empty if nothing stands in the way."""
    if call.yielded is not None and call.yielded.answered:
        return ["something was sent or thrown into the generator, and that is not recorded"]
    return []


def step_notes(call: Call) -> list[str]:
    """Return what a reader should know of a call that was run in steps."""
    notes = []
    if call.yielded is not None:
        notes.append(
            f"it yielded {call.yielded.items} items, which are not recorded; what its caller "
            "changed between two of them counts as changed by the call"
        )
    if call.status == "closed":
        notes.append("its caller closed it before its end; a coroutine is replayed to its end")
    if call.status == "suspended":
        notes.append("it was suspended when its process ended; how it would have ended is unknown")
    return notes


def run_out(function: Callable[..., Any], returned: Any, call: Call) -> Ended:  # noqa: ANN401
    """Run what calling the function has returned for as long as the recorded call ran.

    A generator that did not end of itself is closed after as many items as it had yielded; one
    that ended its process is asked for one more.
    """
    limit = _limit(call)
    if inspect.isasyncgenfunction(function):
        return Ended(None, asyncio.run(_drain(returned, limit)))
    if inspect.iscoroutinefunction(function):
        return Ended(asyncio.run(returned))
    if inspect.isgeneratorfunction(function):
        return _exhaust(returned, limit)
    return Ended(returned)


def can_compare(call: Call) -> bool:
    """Return whether a replay stops where the recorded call did."""
    return call.status == "returned" or (call.status == "closed" and call.yielded is not None)


def compare_items(call: Call, ended: Ended) -> list[Compared]:
    """Compare how many items came with how many were recorded."""
    if ended.items is None or call.yielded is None:
        return []
    recorded, same = call.yielded.items, ended.items == call.yielded.items
    detail = f"{ended.items}" if same else f"{ended.items}, recorded {recorded}"
    found = Compared(
        "yielded items", "", matches=same, identical=same, detail=detail, tolerance="exact"
    )
    return [found]


def _limit(call: Call) -> int | None:
    if call.status in {"returned", "raised"}:
        return None
    items = call.yielded.items if call.yielded is not None else 0
    return items + 1 if call.status == "started" else max(items, 1)


def _exhaust(body: Generator[Any, Any, Any], limit: int | None) -> Ended:
    items = 0
    while items != limit:
        try:
            next(body)
        except StopIteration as end:
            return Ended(end.value, items)
        items += 1
    body.close()
    return Ended(None, items)


async def _drain(body: AsyncGenerator[Any, Any], limit: int | None) -> int:
    items = 0
    async for _ in body:
        items += 1
        if items == limit:
            break
    await body.aclose()
    return items

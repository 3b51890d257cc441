"""The ways to run a recorded call again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from kernlib.config import Mode
from kernlib.errors import SelectionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernlib.replay._protocol import Memory, Scratch

__all__ = [
    "NAMES",
    "PREVIOUS",
    "Rung",
    "Where",
    "as_asked",
    "ladder_of",
    "line_rungs",
    "rung_named",
    "single",
]

Where = Literal["cpu", "cuda"]
#: What stands in front of the child; ``mode`` is what has always stood before a build of that mode.
ToolName = Literal["", "address", "thread", "memcheck", "racecheck", "initcheck", "synccheck"]

#: How many calls the rung ``previous`` runs first where the user names no number.
PREVIOUS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One way to run a call; ``mode`` None is the recorded one."""

    name: str
    about: str
    mode: Mode | None = None
    tool: ToolName = ""
    memory: Memory = "plain"
    scratch: Scratch = "recorded"
    previous: int = 0
    environment: tuple[tuple[str, str], ...] = ()
    #: A tool without which the rung says nothing; else the run goes on without it.
    needs_tool: bool = True

    @property
    def as_recorded(self) -> bool:
        """Whether the child runs the recorded build on plain memory, alone."""
        return self.mode is None and self.memory == "plain" and not self.previous


_BLOCKING = (("CUDA_LAUNCH_BLOCKING", "1"),)
_OTHER_CODE = "other code than the recorded one"
_COMMON = (
    Rung(name="recorded", about="the recorded build, as it was recorded"),
    Rung(name="blocking", about="CUDA_LAUNCH_BLOCKING=1", environment=_BLOCKING),
    Rung(name="fence-end", about="storages end at a fence; recorded code, line tables",
         mode=Mode.LINEINFO, memory="fence-end"),
    Rung(name="fence-start", about="storages start at a fence; recorded code, line tables",
         mode=Mode.LINEINFO, memory="fence-start"),
    Rung(name="previous", about="with the calls before it", previous=PREVIOUS),
    Rung(name="poison", about="outputs, workspaces, new memory 0xFF", scratch="poisoned"),
)  # fmt: skip
_CUDA = (
    *(
        Rung(name=name, about=f"compute-sanitizer, {name}", mode=Mode.LINEINFO, tool=name)
        for name in ("memcheck", "racecheck", "initcheck", "synccheck")
    ),
    Rung(name="lineinfo", about="the recorded code with line tables", mode=Mode.LINEINFO),
    Rung(name="debug", about=f"-G: {_OTHER_CODE}", mode=Mode.DEBUG, tool="memcheck",
         needs_tool=False),
)  # fmt: skip
_CPU = (
    Rung(name="address", about=f"ASan and UBSan, -O0: {_OTHER_CODE}", mode=Mode.SANITIZE,
         tool="address"),
    Rung(name="undefined", about=f"UBSan, -O0: {_OTHER_CODE}", mode=Mode.UNDEFINED),
    Rung(name="thread", about=f"TSan, -O0: {_OTHER_CODE}", mode=Mode.THREAD, tool="thread"),
    Rung(name="lineinfo", about="the recorded code with line tables", mode=Mode.LINEINFO),
    Rung(name="debug", about=f"-O0: {_OTHER_CODE}", mode=Mode.DEBUG),
)  # fmt: skip
_LADDERS: dict[Where, tuple[Rung, ...]] = {
    "cuda": (*_COMMON, *_CUDA),
    "cpu": (*(rung for rung in _COMMON if rung.name != "blocking"), *_CPU),
}
NAMES = tuple(dict.fromkeys(rung.name for rungs in _LADDERS.values() for rung in rungs))


def ladder_of(where: Where) -> tuple[Rung, ...]:
    """Return all rungs in order."""
    return _LADDERS[where]


def rung_named(name: str, where: Where) -> Rung:
    """Return one rung.

    Raises SelectionError for a rung that a call on that kind of device does not have.
    """
    for rung in ladder_of(where):
        if rung.name == name:
            return rung
    known = ", ".join(rung.name for rung in ladder_of(where))
    raise SelectionError(f"a call on {where} has no rung {name!r}", f"It has {known}")


def as_asked(
    rungs: Iterable[Rung], *, previous: int | None = None, scratch: Scratch | None = None
) -> list[Rung]:
    """Return rungs with so many calls first and such scratch; None leaves them as they are.

    What a rung is named for it keeps: ``poison`` poisons.
    """
    changed = list(rungs)
    if previous is not None:
        changed = [replace(rung, previous=previous) for rung in changed]
    if scratch is not None:
        changed = [
            replace(rung, scratch=scratch) if rung.scratch == "recorded" else rung
            for rung in changed
        ]
    return changed


def single(mode: Mode | None, where: Where) -> Rung:
    """Return the one run of a wished mode, or as recorded for None.

    A build that is not for release has the tool in front that names lines, if there is one.
    """
    if mode is None or mode is Mode.RELEASE:
        return replace(_COMMON[0], mode=mode)
    tool: ToolName = "memcheck" if where == "cuda" else "address"
    if mode is Mode.THREAD:
        tool = "thread"
    elif mode is Mode.UNDEFINED:
        tool = ""
    return Rung(name=str(mode), about=f"mode {mode}", mode=mode, tool=tool, needs_tool=False)


def line_rungs(found: Rung, where: Where) -> list[Rung]:
    """Return the rungs that name the line of what another one found, on memory like that one's.

    memcheck knows address and line within seconds; a core dump alone takes as long to write.
    """
    names = ["address", "debug"]
    if where == "cuda":
        names = ["memcheck", "lineinfo", "debug"]
    return [
        replace(
            rung_named(name, where), memory=found.memory, scratch=found.scratch,
            previous=found.previous, environment=found.environment,
        )
        for name in names
        if name != found.name
    ]  # fmt: skip

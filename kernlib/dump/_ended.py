"""What a session holds whose process is gone."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kernlib.dump._browse import list_calls
from kernlib.dump._removal import remove_capsule
from kernlib.dump._reuse import SPARE_FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernlib.dump._browse import CallEntry

__all__ = ["Ended", "Freed", "Room"]

_UNFINISHED = ("started", "suspended")
_OWN_FILES = {"session.json", "usage.json", "builds", SPARE_FOLDER}


class _Capsule(NamedTuple):
    path: str
    nbytes: int
    calls: int


class Room(NamedTuple):
    """Finished calls, and the bytes of any."""

    calls: int
    nbytes: int

    def holds(self, other: Room) -> bool:
        """Return whether there is as much of both."""
        return self.calls >= other.calls and self.nbytes >= other.nbytes


class Freed(NamedTuple):
    """What a removal gave back; ``capsules`` counts those that this process removed itself."""

    capsules: int = 0
    calls: int = 0
    nbytes: int = 0

    @property
    def room(self) -> Room:
        """What there is room for now."""
        return Room(self.calls, self.nbytes)


class Ended:
    """The capsules of an ended session, oldest first.

    The evidence are those that a replay would choose (the calls that never ended, else the last
    one that raised), with the set-up calls that are needed to run them again, and with what cannot
    be read; all others may go.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._removable: deque[_Capsule] = deque()
        self._evidence: deque[_Capsule] = deque()
        entries: list[CallEntry] = []
        with contextlib.suppress(OSError):  # somebody removed it, or it may not be read
            entries = list_calls(Path(path))
        suspects = {entry.sequence for entry in entries if entry.status in _UNFINISHED}
        if not suspects:
            suspects = {entry.sequence for entry in entries if entry.status == "raised"}
            suspects = {max(suspects)} if suspects else suspects
        for entry in entries:
            folder = str(entry.path)
            if _is_debris(entry):
                self._removable.appendleft(_Capsule(folder, _size(folder), 0))
            elif _is_evidence(entry, suspects):
                self._evidence.append(_Capsule(folder, _size(folder), 0))
            else:
                self._removable.append(_Capsule(folder, _size(folder), 1))

    @property
    def calls(self) -> int:
        """How many capsules count as finished calls."""
        return sum(capsule.calls for capsule in self._removable)

    @property
    def evidence(self) -> int:
        """The bytes of the evidence."""
        return sum(capsule.nbytes for capsule in self._evidence)

    @property
    def nbytes(self) -> int:
        """The bytes of all capsules."""
        return self.evidence + sum(capsule.nbytes for capsule in self._removable)

    def remove(self, enough: Callable[[Freed], bool], freed: Freed) -> Freed:
        """Remove the oldest capsules until it is enough, and return what that adds up to."""
        return self._remove(self._removable, enough, freed)

    def remove_evidence(self, freed: Freed) -> Freed:
        """Remove what is left of the session's end, and return what that adds up to."""
        return self._remove(self._evidence, lambda _: False, freed)

    def remove_empty(self) -> None:
        """Remove the session itself once it holds no capsule, nor anything of somebody else."""
        if self._removable or self._evidence:
            return
        with contextlib.suppress(OSError):
            if not set(os.listdir(self.path)) <= _OWN_FILES:  # noqa: PTH208 - names are wanted
                return
            for folder in ("builds", SPARE_FOLDER):
                shutil.rmtree(f"{self.path}/{folder}", ignore_errors=True)
            for name in ("session.json", "usage.json"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self.path}/{name}")  # noqa: PTH108 - a text, not a Path
            os.rmdir(self.path)  # noqa: PTH106

    def _remove(self, row: deque[_Capsule], enough: Callable[[Freed], bool], freed: Freed) -> Freed:
        while row and not enough(freed):
            capsule = row[0]
            there = os.path.lexists(capsule.path)
            mine = there and remove_capsule(capsule.path)
            if there and os.path.lexists(capsule.path):
                break  # it may not be removed, or holds a file of somebody else
            row.popleft()
            if not there:
                continue  # another process was faster
            freed = Freed(
                freed.capsules + mine, freed.calls + capsule.calls, freed.nbytes + capsule.nbytes
            )
        return freed


def _is_debris(entry: CallEntry) -> bool:
    """Return whether a folder is half written or half removed."""
    if entry.path.name.startswith("."):
        return True
    return entry.problem is not None and not os.path.lexists(entry.path / "call.json")


def _is_evidence(entry: CallEntry, suspects: set[int]) -> bool:
    needed = entry.setup and bool(suspects)
    return entry.status is None or entry.sequence in suspects or needed


def _size(folder: str) -> int:
    return sum(_sizes(folder))


def _sizes(folder: str) -> Iterator[int]:
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        for item in found:
            with contextlib.suppress(OSError):
                yield item.stat(follow_symlinks=False).st_size

"""Records and replays the planted faults in child processes."""

from __future__ import annotations

import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kernlib.errors import KernlibError
from kernlib.selftest._judge import judge
from kernlib.selftest._observe import CHECK, observe
from kernlib.selftest._record import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kernlib.selftest._judge import Observed
    from kernlib.selftest._plan import Run
    from kernlib.selftest._record import Recorded

__all__ = ["Row", "Settings", "run_all"]


@dataclass(frozen=True)
class Settings:
    """How the runs are made: seconds a child may take, how many at once, where files stay."""

    timeout: float = 120.0
    #: A replay of a hang ends by its timeout, so it is shorter.
    hang_timeout: float = 20.0
    jobs: int = 1
    keep: Path | None = None


class Row(msgspec.Struct, frozen=True):
    """What became of one planted fault; ``outcome`` is named, missed or not_applicable."""

    fault: str
    wrong: str
    backend: str
    variant: str
    outcome: str
    verdict: str = ""
    rung: str = ""
    arguments: list[str] = []
    file: str = ""
    line: int = 0
    misses: list[str] = []
    why_not: str = ""
    recorded: str = ""
    seconds: float = 0.0
    folder: str = ""


def run_all(
    runs: Sequence[Run], devices: int, settings: Settings, told: Callable[[Row], None]
) -> list[Row]:
    """Make every run and return its row, in their order; ``told`` gets each as it is done.

    ``devices`` is how many GPUs there are: a run that needs more is not applicable.
    """

    def one(run: Run) -> Row:
        row = _run(run, devices, settings)
        told(row)
        return row

    with ThreadPoolExecutor(settings.jobs) as pool:
        return list(pool.map(one, runs))


def _run(run: Run, devices: int, settings: Settings) -> Row:
    facts = (run.fault.name, run.fault.wrong, run.backend, run.variant)
    if obstacle := run.obstacle(devices):
        return Row(*facts, outcome="not_applicable", why_not=obstacle)
    begin = time.monotonic()
    with _folder(run, settings) as folder:
        recorded = record(run, folder, settings.timeout)
        try:
            timeout = settings.hang_timeout if run.fault.hangs else settings.timeout
            seen, misses = _Replays(run, recorded, timeout).judged()
        except KernlibError as error:  # nothing was recorded, or nothing that can be read
            text = f"{error}; the recording child: {recorded.end}\n{recorded.log}".strip()
            return Row(*facts, outcome="missed", misses=[text], recorded=recorded.end)
    return Row(
        *facts,
        outcome="missed" if misses else "named",
        verdict=seen.verdict,
        rung=seen.rung,
        arguments=list(seen.arguments),
        file=seen.file,
        line=seen.line,
        misses=misses,
        recorded=recorded.end,
        seconds=round(time.monotonic() - begin, 1),
        folder=str(folder) if settings.keep else "",
    )


@contextmanager
def _folder(run: Run, settings: Settings) -> Iterator[Path]:
    if settings.keep is None:
        with tempfile.TemporaryDirectory(prefix="kernlib-selftest-") as name:
            yield Path(name)
        return
    folder = settings.keep / run.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield folder


@dataclass(frozen=True)
class _Replays:
    """The replays of one recording."""

    run: Run
    recorded: Recorded
    timeout: float

    def judged(self) -> tuple[Observed, list[str]]:
        """Replay as the command does, and return what was seen and what was missed.

        Where the recording ended with the fault, the replay itself has to choose the call. Where
        no call ended badly a user names one; then the sound call before it must not be blamed.
        """
        noticed = self.recorded.status != 0 or self.run.fault.hangs
        dumps, number = self.recorded.dumps, self.run.call
        only = CHECK if self.run.expected.rungs == (CHECK,) else None
        seen = observe(dumps, None if noticed else number, only, self.timeout)
        control = None
        if not noticed and seen.rung:
            control = observe(dumps, number - 1, seen.rung, self.timeout)
        return seen, judge(self.run, seen, control)

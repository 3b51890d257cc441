"""Replays calls, rung after rung, and reports."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kernlib import dump, jit
from kernlib.config import Mode
from kernlib.errors import CapsuleError
from kernlib.replay._ahead import Ahead, affordable
from kernlib.replay._attempts import attempt_of, here_of, parts_of, target_of
from kernlib.replay._child_config import child_config
from kernlib.replay._describe import arguments_of, recorded_end_text
from kernlib.replay._ladder import Outcome, Run, climb, deciding, overall, shows
from kernlib.replay._locate import locate, stack_text
from kernlib.replay._machine import machine_differences, machine_text, still_running
from kernlib.replay._protocol import Request
from kernlib.replay._report import Argument, CallReport, Report
from kernlib.replay._run import by_tool, run_child
from kernlib.replay._rungs import as_asked, ladder_of, line_rungs, rung_named, single
from kernlib.replay._table import live_table
from kernlib.replay._tools import tool_named
from kernlib.replay._verdict import RecordedEnd, Verdict, conclude

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from kernlib.config import Config
    from kernlib.dump import Call, CallEntry, Session
    from kernlib.replay._protocol import Scratch
    from kernlib.replay._report import Attempt
    from kernlib.replay._rungs import Rung, Where
    from kernlib.replay._select import Selection

__all__ = ["Options", "replay"]


def _plain(text: str) -> str:
    return text


#: Host builds of which an instruction may bear the line of the expression that it was merged into.
_OPTIMISED = {Mode.RELEASE, Mode.LINEINFO}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked of a replay.

    ``mode`` and ``rung`` ask for one way to run; without them a recorded crash climbs the ladder,
    any other call with ``ladder`` too. Each rung runs ``repeat`` times. ``previous`` is how many
    recorded calls run first. ``live`` shows the rungs of a ladder on stderr as they end; ``shown``
    makes a text of a dump harmless for a terminal.
    """

    command: str
    packages: tuple[str, ...] = ()
    mode: Mode | None = None
    device: str | None = None
    timeout: float = 120.0
    trust_sources: bool = False
    keep: Path | None = None
    ladder: bool = False
    rung: str | None = None
    repeat: int = 1
    previous: int | None = None
    scratch: Scratch | None = None
    live: bool = True
    shown: Callable[[str], str] = _plain


def replay(selection: Selection, options: Options) -> Report:
    """Replay the selected calls and return the report; the worst verdict decides the exit.

    Raises SelectionError for a rung that a call does not have.
    """
    try:
        session: Session | None = dump.read_session(selection.session)
    except CapsuleError:
        session = None
    with tempfile.TemporaryDirectory(prefix="kernlib-replay-") as scratch:
        calls = [
            _Replay(entry, selection, session, options, Path(scratch)).report()
            for entry in selection.calls
        ]
    worst = max(calls, key=lambda call: call.exit_status)
    return Report(worst.verdict, worst.exit_status, calls)


class _Replay:
    def __init__(
        self,
        entry: CallEntry,
        selection: Selection,
        session: Session | None,
        options: Options,
        scratch: Path,
    ) -> None:
        self._entry = entry
        self._selection = selection
        self._session = session
        self._options = options
        self._scratch = options.keep or scratch
        self._notes = list(selection.notes)
        self._used: set[str] = set()
        self._judging = ""  # the rung whose child judges the arguments: once is enough
        if entry.status == "started" and (alive := still_running(session)) is not None:
            self._notes.append(alive)

    def report(self) -> CallReport:
        """Run the call until a rung shows what was recorded, and report."""
        try:
            call = dump.read_call(self._entry.path)
            recorded = RecordedEnd.of(call)
            _recorded_mode(call, self._entry.path)
            config = child_config(
                self._entry.path, call, self._session,
                sources=self._scratch if self._options.trust_sources else None,
            )  # fmt: skip
        except CapsuleError as error:
            return self._refusal(str(error))
        where: Where = "cuda" if _on_cuda(call, self._options.device) else "cpu"
        rungs = self._rungs(recorded, where)
        self._judging = rungs[0].name
        outcomes: list[Outcome] = []

        def lines(found: Outcome) -> list[Rung]:
            if len(rungs) == 1:
                return []
            wanted = line_rungs(found.rung, where)
            if not found.has_line:
                return wanted
            # A core dump names the line at a fence, but no address.
            whose = where == "cuda" and found.rung.memory != "plain" and not found.has_target
            return wanted[:1] if whose else []

        def now(rung: Rung) -> Outcome:
            return self._outcome(call, recorded, config, rung)

        with self._shown(len(rungs)) as tell, closing(Ahead(now)) as ahead:
            # A crash that comes back at once wants its line next.
            once = self._options.repeat == 1
            if len(rungs) > 1 and recorded.crashed and once and affordable(call):
                ahead.start(line_rungs(rungs[0], where)[0])

            def run(rung: Rung) -> Outcome:
                tell(rung.name, None)
                return ahead.outcome(rung)

            for outcome in climb(rungs, recorded, run, lines):
                outcomes.append(outcome)
                tell(outcome.rung.name, self._attempt(call, outcome))
        return self._written(call, recorded, outcomes)

    def _shown(self, count: int) -> AbstractContextManager[Callable[[str, Attempt | None], None]]:
        if count > 1 and self._options.live:
            return live_table(self._options.shown)
        return nullcontext(lambda _rung, _attempt: None)

    def _rungs(self, recorded: RecordedEnd, where: Where) -> list[Rung]:
        """Return the rungs to try in turn."""
        options = self._options
        if options.rung is not None:
            rungs = [rung_named(options.rung, where)]
        elif options.mode is None and (options.ladder or recorded.crashed):
            rungs = list(ladder_of(where))
        else:
            rungs = [single(options.mode, where)]
        return as_asked(rungs, previous=options.previous, scratch=options.scratch)

    def _outcome(self, call: Call, recorded: RecordedEnd, config: Config, rung: Rung) -> Outcome:
        """Run a rung as often as it is to be repeated."""
        config = config.replace(jit_mode=rung.mode or _recorded_mode(call, self._entry.path))
        runs: list[Run] = []
        on_cuda = _on_cuda(call, self._options.device)
        for at in range(self._options.repeat):
            folder = self._folder(call, rung, at)
            tool = tool_named(rung.tool, config, folder)
            if tool.missing and rung.needs_tool:
                return Outcome(rung, not_run=tool.missing)
            tool = dataclasses.replace(tool, environment=(*tool.environment, *rung.environment))
            request = Request(
                str(self._entry.path.absolute()), list(self._options.packages),
                self._options.device, memory=rung.memory, scratch=rung.scratch,
                previous=rung.previous, judge=rung.name == self._judging,
            )  # fmt: skip
            end = run_child(request, config, tool, folder=folder, timeout=self._options.timeout)
            end = by_tool(end, rung.tool)
            generated = jit.generated_dir(config)
            source = locate(end.fault, generated) if end.fault else None
            stack = tuple(stack_text(end.fault, generated)) if end.fault else ()
            if source is not None and not on_cuda and config.jit_mode in _OPTIMISED:
                source = msgspec.structs.replace(source, certain=False)
            concluded = conclude(recorded, end, call.sequence)
            target = target_of(end, tool, call.sequence)
            runs.append(Run(tool, end, concluded, source, stack, target))
            if runs[-1].conclusion.verdict in {Verdict.NOT_REPLAYABLE, Verdict.BUILD_FAILED}:
                break  # the next would end in the same way
        hits = [run for run in runs if shows(recorded, run.conclusion.verdict)]
        telling = (hits or sorted(runs, key=lambda run: -run.conclusion.verdict.exit_status))[0]
        return Outcome(rung, tuple(runs), telling, len(hits))

    def _folder(self, call: Call, rung: Rung, at: int) -> Path:
        name = f"call-{call.sequence}-{rung.name}" + (f"-{at + 1}" if at else "")
        while name in self._used:  # by the same rung on other memory, which may still run
            name += "-again"
        self._used.add(name)
        folder = self._scratch / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def _attempt(self, call: Call, outcome: Outcome) -> Attempt:
        mode = outcome.rung.mode or _recorded_mode(call, self._entry.path)
        return attempt_of(outcome, self._options.device or call.device or "cpu", str(mode))

    def _refusal(self, reason: str) -> CallReport:
        return CallReport(
            verdict=Verdict.NOT_REPLAYABLE.word,
            exit_status=Verdict.NOT_REPLAYABLE.exit_status,
            reason=reason,
            session=self._selection.session.name,
            call=self._entry.sequence,
            api=self._entry.api,
            recorded="not readable",
            capsule=str(self._entry.path),
        )

    def _written(self, call: Call, recorded: RecordedEnd, outcomes: list[Outcome]) -> CallReport:
        decided, conclusion = deciding(outcomes, recorded), overall(outcomes, recorded)
        verdict, here = conclusion.verdict, here_of(outcomes)
        report = CallReport(
            verdict=verdict.word,
            exit_status=verdict.exit_status,
            reason=conclusion.reason,
            session=self._selection.session.name,
            call=call.sequence,
            api=call.api,
            recorded=f"{recorded_end_text(call)} (chosen: {self._selection.why})",
            capsule=str(self._entry.path),
            caller=call.caller,
            rung=decided.rung.name,
            arguments=[Argument(name, text) for name, text in arguments_of(call)],
            attempts=[self._attempt(call, outcome) for outcome in outcomes],
            machine=machine_text(here),
            machine_differences=machine_differences(self._session, here),
            notes=self._notes,
        )
        report = parts_of(report, outcomes, decided)
        return msgspec.structs.replace(report, next=self._next(call, report, decided))

    def _next(self, call: Call, report: CallReport, decided: Outcome) -> list[str]:
        """Return the commands worth running next."""
        base = f"{self._options.command} --call {call.sequence}"
        commands = []
        if report.verdict == "reproduced" and report.builds and decided.rung.name != "debug":
            commands.append(f"{base} --mode debug")
        if report.verdict == "not_reproduced":
            more = "--repeat 10" if len(report.attempts) > 1 else "--ladder"
            commands.append(f"{base} {more}")
        changed = any(build.differences for build in report.builds)
        if changed and not self._options.trust_sources:
            commands.append(f"{base} --trust-sources")
        if self._options.keep is None and report.exit_status:
            commands.append(f"{base} --keep replay-files")
        return commands


def _recorded_mode(call: Call, path: Path) -> Mode:
    """Return how the kernels of a call were built.

    Raises CapsuleError for a mode that there is none of.
    """
    try:
        return next((Mode(ref.mode) for ref in call.builds), Mode.RELEASE)
    except ValueError as error:
        raise CapsuleError(path, f"names a build mode: {error}") from None


def _on_cuda(call: Call, device: str | None) -> bool:
    return (device or call.device or "cpu").startswith("cuda")

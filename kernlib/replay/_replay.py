"""Replays calls: one child a run, then the report."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernlib import dump, jit
from kernlib.config import Level, Mode, get_config
from kernlib.errors import CapsuleError
from kernlib.replay._describe import arguments_of, recorded_end_text
from kernlib.replay._locate import locate
from kernlib.replay._machine import machine_differences, still_running
from kernlib.replay._protocol import Built, Compared, Found, Noted, Request
from kernlib.replay._report import (
    Argument,
    Attempt,
    BuildLine,
    CallReport,
    Report,
)
from kernlib.replay._run import run_child
from kernlib.replay._tools import tool_for
from kernlib.replay._verdict import RecordedEnd, Verdict, conclude

if TYPE_CHECKING:
    from kernlib.config import Config
    from kernlib.dump import Call, CallEntry, Session
    from kernlib.replay._run import ChildEnd
    from kernlib.replay._select import Selection
    from kernlib.replay._tools import Tool
    from kernlib.replay._verdict import Conclusion

__all__ = ["Options", "replay"]

_EXTRA_FLAGS = ("KERNLIB_EXTRA_CFLAGS", "KERNLIB_EXTRA_CUDAFLAGS", "KERNLIB_EXTRA_LDFLAGS")
_LOG_TAIL = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked of a replay; ``mode`` None tries what the recorded end suggests."""

    command: str
    packages: tuple[str, ...] = ()
    mode: Mode | None = None
    device: str | None = None
    timeout: float = 120.0
    trust_sources: bool = False
    keep: Path | None = None


@dataclass(frozen=True, slots=True)
class _Run:
    """One finished child: how it was run and what is concluded from it."""

    mode: Mode
    tool: Tool
    end: ChildEnd
    conclusion: Conclusion
    folder: Path


def replay(selection: Selection, options: Options) -> Report:
    """Replay the selected calls and return the report; the worst verdict decides the exit."""
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
        if entry.status == "started" and (alive := still_running(session)) is not None:
            self._notes.append(alive)

    def report(self) -> CallReport:
        """Run the call until a run shows what was recorded, and report."""
        try:
            call = dump.read_call(self._entry.path)
            recorded = _recorded_end(call)
            on_cuda = _on_cuda(call, self._options.device)
            modes = self._modes(call, recorded, on_cuda=on_cuda)
            config = self._child_config(call)
        except CapsuleError as error:
            return self._refusal(str(error))
        runs: list[_Run] = []
        for mode in modes:
            runs.append(self._run(call, recorded, config.replace(jit_mode=mode), on_cuda=on_cuda))
            if runs[-1].conclusion.verdict is not Verdict.NOT_REPRODUCED:
                break
        return self._written(call, runs, on_cuda=on_cuda)

    def _modes(self, call: Call, recorded: RecordedEnd, *, on_cuda: bool) -> list[Mode]:
        """Return the builds to try in turn.

        A crash is first looked for where a tool names the line; if it stays away there, it is
        tried as it was recorded, since another build is other code.
        """
        try:
            as_recorded = [Mode(ref.mode) for ref in call.builds] or [Mode.RELEASE]
        except ValueError as error:
            raise CapsuleError(self._entry.path, f"names a build mode: {error}") from None
        if self._options.mode is not None:
            return [self._options.mode]
        if not recorded.crashed:
            return as_recorded[:1]
        first = Mode.LINEINFO if on_cuda else Mode.SANITIZE
        return list(dict.fromkeys((first, as_recorded[0])))

    def _child_config(self, call: Call) -> Config:
        config = get_config().replace(
            log_level=Level.OFF, control=None,
            include=(), exclude=(), dump_include=(), dump_exclude=(),
        )  # fmt: skip
        if not self._options.trust_sources:
            return config
        controls = self._session.process.controls if self._session else {}
        flags = {name: controls[name] for name in _EXTRA_FLAGS if name in controls}
        config = type(config).from_env({**config.to_env(), **flags})
        return config.replace(jit_sources=self._recorded_sources(call))

    def _recorded_sources(self, call: Call) -> Path:
        """Lay out the recorded sources of every build of the session, one folder a URI."""
        root = self._scratch / "recorded-sources"
        for ref in call.builds:
            files = dump.read_build(self._selection.session, ref.key)
            folder = root / ref.uri
            if folder.resolve().parent != root.resolve():
                raise CapsuleError(self._entry.path, f"build URI {ref.uri!r} is no file name")
            for label, text in files.sources.items():
                path = folder / label
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text)
        root.mkdir(parents=True, exist_ok=True)
        return root

    def _run(self, call: Call, recorded: RecordedEnd, config: Config, *, on_cuda: bool) -> _Run:
        folder = self._scratch / f"call-{call.sequence}-{config.jit_mode}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        tool = tool_for(config.jit_mode, on_cuda=on_cuda, config=config, folder=folder)
        request = Request(
            str(self._entry.path.absolute()), list(self._options.packages), self._options.device
        )
        end = run_child(request, config, tool, folder=folder, timeout=self._options.timeout)
        return _Run(config.jit_mode, tool, end, conclude(recorded, end, call.sequence), folder)

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

    def _written(self, call: Call, runs: list[_Run], *, on_cuda: bool) -> CallReport:
        final = runs[-1]
        end, verdict = final.end, final.conclusion.verdict
        notes = [event.text for event in end.events if isinstance(event, Noted)]
        if final.tool.missing:
            notes.append(final.tool.missing)
        generated = jit.generated_dir(get_config())
        source = locate(end.fault, generated) if end.fault else None
        device = self._options.device or call.device or "cpu"
        return CallReport(
            verdict=verdict.word,
            exit_status=verdict.exit_status,
            reason=final.conclusion.reason,
            session=self._selection.session.name,
            call=call.sequence,
            api=call.api,
            recorded=f"{recorded_end_text(call)} (chosen: {self._selection.why})",
            capsule=str(self._entry.path),
            caller=call.caller,
            arguments=[Argument(name, text) for name, text in arguments_of(call)],
            attempts=[_attempt(run, device) for run in runs],
            source=source,
            where=end.fault.thread if end.fault else "",
            findings=[
                Argument(event.argument, event.message)
                for event in end.events
                if isinstance(event, Found)
            ],
            builds=[_build_line(event) for event in end.events if isinstance(event, Built)],
            comparisons=[
                Argument(event.name, _comparison(event))
                for event in end.events
                if isinstance(event, Compared)
            ],
            machine_differences=machine_differences(self._session),
            notes=[*self._notes, *notes],
            next=self._next(call, verdict, final, on_cuda=on_cuda),
        )

    def _next(self, call: Call, verdict: Verdict, final: _Run, *, on_cuda: bool) -> list[str]:
        """Return the commands worth running next."""
        base = f"{self._options.command} --call {call.sequence}"
        built = [event for event in final.end.events if isinstance(event, Built)]
        commands = []
        if verdict is Verdict.REPRODUCED and built and final.mode is not Mode.DEBUG:
            commands.append(f"{base} --mode debug")
        if verdict is Verdict.NOT_REPRODUCED:
            commands.append(f"{base} --mode {'debug' if on_cuda else 'sanitize'}")
        changed = any(event.differences for event in built) and not self._options.trust_sources
        if changed:
            commands.append(f"{base} --trust-sources")
        if self._options.keep is None and verdict.exit_status:
            commands.append(f"{base} --keep replay-files")
        return commands


def _recorded_end(call: Call) -> RecordedEnd:
    exception = call.exception
    return RecordedEnd(
        call.status,
        exception.type if exception else "",
        exception.message if exception else "",
        call.device_error or "",
    )


def _on_cuda(call: Call, device: str | None) -> bool:
    return (device or call.device or "cpu").startswith("cuda")


def _attempt(run: _Run, device: str) -> Attempt:
    return Attempt(
        str(run.mode),
        run.tool.name,
        device,
        run.conclusion.verdict.word,
        run.conclusion.reason,
        round(run.end.seconds, 3),
        run.end.log[-_LOG_TAIL:],
    )


def _comparison(event: Compared) -> str:
    how = "agrees" if event.matches else "DIFFERS"
    tolerance = f" ({event.tolerance})" if event.tolerance else ""
    return f"{event.dtype} {how}: {event.detail}{tolerance}".strip()


def _build_line(event: Built) -> BuildLine:
    return BuildLine(
        event.uri,
        event.target,
        event.mode,
        event.key,
        event.library,
        event.size,
        event.sha256,
        event.recorded_key,
        is_recorded=event.recorded_key is not None and event.key == event.recorded_key,
        same_sources_and_flags=event.recorded_key is not None
        and event.same_record_key == event.recorded_key,
        differences=event.differences,
        machine_code=event.machine_code,
    )

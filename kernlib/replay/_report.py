"""The report of a replay, as data."""

from __future__ import annotations

import msgspec

from kernlib.replay._address import Target  # noqa: TC001 - msgspec reads the annotations

__all__ = [
    "Argument",
    "Attempt",
    "BuildLine",
    "CallReport",
    "Finding",
    "Judgement",
    "Report",
    "SourceLine",
    "schema_json",
]

SCHEMA = 2


class Argument(msgspec.Struct, frozen=True):
    """A recorded argument in one line."""

    name: str
    text: str


class Finding(msgspec.Struct, frozen=True):
    """An argument that breaks a declared precondition, and which recorded call wrote it."""

    name: str
    text: str
    origin: str = ""


class Judgement(msgspec.Struct, frozen=True):
    """Whether it was bad input or a kernel bug: the answer, how sure it is, and why."""

    answer: str
    confidence: str
    text: str


class SourceLine(msgspec.Struct, frozen=True):
    """The faulting line: where it is, its text and what stands around it."""

    file: str
    line: int
    function: str
    text: str
    around: list[tuple[int, str]] = []
    certain: bool = True


class BuildLine(msgspec.Struct, frozen=True):
    """A kernel the replay loaded, and what keeps it from the recorded one."""

    uri: str
    target: str
    mode: str
    key: str
    library: str
    size: int
    sha256: str
    recorded_key: str | None
    is_recorded: bool
    same_sources_and_flags: bool
    differences: list[str]
    machine_code: str | None = None


class Attempt(msgspec.Struct, frozen=True):
    """One rung: how its children were run and what they showed.

    ``verdict`` is empty for a rung that was not run, which ``reason`` explains. ``hits`` of the
    ``times`` runs showed the end that is looked for; ``seconds`` is how long all of them took.
    """

    rung: str
    about: str
    mode: str
    tool: str
    device: str
    verdict: str
    reason: str
    seconds: float = 0.0
    hits: int = 0
    times: int = 0
    source: SourceLine | None = None
    target: Target | None = None
    log: str = ""


class CallReport(msgspec.Struct, frozen=True):
    """Everything the replay found out about one call.

    ``rung`` is the one that decided. ``fault`` is what the rung that names the line says of it,
    ``stack`` its frames in kernel sources, inlined ones too, ``where`` the thread, ``target`` the
    argument that the fault's address belongs to. ``diagnosis`` and ``findings`` are of the recorded
    arguments alone.
    ``machine`` is what this machine is, ``machine_differences`` how it differs from the recorded.
    """

    verdict: str
    exit_status: int
    reason: str
    session: str
    call: int
    api: str
    recorded: str
    capsule: str
    caller: str = ""
    arguments: list[Argument] = []
    attempts: list[Attempt] = []
    source: SourceLine | None = None
    rung: str = ""
    stack: list[str] = []
    fault: str = ""
    where: str = ""
    target: Target | None = None
    diagnosis: Judgement | None = None
    findings: list[Finding] = []
    builds: list[BuildLine] = []
    comparisons: list[Argument] = []
    machine: str = ""
    machine_differences: list[str] = []
    notes: list[str] = []
    next: list[str] = []


class Report(msgspec.Struct, frozen=True):
    """The whole report; ``schema`` grows when a field changes its meaning."""

    verdict: str
    exit_status: int
    calls: list[CallReport]
    schema: int = SCHEMA


def schema_json() -> str:
    """Return the JSON Schema of what ``--json`` writes."""
    return msgspec.json.format(msgspec.json.encode(msgspec.json.schema(Report))).decode() + "\n"

"""Recorders of their own for tests, and what they left on disk."""

from pathlib import Path

from kernlib import dump
from kernlib._runtime import _api_of, build_recorder
from kernlib.config import Config, Level
from kernlib.logging import recorded


class Recording:
    """A recorder at level dump into a folder, its decorator, and the calls it left."""

    def __init__(self, folder, **settings):
        self.folder = folder / "dumps"
        self.log = folder / "calls.log"
        defaults = {
            "log_level": Level.DUMP,
            "log_dest": str(self.log),
            "dump_dir": self.folder,
        }
        self.config = Config(**(defaults | settings))
        self.recorder = build_recorder(self.config)

    def api(self, function=None, *, setup=False):
        """Decorate a function as ``kernel_api`` does, for this recorder only."""
        if function is None:
            return lambda target: self.api(target, setup=setup)
        return recorded(function, _api_of(function, type(function), setup=setup), self.recorder)

    @property
    def session(self):
        """The folder of the one session there is."""
        (entry,) = dump.list_sessions(self.folder)
        assert entry.problem is None
        return entry.path

    def entries(self):
        """Return what the list shows, by sequence number; nothing is broken or left over."""
        entries = dump.list_calls(self.session)
        assert [entry.problem for entry in entries if entry.problem] == []
        return {entry.sequence: entry for entry in entries}

    def apis(self):
        """Return the names of the calls kept, in order."""
        return [entry.api for entry in self.entries().values()] if self.folder.exists() else []

    def call(self, sequence):
        return dump.read_call(self.entries()[sequence].path)

    def arguments(self, sequence):
        """Return the arguments by name, as they were before the call."""
        return arguments(self.entries()[sequence].path)

    def result(self, sequence):
        """Return the result with the memory as the call left it."""
        return result(self.entries()[sequence].path)

    def lines(self):
        return self.log.read_text().splitlines()


def arguments(path):
    """Return the arguments of a capsule by name, as they were before the call."""
    call = dump.read_call(path)
    views = dump.rebuild(call.storages, dump.input_views(call), dump.read_inputs(path, call))
    nodes = dict(zip(call.arguments.names, call.arguments.args, strict=True))
    nodes |= call.arguments.kwargs
    return {name: dump.decode(node, views) for name, node in nodes.items()}


def result(path):
    """Return the result of a capsule with the memory as the call left it."""
    call = dump.read_call(path)
    pieces = [*dump.read_inputs(path, call), *dump.read_outputs(path, call)]
    return dump.decode(call.result, dump.rebuild(call.storages, dump.result_views(call), pieces))


def check_whole(session):
    """Return the calls of a session by number, each decoded completely; and the problems."""
    calls, problems = {}, []
    for entry in dump.list_calls(Path(session)):
        if entry.problem is not None:
            problems.append(entry.problem)
            continue
        call = calls[entry.sequence] = dump.read_call(entry.path)
        arguments(entry.path)
        if call.result is not None:
            result(entry.path)
        for build in call.builds:
            assert dump.read_build(Path(session), build.key).sources
    return calls, problems

"""The apis of this process, and their recorder."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

from kernlib.config import Config, Level, get_config
from kernlib.logging._control import ControlFile
from kernlib.logging._decorator import connect
from kernlib.logging._settings import changed, changes_text
from kernlib.logging._switch import Switch, forwarding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from kernlib.logging._call import RecordedApi
    from kernlib.logging._recorder import Recorder

    Build = Callable[[Config], "Recorder | None"]

__all__ = ["Process", "disable", "enable", "process"]

_logger = logging.getLogger("kernlib.recorder")
#: Where a function keeps its declaration, so that both live and die together.
_MARK = "__kernlib_api__"


@dataclass(eq=False)
class _Declared:
    """An api whose calls can be switched."""

    switch: Switch
    api: RecordedApi

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Stay behind where a function is pickled by its value: it is declared here, not there."""
        return type(None), ()


class Process:
    """Knows every api that was declared, and connects all of them to another recorder at once.

    Until something is switched the environment decides, when the first api is declared.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may switch while this thread does
        self._declared: weakref.WeakSet[_Declared] = weakref.WeakSet()
        self._fixed: dict[str, RecordedApi] = {}
        self._build: Build | None = None
        self._config: Config | None = None
        self._recorder: Recorder | None = None
        self._order: tuple[Any, Any] | None = None

    @property
    def recorder(self) -> Recorder | None:
        """What the calls of this process go to; None: nothing is recorded."""
        return self._recorder

    def declare(
        self, function: Callable[..., Any], api: RecordedApi, build: Build
    ) -> Callable[..., Any]:
        """Return what is to be public: the function itself, recorded or not.

        A callable without code of its own comes back as it is while nothing is recorded, and
        then stays so; ``build`` makes the recorder of a configuration.
        """
        with self._lock:
            if self._build is None:
                self._begin(build)
            if isinstance(function, FunctionType):
                _forget(function)
                return self._add(Switch(function), api)
            if not self._wanted(api):
                self._fixed[api.name] = api
                return function
            return self._add(Switch(forwarding(function), function), api)

    def configure(self, config: Config, source: str) -> None:
        """Record as ``config`` says from the next call on; the former recorder is let go.

        Its session is closed when the calls that it has begun are through.
        """
        with self._lock:
            if self._build is not None:
                self._recorder = self._make(self._build, config)
                for declared in list(self._declared):
                    connect(declared.switch, declared.api, self._recorder)
            self._config = config
            fixed = [api.name for api in self._fixed.values() if self._wanted(api)]
        _logger.info("%s: recording is now %s", source, changes_text(config))
        if fixed:
            _logger.warning(
                "not recorded: %s; what is no Python function cannot be switched later, only "
                "recorded from the start, with KERNLIB_LOG_LEVEL set",
                ", ".join(fixed),
            )

    def switch_off(self) -> None:
        """Record nothing from the next call on."""
        if self._recorder is not None or self._build is None:
            self.configure(Config(), "disable()")

    def follow(self, fields: Mapping[str, str], path: Path) -> None:
        """Record as the environment says but for what an operator has written in the file."""
        config = changed(get_config(), fields)
        if config != self._config:
            self.configure(config, str(path))

    def _begin(self, build: Build) -> None:
        environment = get_config()
        if self._config is None:
            self._config = environment
        self._build = build
        self._recorder = self._make(build, self._config)
        # A fork while another thread switches would leave the child half switched, and locked.
        os.register_at_fork(
            before=self._lock.acquire,
            after_in_parent=self._lock.release,
            after_in_child=self._lock.release,
        )
        if environment.control is not None:
            ControlFile(environment.control, self.follow).start()

    def _make(self, build: Build, config: Config) -> Recorder | None:
        """Return a recorder that goes on with the numbers, and the open calls, of the former."""
        recorder = build(config)
        if recorder is not None:
            self._order = self._order or (recorder.numbers, recorder.current)
            recorder.numbers, recorder.current = self._order
        return recorder

    def _wanted(self, api: RecordedApi) -> bool:
        return self._recorder is not None and self._recorder.takes(api)

    def _add(self, switch: Switch, api: RecordedApi) -> Callable[..., Any]:
        declared = _Declared(switch, api)
        switch.function.__dict__[_MARK] = declared
        self._declared.add(declared)
        connect(switch, api, self._recorder)
        return switch.function


def _forget(function: FunctionType) -> None:
    """Undo what an earlier declaration of the same function has exchanged."""
    former = function.__dict__.pop(_MARK, None)
    if former is not None and former.switch.function is function:  # not copied by functools.wraps
        former.switch.restore()


process = Process()
"""The one of this process."""


def enable(
    level: Level | int | str = Level.ARGS,
    *,
    include: Iterable[str] | str | None = None,
    exclude: Iterable[str] | str | None = None,
    **settings: object,
) -> None:
    """Record from the next call on, whatever the environment says of the level.

    ``include`` and ``exclude`` are fnmatch patterns on api names; ``settings`` are any other
    recording fields of ``Config``, such as ``dump_dir``. What is not given is as the environment
    says. A second call starts from there again, with a session of its own. An object that was made
    before is recorded from now on, but cannot be replayed without its ``__init__``.

    A forked child inherits this; a spawned one reads its environment (there and for processes of
    others ``KERNLIB_CONTROL`` names a file to switch by). Whoever has spoken last counts.

    Raises ConfigError for a value that the environment would not allow, TypeError for an unknown
    setting.
    """
    given = {"include": include, "exclude": exclude}
    fields = {name: patterns for name, patterns in given.items() if patterns is not None}
    config = changed(get_config(), {"log_level": level, **fields, **settings})
    process.configure(config, "enable()")


def disable() -> None:
    """Record nothing from the next call on: every api is again the code it was."""
    process.switch_off()

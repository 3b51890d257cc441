"""Knows all parts of a recording process."""

from __future__ import annotations

import dataclasses
import inspect
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from kernlib._registry import Api, positional_names, registry
from kernlib.config import Level
from kernlib.logging import process

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernlib._checks import Check
    from kernlib.config import Config
    from kernlib.jit import KernelChoice
    from kernlib.logging import Guard, Kind, LogSink, RecordedApi, Recorder, RingSink

__all__ = ["build_recorder", "kernel_api"]

Function = TypeVar("Function", bound="Callable[..., Any]")


@overload
def kernel_api(function: Function, /) -> Function: ...


@overload
def kernel_api(
    *,
    kernels: Callable[..., tuple[KernelChoice, ...]] | None = None,
    checks: tuple[Check, ...] = (),
    setup: bool = False,
    outputs: tuple[str, ...] = (),
    workspaces: tuple[str, ...] = (),
) -> Callable[[Function], Function]: ...


def kernel_api(
    function: Any = None,
    *,
    kernels: Callable[..., tuple[KernelChoice, ...]] | None = None,
    checks: tuple[Check, ...] = (),
    setup: bool = False,
    outputs: tuple[str, ...] = (),
    workspaces: tuple[str, ...] = (),
) -> Any:
    """Declare a public function or method an api: it can be recorded and replayed.

    The very function object is returned, and costs what it did: what is recorded, from the start
    (``KERNLIB_LOG_LEVEL``) or later (``kernlib.logging.enable``), runs other code for a while.

    ``kernels`` takes the api's own arguments and returns the kernels that it will build; with it
    a capsule carries their sources and a replay can rebuild them in another mode. ``checks`` are
    preconditions that a replay evaluates on recorded arguments, and ``KERNLIB_CHECK=1`` before
    each call, which waits for the device where they read what is there. ``setup=True`` marks a
    method whose effects on its receiver later calls rely on; ``__init__`` always is one.
    ``outputs`` and ``workspaces`` name arguments (or attributes: ``self.name``) whose contents
    before a call mean nothing or may be stale: a replay may fill them with anything.

    The call of a coroutine begins when it is first awaited, that of a generator with its first
    item; it ends when the body does, by itself or closed. Between the steps it is ``suspended``.
    What a generator yields, and what is sent into it, is counted and not recorded.

    Raises RegistryError if another module of the same package claims the api's name, or if an
    output or a workspace is none of the function's arguments.
    """

    def decorate(target: Any) -> Any:  # noqa: ANN401 - functions and method descriptors
        plain = target.__func__ if isinstance(target, (staticmethod, classmethod)) else target
        api = dataclasses.replace(
            _api_of(plain, type(target), setup=setup),
            kernels=kernels, checks=checks, outputs=outputs, workspaces=workspaces,
        )  # fmt: skip
        registry.add(api)
        public = process.declare(plain, api, build_recorder)
        return target if public is plain else _wrapped_like(target, public)

    return decorate if function is None else decorate(function)


#: What the name of the first parameter says of a function inside a class, by convention.
_KINDS: dict[str, Kind] = {"self": "method", "cls": "classmethod"}


def _api_of(function: Callable[..., Any], descriptor: type, *, setup: bool) -> Api:
    """Return an api that declares nothing but what it is."""
    name, kind = _identity(function, descriptor)
    setup = setup or (kind == "method" and name.endswith(".__init__"))
    return Api(name, function, setup=setup, kind=kind)


def _identity(function: Callable[..., Any], descriptor: type) -> tuple[str, Kind]:
    """Return the name of an api and what it is to its class."""
    name = function.__qualname__.rpartition("<locals>.")[2]
    if descriptor is staticmethod:
        return name, "staticmethod"
    if descriptor is classmethod:
        return name, "classmethod"
    if "." not in name:
        return name, "function"
    if name.endswith(".__init__"):
        return name, "method"
    # Under @staticmethod or @classmethod a function looks like a method; its first argument
    # must not be taken for a receiver, whose memory is not an argument's.
    return name, _KINDS.get(next(iter(positional_names(function)), "self"), "staticmethod")


def _wrapped_like(target: object, outcome: Callable[..., Any]) -> object:
    if isinstance(target, (staticmethod, classmethod)):
        return type(target)(outcome)
    return outcome


def build_recorder(config: Config) -> Recorder | None:
    """Return a recorder with the sinks that the level asks for; None if there is nothing to do."""
    if config.log_level is Level.OFF and not config.check:
        return None
    from kernlib.logging import CallRules, DumpSink, Recorder

    guards = guard_of if config.check else None
    if config.log_level is Level.OFF:
        return Recorder((), guards=guards)
    rules = CallRules.of(config)
    sinks: list[Any] = [_line_sink(config)]
    if config.log_level >= Level.DUMP:
        from kernlib._builds import capture_builds
        from kernlib._facts import session_facts

        sinks.append(DumpSink(config, lambda: session_facts(config), capture_builds, rules))
    return Recorder(sinks, sync=config.sync, rules=rules, guards=guards)


def guard_of(api: RecordedApi) -> Guard | None:
    """Return what evaluates an api's declared preconditions before each call; None without any."""
    checks, signature = getattr(api, "checks", ()), cache(inspect.signature)
    if not checks:
        return None
    from kernlib._checks import LiveValues
    from kernlib.logging import Guard

    bound = api.kind == "method"

    def problems(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Callable[[], list[Any]]]:
        values = LiveValues.of(signature(api.function), args, kwargs, bound=bound)
        return [partial(check.findings, values) for check in checks]

    return Guard(api.name, problems)


def _line_sink(config: Config) -> LogSink | RingSink:
    """Return what writes a line, or a record, of every call."""
    from kernlib._native_recorder import native_recorder
    from kernlib._statistics import FusedStatistics
    from kernlib.logging import LogSink, RingSink, statistics

    measured, native = FusedStatistics(config, statistics), native_recorder(config)
    if config.log_format != "ring":
        return LogSink(config, measured, native)
    from kernlib._facts import session_facts

    return RingSink(config, lambda: session_facts(config), native, measured)

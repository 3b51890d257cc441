"""Which functions are apis: name to record."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from kernlib.errors import RegistryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernlib._checks import Check
    from kernlib.jit import KernelChoice

__all__ = ["Api", "Registry", "argument_names", "positional_names", "registry"]


def positional_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return what positional arguments are bound to; nothing if the function does not tell."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(parameter.name for parameter in parameters if parameter.kind in positional)


def argument_names(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """Return the names that arguments can have; None if any can, or the function does not tell."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = {parameter.kind for parameter in parameters}
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return None
    return tuple(parameter.name for parameter in parameters)


@dataclass(frozen=True)
class Api:
    """A decorated public function or method.

    ``kernels`` maps the api's own arguments to what it will build; ``setup`` marks a method
    whose effects later methods of the same receiver rely on. ``outputs`` and ``workspaces`` name
    arguments, or attributes as ``self.name``, whose contents before a call mean nothing (outputs)
    or may be stale (workspaces); where a call's output shares memory with an input, as ``out=x``
    does, the input's contents count.
    """

    name: str
    function: Callable[..., Any]
    kernels: Callable[..., tuple[KernelChoice, ...]] | None = None
    checks: tuple[Check, ...] = ()
    setup: bool = False
    kind: Literal["function", "method", "staticmethod", "classmethod"] = "function"
    outputs: tuple[str, ...] = ()
    workspaces: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The module that defines the function."""
        return self.function.__module__

    @property
    def package(self) -> str:
        """The top-level package that defines the function."""
        return self.module.partition(".")[0]

    @property
    def owner(self) -> str | None:
        """The qualified name of the class, for methods."""
        return self.name.rpartition(".")[0] if self.kind in {"method", "classmethod"} else None

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names that positional arguments are bound to; none if the function does not tell."""
        return positional_names(self.function)

    def owner_class(self) -> type[Any]:
        """Return the class of a method, found in the module that registered it.

        Raises RegistryError if the module no longer has it.
        """
        import sys

        found: object = sys.modules[self.module]
        for part in (self.owner or "").split("."):
            found = getattr(found, part, None)
        if not isinstance(found, type):
            raise RegistryError(self.name, f"module {self.module} has no class {self.owner}")
        return found


class Registry:
    """Api records by package and name; a later definition of the same place replaces the first."""

    def __init__(self) -> None:
        self._apis: dict[tuple[str, str], Api] = {}

    def add(self, api: Api) -> None:
        """Register an api.

        Raises RegistryError if another module of the package already claims the name, or if an
        output or a workspace is no argument of the function.
        """
        _refuse_unknown_names(api)
        known = self._apis.get((api.package, api.name))
        if known is not None and known.module != api.module:
            raise RegistryError(
                api.name, f"both {known.module} and {api.module} define it; give one another name"
            )
        self._apis[api.package, api.name] = api

    def get(self, package: str, name: str) -> Api:
        """Return an api.

        Raises RegistryError with the names that are close, and how to bring in the package.
        """
        try:
            return self._apis[package, name]
        except KeyError:
            raise RegistryError(name, self._why_unknown(package, name)) from None

    def __iter__(self) -> Iterator[Api]:
        return iter(self._apis.values())

    def _why_unknown(self, package: str, name: str) -> str:
        from difflib import get_close_matches

        names = [known for owner, known in self._apis if owner == package]
        if not names:
            return (
                f"no api of package {package!r} is registered; import it with --import {package}, "
                "or let the package declare the entry-point group kernlib.apis"
            )
        close = get_close_matches(name, names)
        return f"package {package!r} registers no such api" + (
            f"; close: {', '.join(close)}" if close else ""
        )


def _refuse_unknown_names(api: Api) -> None:
    for field in ("outputs", "workspaces"):
        for name in getattr(api, field):
            if not _accepts(api, name):
                takes = ", ".join(argument_names(api.function) or ()) or "no arguments"
                problem = f"{field} names {name!r}, but the function takes {takes}"
                raise RegistryError(api.name, problem)


def _accepts(api: Api, name: str) -> bool:
    """Return whether a function may have an argument, or a receiver with the attribute."""
    if name.startswith("self."):
        return api.kind == "method" and name.removeprefix("self.").isidentifier()
    names = argument_names(api.function)
    return names is None or name in names


registry = Registry()
"""The one table of this process."""

"""Every exception kernlib raises on purpose.

Each carries its facts as attributes, makes its sentence in ``__str__`` and survives pickling:
what happened, which value, what was expected, what to do next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = [
    "ArgumentError",
    "BuildError",
    "CapsuleError",
    "ConfigError",
    "FenceError",
    "IncludeError",
    "InvalidInputError",
    "KernlibError",
    "LaunchError",
    "LoadError",
    "MissingArtifactError",
    "NotReplayableError",
    "RecordingError",
    "RegistryError",
    "RingError",
    "SelectionError",
    "SpecError",
    "StaleArtifactError",
    "ToolchainError",
    "UnsupportedTargetError",
]


def _listed(values: Sequence[str], *, none: str = "none") -> str:
    return ", ".join(values) if values else none


class KernlibError(Exception):
    """Base of all errors raised by kernlib."""


class ArgumentError(KernlibError, ValueError):
    """An operator was given something that it cannot work with."""

    def __init__(self, api: str, problem: str) -> None:
        super().__init__(api, problem)
        self.api = api
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.api}: {self.problem}"


class InvalidInputError(KernlibError, ValueError):
    """An argument breaks a declared precondition; nothing was launched."""

    def __init__(self, api: str, argument: str, message: str) -> None:
        super().__init__(api, argument, message)
        self.api = api
        self.argument = argument
        self.message = message

    def __str__(self) -> str:
        return f"{self.api}: {self.message}"


class ConfigError(KernlibError, ValueError):
    """An environment variable or a Config field has a value that is not allowed."""

    def __init__(self, variable: str, value: str, expected: str) -> None:
        super().__init__(variable, value, expected)
        self.variable = variable
        self.value = value
        self.expected = expected

    def __str__(self) -> str:
        return f"{self.variable}={self.value!r}: expected {self.expected}"


class SpecError(KernlibError, ValueError):
    """A KernelSpec does not describe something that can be built."""

    def __init__(self, spec: str, problem: str) -> None:
        super().__init__(spec, problem)
        self.spec = spec
        self.problem = problem

    def __str__(self) -> str:
        return f"kernel spec {self.spec!r}: {self.problem}"


class IncludeError(KernlibError):
    """A quoted include of a kernel source was found in none of the include folders."""

    def __init__(self, source: str, line: int, include: str, searched: Sequence[str]) -> None:
        super().__init__(source, line, include, tuple(searched))
        self.source = source
        self.line = line
        self.include = include
        self.searched = tuple(searched)

    def __str__(self) -> str:
        return (
            f'{self.source}:{self.line}: #include "{self.include}" was not found; '
            f"searched {_listed(self.searched)}. Add the folder to the spec's include_dirs, "
            "or use <...> for a header of the toolchain"
        )


class ToolchainError(KernlibError):
    """A compiler or another tool is missing or does not answer."""

    def __init__(self, tool: str, problem: str, remedy: str) -> None:
        super().__init__(tool, problem, remedy)
        self.tool = tool
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.tool}: {self.problem}. {self.remedy}"


class UnsupportedTargetError(KernlibError):
    """A kernel was asked for on a target it does not support."""

    def __init__(self, spec: str, target: str, supported: Sequence[str]) -> None:
        super().__init__(spec, target, tuple(supported))
        self.spec = spec
        self.target = target
        self.supported = tuple(supported)

    def __str__(self) -> str:
        return (
            f"{self.spec} does not support target {self.target!r}; "
            f"supported: {_listed(self.supported)}"
        )


class MissingArtifactError(KernlibError):
    """Building is disabled and no valid artifact exists."""

    def __init__(self, spec: str, key: str, found: str) -> None:
        super().__init__(spec, key, found)
        self.spec = spec
        self.key = key
        self.found = found

    def __str__(self) -> str:
        return (
            f"{self.spec}: no valid artifact with key {self.key} and KERNLIB_JIT_DISABLE is set; "
            f"found {self.found}. Unset KERNLIB_JIT_DISABLE to build it here, "
            "install the kernlib-aot that holds it, "
            "or bring the artifact workspace of a machine that built it"
        )


class StaleArtifactError(MissingArtifactError):
    """An artifact built ahead of time is not what is wanted, and nothing can be built."""

    def __init__(self, spec: str, key: str, package: Path, found: str, obstacle: str) -> None:
        super().__init__(spec, key, found)
        self.args = (spec, key, package, found, obstacle)
        self.package = package
        self.obstacle = obstacle

    def __str__(self) -> str:
        return (
            f"{self.spec}: the ahead-of-time artifact {self.package} is not the wanted one "
            f"(key {self.key}): {self.found}. It cannot be built here: {self.obstacle}. "
            "Install the kernlib-aot made for this kernlib, or make one with kernlib aot build; "
            "KERNLIB_ALLOW_VERSION_MISMATCH=1 loads what is there, as an experiment"
        )


class BuildError(KernlibError):
    """A compiler refused a kernel."""

    def __init__(self, spec: str, target: str, mode: str, log_path: Path, first_error: str) -> None:
        super().__init__(spec, target, mode, log_path, first_error)
        self.spec = spec
        self.target = target
        self.mode = mode
        self.log_path = log_path
        self.first_error = first_error

    def __str__(self) -> str:
        return (
            f"building {self.spec} for {self.target} ({self.mode}) failed; "
            f"full log: {self.log_path}\n{self.first_error}"
        )


class LoadError(KernlibError):
    """A valid artifact could not be loaded into the process."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: could not be loaded: {self.reason}"


class LaunchError(KernlibError, RuntimeError):
    """A kernel could not be launched, or the device was in error before."""

    def __init__(self, kernel: str, device: str, reason: str, code: int) -> None:
        super().__init__(kernel, device, reason, code)
        self.kernel = kernel
        self.device = device
        self.reason = reason
        self.code = code

    def __str__(self) -> str:
        return f"{self.kernel} on {self.device}: {self.reason} (error {self.code})"


class RegistryError(KernlibError):
    """An api is unknown, or two functions claim the same name."""

    def __init__(self, api: str, problem: str) -> None:
        super().__init__(api, problem)
        self.api = api
        self.problem = problem

    def __str__(self) -> str:
        return f"api {self.api!r}: {self.problem}"


class RecordingError(KernlibError):
    """Base of the errors about what a recorder has written."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class CapsuleError(RecordingError):
    """A recorded session or capsule is torn, hostile, or of a version that cannot be read."""


class RingError(RecordingError):
    """A file is no ring of recorded calls, or cannot be read."""


class SelectionError(KernlibError):
    """Nothing in a dump folder matches what was asked for."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}. {self.remedy}"


class NotReplayableError(KernlibError):
    """A capsule lacks something that running its call again needs."""

    def __init__(self, call: str, reasons: Sequence[str]) -> None:
        super().__init__(call, tuple(reasons))
        self.call = call
        self.reasons = tuple(reasons)

    def __str__(self) -> str:
        return f"{self.call} cannot be replayed: {'; '.join(self.reasons)}"


class FenceError(KernlibError, RuntimeError):
    """Fenced memory cannot be had: the driver is missing, or refuses a call."""

    def __init__(self, call: str, problem: str) -> None:
        super().__init__(call, problem)
        self.call = call
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.call}: {self.problem}. The rung `recorded` needs no fenced memory"

"""Loads artifacts into the process, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernlib._fork import ForkLock
from kernlib.config import Mode, get_config
from kernlib.errors import LoadError
from kernlib.jit._backend import backend_named
from kernlib.jit._build import prepare

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernlib.config import Config
    from kernlib.jit._cache import Artifact
    from kernlib.jit._spec import KernelChoice

__all__ = ["Kernel", "load", "loaded_kernels", "open_kernel"]


class Kernel:
    """A loaded library and the functions it exports."""

    def __init__(self, artifact: Artifact, module: Any) -> None:  # noqa: ANN401 - the module of its backend
        self.artifact = artifact
        self._module = module
        self._functions: dict[str, Callable[..., Any]] = {}

    def function(self, name: str) -> Callable[..., Any]:
        """Return an exported function.

        Raises LoadError if the library exports no such function.
        """
        try:
            return self._functions[name]
        except KeyError:
            pass
        try:
            found = getattr(self._module, name)
        except AttributeError:
            raise LoadError(self.artifact.library, f"it exports no function {name!r}") from None
        self._functions[name] = found
        return found  # type: ignore[no-any-return]


class _Loaded:
    """The kernels of this process: by choice under one configuration, and by library."""

    def __init__(self) -> None:
        self.lock = ForkLock()
        self.config: Config | None = None
        self.by_choice: dict[KernelChoice | tuple[KernelChoice, Mode], Kernel] = {}
        self.by_library: dict[tuple[str, str], Kernel] = {}


_loaded = _Loaded()


def load(choice: KernelChoice, config: Config | None = None, mode: Mode | None = None) -> Kernel:
    """Return the loaded kernel of a choice: from this process, from disk, or built now.

    Raises LoadError if the library cannot be loaded, and what ``prepare`` raises.
    """
    config = get_config() if config is None else config
    wanted = choice if mode is None else (choice, mode)
    if config is _loaded.config and (kernel := _loaded.by_choice.get(wanted)) is not None:
        return kernel
    with _loaded.lock:
        kernel = _kernel_of(prepare(choice, config, mode))
        if config is not _loaded.config:
            _loaded.config, _loaded.by_choice = config, {}
        _loaded.by_choice[wanted] = kernel
        return kernel


def _kernel_of(artifact: Artifact) -> Kernel:
    """Return the loaded library of an artifact; one that was built anew is loaded beside it."""
    identity = artifact.key, artifact.sha256
    if (kernel := _loaded.by_library.get(identity)) is None:
        kernel = _loaded.by_library[identity] = open_kernel(artifact)
    return kernel


def open_kernel(artifact: Artifact) -> Kernel:
    """Load an artifact for its caller alone: no table of the process and no lock is touched.

    Raises LoadError if the library cannot be loaded.
    """
    record = artifact.record
    module = backend_named(record.backend).open(artifact.library, Mode(record.mode))
    return Kernel(artifact, module)


def loaded_kernels() -> tuple[Kernel, ...]:
    """Return every kernel that this process has loaded."""
    return tuple(_loaded.by_library.values())

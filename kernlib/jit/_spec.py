"""What to build, as frozen data."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TypeVar

from kernlib.errors import SpecError
from kernlib.jit._target import CPU, is_family, supports

_Data = TypeVar("_Data", "KernelSpec", "KernelChoice")

__all__ = ["BACKENDS", "KernelChoice", "KernelSpec"]

BACKENDS = ("cpu", "cuda", "triton")

_NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.]+", re.ASCII)
_UNITS = {"cpu": (".cc", ".cpp"), "cuda": (".cu", ".cc", ".cpp"), "triton": (".py",)}
_ARCHITECTURES = "architectures such as sm_90a or sm_80+"
_FAMILIES = {"cpu": "cpu", "cuda": _ARCHITECTURES, "triton": _ARCHITECTURES}
_LONGEST_URI = 150


def _made_again(data: _Data) -> tuple[partial[_Data], tuple[()]]:
    """Pickle by what it was made of: the hash of a text is another one in each process."""
    given = {row.name: getattr(data, row.name) for row in fields(data) if row.init}
    return partial(type(data), **given), ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSpec:
    """A kernel library: name, sources, parameters, flags, supported targets.

    ``sources`` and ``include_dirs`` are POSIX paths relative to ``root``; kernlib's own
    ``include`` and ``csrc`` are searched after them. ``headers`` are generated: file name and
    text, for what must be a constant when the kernel is compiled. ``targets`` are ``cpu``,
    architectures such as ``sm_90a``, or ``sm_80+`` for one and all later ones.

    Raises SpecError for a spec that cannot be built.
    """

    name: str
    backend: str
    root: Path
    sources: tuple[str, ...]
    include_dirs: tuple[str, ...] = ("include", "csrc")
    params: tuple[tuple[str, str | int | bool], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    cflags: tuple[str, ...] = ()
    cuda_flags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        """Refuse what cannot be built, and hash once: specs are keys on the hot path."""
        self._validate()
        object.__setattr__(self, "params", tuple(sorted(self.params)))
        facts = (self.uri, self.root, self.sources, self.headers, self.cflags, self.cuda_flags)
        object.__setattr__(self, "_hash", hash(facts))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[partial[KernelSpec], tuple[()]]:
        return _made_again(self)

    @property
    def uri(self) -> str:
        """The name with its backend and parameters, safe as a file name."""
        parts = [self.name, self.backend]
        parts += [f"{key}_{_UNSAFE.sub('_', str(value))}" for key, value in self.params]
        return "-".join(parts)

    def _validate(self) -> None:
        problem = ""
        if not _NAME.fullmatch(self.name):
            problem = "a name is lower-case letters, digits and underscores"
        elif self.backend not in BACKENDS:
            problem = f"backend {self.backend!r}; known are {', '.join(BACKENDS)}"
        elif not self.sources:
            problem = "there is no source to compile"
        elif not self.targets:
            problem = "no supported target is named"
        elif foreign := self._foreign_targets():
            known = _FAMILIES[self.backend]
            problem = f"target {foreign[0]!r}; a {self.backend} spec supports {known}"
        elif len(self.uri) > _LONGEST_URI:
            problem = f"parameters make a URI of {len(self.uri)} characters; {_LONGEST_URI} at most"
        elif len(dict(self.params)) != len(self.params):
            problem = "a parameter is named twice"
        else:
            problem = self._path_problem()
        if problem:
            raise SpecError(self.name, problem)

    def _foreign_targets(self) -> list[str]:
        if self.backend == CPU:
            return [family for family in self.targets if family != CPU]
        return [family for family in self.targets if not is_family(family)]

    def _path_problem(self) -> str:
        for path in (*self.sources, *self.include_dirs, *(name for name, _ in self.headers)):
            pure = PurePosixPath(path)
            if pure.is_absolute() or ".." in pure.parts or "\\" in path or not pure.parts:
                return f"path {path!r} must be relative to root and stay below it"
        endings = _UNITS[self.backend]
        for source in self.sources:
            if not source.endswith(endings):
                return f"source {source!r}; a {self.backend} spec compiles {', '.join(endings)}"
        return ""

    def supports(self, target: str) -> bool:
        """Return whether the spec may be built for a target."""
        return any(supports(family, target) for family in self.targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelChoice:
    """What an operator decided for one call: the spec, the target, and why."""

    spec: KernelSpec
    target: str
    reason: str = ""
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        """Hash once: choices are keys on the hot path."""
        object.__setattr__(self, "_hash", hash((self.spec, self.target)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[partial[KernelChoice], tuple[()]]:
        return _made_again(self)

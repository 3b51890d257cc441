"""Finds every file a compile unit includes."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kernlib.errors import IncludeError, SpecError
from kernlib.jit._workspace import source_root

if TYPE_CHECKING:
    from pathlib import Path

    from kernlib.jit._spec import KernelSpec

__all__ = ["GENERATED", "OWN_INCLUDE_DIRS", "closure"]

#: Where generated headers stand among the labels.
GENERATED = "generated"
#: kernlib's own include folders, searched after those of a spec.
OWN_INCLUDE_DIRS = ("include", "csrc")

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">]', re.MULTILINE)


def closure(spec: KernelSpec, override: Path | None = None) -> dict[str, bytes]:
    """Return the compile units of a spec and all they include, by label.

    A label is the path below the spec's root, or below kernlib's own for its headers. Quoted
    includes must be found; includes in angle brackets are followed where they are found, others
    belong to the toolchain. Conditions are not evaluated: an include inside ``#if`` counts.

    ``override`` is a folder in the layout of the labels that takes the place of both roots.

    Raises IncludeError for a quoted include that is nowhere, SpecError for a missing source.
    """
    return _Scan(spec, override).files()


class _Scan:
    def __init__(self, spec: KernelSpec, override: Path | None) -> None:
        self._spec = spec
        self._override = override
        self._found: dict[str, bytes] = {}
        self._absent: set[str] = set()
        own = source_root()
        roots = [override] if override else [spec.root, own]
        self._roots = list(dict.fromkeys(map(str, roots)))
        self._dirs = tuple(dict.fromkeys((*spec.include_dirs, *OWN_INCLUDE_DIRS, GENERATED)))
        for name, text in spec.headers:
            if override is None:
                self._found[f"{GENERATED}/{name}"] = text.encode()
            else:  # recorded whether a unit includes it or not
                self._read(f"{GENERATED}/{name}")

    def files(self) -> dict[str, bytes]:
        pending = list(self._spec.sources) + list(self._found)
        for source in self._spec.sources:
            if self._read(source) is None:
                where = ", ".join(map(str, self._roots))
                raise SpecError(self._spec.name, f"source {source!r} is not below {where}")
        seen: set[str] = set()
        while pending:
            label = pending.pop()
            if label not in seen:
                seen.add(label)
                pending += self._includes(label)
        return dict(sorted(self._found.items()))

    def _includes(self, label: str) -> list[str]:
        text = self._found[label]
        labels = []
        for match in _INCLUDE.finditer(text):
            name, quoted = match[2].decode(errors="replace").strip(), match[1] == b'"'
            found = self._resolve(label, name, quoted=quoted)
            if found is not None:
                labels.append(found)
            elif quoted and not _in_comment(text, match.start()):
                line = text.count(b"\n", 0, match.start()) + 1
                searched = (str(PurePosixPath(label).parent), *self._dirs)
                raise IncludeError(label, line, name, searched)
        return labels

    def _resolve(self, label: str, name: str, *, quoted: bool) -> str | None:
        beside = (str(PurePosixPath(label).parent),) if quoted else ()
        for folder in (*beside, *self._dirs):
            candidate = _normal(f"{folder}/{name}")
            if candidate is not None and self._read(candidate) is not None:
                return candidate
        return None

    def _read(self, label: str) -> bytes | None:
        """Return a file's bytes, from the first root that has it; what is nowhere is asked once.

        Most includes are the toolchain's, so that a warm load asks for many that are nowhere.
        """
        if label in self._found:
            return self._found[label]
        if label in self._absent:
            return None
        for root in self._roots:
            try:
                with open(f"{root}/{label}", "rb") as file:  # noqa: PTH123 - a Path costs as much
                    self._found[label] = file.read()
            except OSError:
                continue
            return self._found[label]
        self._absent.add(label)
        return None


def _in_comment(text: bytes, at: int) -> bool:
    return text.rfind(b"/*", 0, at) > text.rfind(b"*/", 0, at)


def _normal(path: str) -> str | None:
    """Return a label without ``.`` and ``..``; None if it leaves the roots."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and not parts:
            return None
        if part == "..":
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    return "/".join(parts)

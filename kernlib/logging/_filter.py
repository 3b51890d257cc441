"""Which apis are recorded, by name."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

__all__ = ["NameFilter"]


#: Matched only by patterns that match every method of a class.
_ANY_METHOD = "\0"


def _any_matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class NameFilter:
    """fnmatch patterns on api names; an empty include list admits every name."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def admits(self, name: str) -> bool:
        """Return whether the name is included and not excluded."""
        if _any_matches(name, self.exclude):
            return False
        return not self.include or _any_matches(name, self.include)

    def needs_setup_of(self, owner: str) -> bool:
        """Return whether a method of the class ``owner`` may be admitted.

        A call can only be replayed with the set-up calls of its receiver: a filter that admits
        ``PagedDecode.run`` must not lose ``PagedDecode.__init__``.
        """
        if _any_matches(f"{owner}.{_ANY_METHOD}", self.exclude):
            return False
        heads = (_head(pattern) for pattern in self.include)
        return not self.include or any(fnmatchcase(owner, head) for head in heads if head)


def _head(pattern: str) -> str:
    return pattern.rpartition(".")[0]

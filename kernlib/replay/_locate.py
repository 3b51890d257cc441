"""From the frames of a fault to a source line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernlib.replay._report import SourceLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernlib.replay._sanitizers import Fault, Frame

__all__ = ["label_of", "locate", "stack_text"]

_AROUND = 2
_LABEL_DEPTH = 2  # <workspace>/generated/<uri>/<digest>/<label>


def label_of(file: str, generated: Path) -> str | None:
    """Return the label of a kernel source, such as ``include/kernlib/norm.cuh``.

    None for files that are not below the workspace's folder of generated sources.
    """
    try:
        parts = Path(file).resolve().relative_to(generated.resolve()).parts
    except ValueError:
        return None
    return "/".join(parts[_LABEL_DEPTH:]) or None


def _around(path: Path, line: int) -> tuple[str, list[tuple[int, str]]]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "", []
    first = max(line - 1 - _AROUND, 0)
    shown = list(enumerate(lines[first : line + _AROUND], start=first + 1))
    return (lines[line - 1] if 0 < line <= len(lines) else ""), shown


def _source_line(frame: Frame, label: str, *, certain: bool) -> SourceLine:
    text, around = _around(Path(frame.file), frame.line)
    function = frame.function or "unknown function"
    return SourceLine(label, frame.line, function, text.strip(), around, certain)


def stack_text(fault: Fault, generated: Path) -> list[str]:
    """Return the fault's stack within kernel sources, a line a frame, the innermost first.

    A function that was inlined is a frame of its own: what follows it is where it was inlined.
    """
    labelled = [(frame, label_of(frame.file, generated)) for frame in fault.frames if frame.line]
    return [
        f"{frame.function or 'unknown function'} at {label}:{frame.line}"
        for frame, label in labelled
        if label is not None
    ]


def locate(fault: Fault, generated: Path) -> SourceLine | None:
    """Return the innermost line of kernel source in the fault's stack.

    Where no frame lies in a kernel's sources, the innermost frame with a line is returned and
    marked as a guess: the fault may lie in torch or in another library.
    """
    known: Sequence[Frame] = [frame for frame in fault.frames if frame.line]
    for frame in known:
        if (label := label_of(frame.file, generated)) is not None:
            return _source_line(frame, label, certain=True)
    return _source_line(known[0], known[0].file, certain=False) if known else None

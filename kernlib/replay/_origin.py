"""Names a tensor by the line that makes it."""

from __future__ import annotations

import linecache
import re
import sys
from pathlib import PurePath

__all__ = ["origin_of"]

_ASSIGNED = re.compile(r"^\s*([A-Za-z_][\w.]*)\s*(?::[^=]+)?=(?!=)")
_OURS = ("torch.", "kernlib.fence.", "kernlib.replay.")


def origin_of(operator: str) -> str:
    """Return what to call the tensor that an operator is making now for the code that called it.

    That is the name it is assigned to, where the line says so, with the operator and the line.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - the public way formats a whole stack
    while frame.f_back is not None and f"{frame.f_globals.get('__name__')}.".startswith(_OURS):
        frame = frame.f_back
    file, line = frame.f_code.co_filename, frame.f_lineno
    match = _ASSIGNED.match(linecache.getline(file, line))
    place = f"{operator} at {'/'.join(PurePath(file).parts[-2:])}:{line}"
    return f"{match[1]} ({place})" if match else f"a tensor ({place})"

"""The configuration of a replaying child."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernlib import dump
from kernlib.config import Level, get_config
from kernlib.errors import CapsuleError
from kernlib.replay._chain import session_of

if TYPE_CHECKING:
    from pathlib import Path

    from kernlib.config import Config
    from kernlib.dump import Call, Session

__all__ = ["child_config"]

_EXTRA_FLAGS = ("KERNLIB_EXTRA_CFLAGS", "KERNLIB_EXTRA_CUDAFLAGS", "KERNLIB_EXTRA_LDFLAGS")


def child_config(
    capsule: Path, call: Call, session: Session | None, *, sources: Path | None = None
) -> Config:
    """Return this process's configuration with recording off, and checks as they were recorded.

    With ``sources``, a folder to lay them out in, the recorded sources and flags are built.

    Raises CapsuleError if those cannot be had.
    """
    controls = session.process.controls if session else {}
    config = get_config().replace(
        log_level=Level.OFF, control=None, check="KERNLIB_CHECK" in controls,
        include=(), exclude=(), dump_include=(), dump_exclude=(),
    )  # fmt: skip
    if sources is None:
        return config
    flags = {name: controls[name] for name in _EXTRA_FLAGS if name in controls}
    config = type(config).from_env({**config.to_env(), **flags})
    return config.replace(jit_sources=_lay_out(capsule, call, sources))


def _lay_out(capsule: Path, call: Call, folder: Path) -> Path:
    """Lay out the recorded sources of every build of the call, one folder a URI."""
    root = folder / "recorded-sources"
    for ref in call.builds:
        files = dump.read_build(session_of(capsule), ref.key)
        place = root / ref.uri
        if place.resolve().parent != root.resolve():
            raise CapsuleError(capsule, f"build URI {ref.uri!r} is no file name")
        for label, text in files.sources.items():
            path = place / label
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
    root.mkdir(parents=True, exist_ok=True)
    return root

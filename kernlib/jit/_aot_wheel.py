"""Makes the wheel kernlib-aot of a folder of artifacts."""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from importlib import metadata
from typing import TYPE_CHECKING

from kernlib._version import __version__
from kernlib.config import Mode
from kernlib.errors import LoadError
from kernlib.jit._aot import PACKAGE
from kernlib.jit._aot_package import packed
from kernlib.jit._toolchain import toolchain_class
from kernlib.jit._workspace import source_root

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from kernlib.jit._record import ArtifactMetadata

__all__ = ["build_wheel", "platform_tag"]

_GLIBC = re.compile(r"glibc (\d+)\.(\d+)")
_TVM_FFI = re.compile(r"\d[\w.+!-]*")  # a version; other bindings need no package
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest a zip file can say: the same input, the same wheel
_RIGHTS = 0o100644 << 16


def build_wheel(folder: Path, destination: Path) -> Path:
    """Write the wheel of a folder that ``kernlib aot build`` made and return its path.

    It needs kernlib and tvm-ffi in the very versions that the artifacts were built with.

    Raises SelectionError for an empty folder, LoadError for an artifact that is damaged, of
    another version or mode, or for another kind of machine than the rest.
    """
    artifacts = packed(folder)
    for path, facts in artifacts:
        _check(path, facts)
    tag = f"py3-none-{platform_tag(folder, [facts for _, facts in artifacts])}"
    name = f"{PACKAGE}-{__version__}"
    contents = {
        f"{PACKAGE}/__init__.py": _module(),
        **_data(path for path, _ in artifacts),
        f"{name}.dist-info/METADATA": _metadata([facts for _, facts in artifacts]),
        f"{name}.dist-info/WHEEL": _wheel(tag),
    }
    if (text := _licence()) is not None:
        contents[f"{name}.dist-info/licenses/LICENSE"] = text
    record = f"{name}.dist-info/RECORD"
    contents[record] = _record(contents, record)
    destination.mkdir(parents=True, exist_ok=True)
    wheel = destination / f"{name}-{tag}.whl"
    hidden = wheel.with_name(f".{wheel.name}.tmp")
    try:
        with zipfile.ZipFile(hidden, "w", zipfile.ZIP_DEFLATED) as archive:
            for place, data in contents.items():
                entry = zipfile.ZipInfo(place, _EPOCH)
                entry.external_attr, entry.compress_type = _RIGHTS, zipfile.ZIP_DEFLATED
                archive.writestr(entry, data)
        hidden.replace(wheel)
    finally:
        hidden.unlink(missing_ok=True)
    return wheel


def _check(path: Path, facts: ArtifactMetadata) -> None:
    record = facts.record
    if record.kernlib != __version__:
        problem = f"it was built by kernlib {record.kernlib}, here is {__version__}"
        raise LoadError(path, f"{problem}; build it again with kernlib aot build")
    if record.mode != Mode.RELEASE:
        raise LoadError(path, f"it is a {record.mode} build; packages hold release builds only")


def platform_tag(folder: Path, artifacts: Sequence[ArtifactMetadata]) -> str:
    """Return the platform that all artifacts can run on: ``manylinux_2_36_x86_64``.

    The version is that of the newest C library any of them was built with, since symbols of it and
    of the C++ library beside it may be needed. A library built with an unknown one gives the tag of
    no guarantee, ``linux_x86_64``.

    Raises LoadError for artifacts of different processors.
    """
    processors = {
        machine
        for facts in artifacts
        if (machine := toolchain_class(facts.record.toolchain).get("cxx", "").rpartition(", ")[2])
    }
    if len(processors) > 1:
        raise LoadError(folder, f"it mixes artifacts for {' and '.join(sorted(processors))}")
    (machine,) = processors or {_this_machine()}
    native = [facts for facts in artifacts if "cxx" in facts.record.toolchain]
    found = [_GLIBC.fullmatch(facts.built.get("libc", "")) for facts in native]
    versions = [(int(match[1]), int(match[2])) for match in found if match is not None]
    if not versions or len(versions) < len(found):
        return f"linux_{machine}"
    major, minor = max(versions)
    return f"manylinux_{major}_{minor}_{machine}"


def _this_machine() -> str:
    import platform

    return platform.machine()


def _module() -> bytes:
    return f'"""Kernels of kernlib {__version__}, built ahead of time; data only."""\n'.encode()


def _data(folders: Iterable[Path]) -> dict[str, bytes]:
    return {
        f"{PACKAGE}/artifacts/{folder.name}/{path.relative_to(folder).as_posix()}": (
            path.read_bytes()
        )
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _metadata(artifacts: Sequence[ArtifactMetadata]) -> bytes:
    bindings = sorted({facts.record.tvm_ffi for facts in artifacts})
    needs = [f"apache-tvm-ffi=={version}" for version in bindings if _TVM_FFI.fullmatch(version)]
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {PACKAGE.replace('_', '-')}",
        f"Version: {__version__}",
        f"Summary: Kernels of kernlib {__version__}, built ahead of time.",
        "License-Expression: Apache-2.0",
        *(["License-File: LICENSE"] if _licence() is not None else []),
        "Requires-Python: >=3.10",
        *(f"Requires-Dist: {need}" for need in (f"kernlib=={__version__}", *needs)),
        "",
        "kernlib loads these instead of building them, where their build records agree:",
        "",
    ]
    purposes = {(facts.record.uri, facts.record.target) for facts in artifacts}
    lines += [f"- {uri} for {target}" for uri, target in sorted(purposes)]
    return ("\n".join(lines) + "\n").encode()


def _licence() -> bytes | None:
    try:
        text = metadata.distribution("kernlib").read_text("licenses/LICENSE")
    except metadata.PackageNotFoundError:
        text = None
    beside = source_root() / "LICENSE"  # of a checkout that is not installed
    if text is None:
        return beside.read_bytes() if beside.is_file() else None
    return text.encode()


def _wheel(tag: str) -> bytes:
    return (
        f"Wheel-Version: 1.0\nGenerator: kernlib {__version__}\n"
        f"Root-Is-Purelib: false\nTag: {tag}\n"
    ).encode()


def _record(contents: dict[str, bytes], own: str) -> bytes:
    """Return the list of files with digests, which an installer verifies."""
    rows = []
    for place, data in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{place},sha256={digest},{len(data)}")
    return ("\n".join([*rows, f"{own},,"]) + "\n").encode()

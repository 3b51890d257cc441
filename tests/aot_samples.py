"""Folders of artifacts built ahead of time by compilers that pretend."""

import json

from jit_samples import fake_config

from kernlib.jit._aot_package import ahead_choices, build_ahead

__all__ = ["bare", "compiled", "edit_record", "package", "snapshot"]


def package(specs, folder, targets=("cpu",), **changes):
    """Build specs ahead of time, by pretending compilers, and return the package's folder."""
    choices = ahead_choices(specs, targets)
    out = folder / "aot"
    for _ in build_ahead(choices, out, fake_config(folder, **changes)):
        pass
    return out


def bare(folder, aot, **changes):
    """Return the Config of a machine without compilers, whose workspace does not exist."""
    given = {
        "workspace": folder / "bare", "cxx": "/no/such/g++", "nvcc": "/no/such/nvcc",
        "aot_dir": aot,
    }  # fmt: skip
    return fake_config(folder, **{**given, **changes})


def compiled(tools):
    """Return how often the pretending compilers were started to compile."""
    calls = tools / "calls.txt"
    return sum(" -c " in row for row in calls.read_text().splitlines()) if calls.exists() else 0


def snapshot(folder):
    """Return every file below a folder with its bytes."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def edit_record(aot, change):
    """Rewrite the only artifact's record as another version of kernlib would have written it."""
    (path,) = aot.glob("*/build.json")
    metadata = json.loads(path.read_text())
    change(metadata["record"])
    path.write_text(json.dumps(metadata))

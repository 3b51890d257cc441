"""What is packaged holds what a machine without the checkout needs."""

import subprocess
import sys
import zipfile
from pathlib import PurePosixPath

import pytest

FOLDERS = {"csrc": "kernlib/_sources/csrc", "include": "kernlib/_sources/include", "kernlib": ""}


@pytest.fixture(scope="module")
def wheel(repository, tmp_path_factory):
    """Build a wheel as an installation would, without isolation and without dependencies."""
    pytest.importorskip("hatchling", reason="needs hatchling: the build backend is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps",
         "--disable-pip-version-check", "--wheel-dir", folder, "."],
        cwd=repository, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    with zipfile.ZipFile(next(folder.glob("kernlib-*.whl"))) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def tracked(repository):
    """Return the files of the packaged folders, without what Python leaves behind."""
    found = [path for top in FOLDERS for path in (repository / top).rglob("*") if path.is_file()]
    return [path.relative_to(repository) for path in found if "__pycache__" not in path.parts]


def test_it_holds_the_package_and_the_kernels_sources_byte_for_byte(wheel, repository):
    missing, different = [], []
    for path in tracked(repository):
        top, rest = path.parts[0], path.parts[1:]
        name = str(PurePosixPath(FOLDERS[top] or top, *rest))
        if name not in wheel:
            missing.append(name)
        elif wheel[name] != (repository / path).read_bytes():
            different.append(name)
    assert (missing, different) == ([], [])
    assert any(name.startswith("kernlib/_sources/csrc/") for name in wheel)
    assert any(name.startswith("kernlib/_sources/include/kernlib/") for name in wheel)


def test_it_holds_nothing_else(wheel):
    strays = [name for name in wheel if name.split("/")[0] != "kernlib"]
    assert all(".dist-info/" in name for name in strays), strays
    assert not any(name.endswith((".pyc", ".so", ".o")) for name in wheel)


def test_types_licence_and_programs_travel_with_it(wheel):
    assert {"kernlib/py.typed", "kernlib/__init__.pyi"} <= wheel.keys()
    (entry_points,) = [text for name, text in wheel.items() if name.endswith("entry_points.txt")]
    assert b"kernlib-replay = kernlib.replay.cli:main" in entry_points
    assert b"[kernlib.apis]" in entry_points
    assert any(name.endswith("licenses/LICENSE") for name in wheel)


def test_the_version_is_the_one_in_the_source(wheel):
    from kernlib._version import __version__

    assert any(name.startswith(f"kernlib-{__version__}.dist-info/") for name in wheel)

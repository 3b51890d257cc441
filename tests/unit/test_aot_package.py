"""What is built ahead of time is gathered in a folder, and the folder becomes a wheel."""

import base64
import email
import hashlib
import json
import os
import subprocess
import sys
import zipfile

import pytest
from aot_samples import bare, compiled, edit_record, package
from jit_samples import chosen, fake_config, plain_spec, write_root

from kernlib import jit
from kernlib._version import __version__
from kernlib.config import Mode
from kernlib.errors import (
    ConfigError,
    LoadError,
    SelectionError,
    ToolchainError,
    UnsupportedTargetError,
)
from kernlib.jit._aot_package import ahead_choices, build_ahead
from kernlib.jit._aot_wheel import build_wheel


@pytest.fixture
def root(tmp_path):
    return write_root(tmp_path / "root")


@pytest.fixture
def aot(root, tmp_path):
    return package([plain_spec(root)], tmp_path / "factory")


def test_choices_are_the_specs_that_support_a_target(root):
    specs = [plain_spec(root), plain_spec(root, "cuda"),
             plain_spec(root, "cuda", name="newer", targets=("sm_100a",))]  # fmt: skip
    found = ahead_choices(specs, ["cpu", "sm_80", "sm_100a", "sm_80"])
    assert [(choice.spec.name, choice.target) for choice in found] == [
        ("twice", "cpu"), ("twice", "sm_80"), ("twice", "sm_100a"), ("newer", "sm_100a"),
    ]  # fmt: skip


@pytest.mark.parametrize("target", ["sm_75", "sm_80+", "gpu", ""])
def test_what_no_kernel_supports_is_refused_before_anything_is_built(root, target):
    with pytest.raises(UnsupportedTargetError, match="cpu, sm_80"):
        ahead_choices([plain_spec(root), plain_spec(root, "cuda")], ["cpu", target])


def test_nothing_is_built_before_all_is_known_to_be_possible(root, tmp_path):
    specs = [plain_spec(root), plain_spec(root, "cuda")]
    tools = tmp_path / "factory" / "tools"
    with pytest.raises(ToolchainError, match="KERNLIB_NVCC"):
        package(specs, tmp_path / "factory", ("cpu", "sm_80"), nvcc="/no/such/nvcc")
    assert compiled(tools) == 0


def test_a_package_holds_libraries_and_records_alone(aot):
    (folder,) = aot.iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["build.json", "twice.so"]


def test_building_again_replaces_what_was_for_the_same_purpose(root, tmp_path):
    factory = tmp_path / "factory"
    specs = [plain_spec(root), plain_spec(root, "cuda")]
    first = {path.name for path in package(specs, factory, ("cpu", "sm_80")).iterdir()}
    (root / "csrc/twice/twice_cpu.cc").write_text("int other;\n")
    second = {path.name for path in package(specs, factory, ("cpu",)).iterdir()}
    assert len(first) == len(second) == 2
    assert len(first & second) == 1


def test_an_installed_package_does_not_serve_the_building_of_another(root, tmp_path, aot):
    tools = tmp_path / "tools"
    config = fake_config(tmp_path, aot_dir=aot)
    done = list(build_ahead(ahead_choices([plain_spec(root)], ["cpu"]), tmp_path / "out", config))
    assert [is_new for _, is_new in done] == [True]
    assert compiled(tools) == 1


def test_a_package_is_release_whatever_mode_is_configured(root, tmp_path):
    aot = package([plain_spec(root)], tmp_path / "factory", jit_mode=Mode.DEBUG)
    assert '"mode": "release"' in next(aot.glob("*/build.json")).read_text()


def test_where_building_is_disabled_nothing_is_built_ahead(root, tmp_path):
    with pytest.raises(ConfigError, match="KERNLIB_JIT_DISABLE"):
        package([plain_spec(root)], tmp_path / "factory", jit_disable=True)


def set_libc(aot, text, number=0):
    path = sorted(aot.glob("*/build.json"))[number]
    metadata = json.loads(path.read_text())
    metadata["built"]["libc"] = text
    path.write_text(json.dumps(metadata))


def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_is_named_after_version_and_platform(aot, tmp_path):
    set_libc(aot, "glibc 2.36")
    wheel = build_wheel(aot, tmp_path / "dist")
    assert wheel.name == f"kernlib_aot-{__version__}-py3-none-manylinux_2_36_x86_64.whl"
    assert [path.name for path in wheel.parent.iterdir()] == [wheel.name]


def test_the_platform_is_that_of_the_newest_builder(root, tmp_path):
    specs = [plain_spec(root), plain_spec(root, "cuda")]
    aot = package(specs, tmp_path / "factory", ("cpu", "sm_80"))
    for number, version in enumerate(("2.9", "2.34")):
        set_libc(aot, f"glibc {version}", number)
    assert "-manylinux_2_34_x86_64." in build_wheel(aot, tmp_path / "dist").name
    set_libc(aot, "")
    assert "-linux_x86_64." in build_wheel(aot, tmp_path / "dist").name


def test_it_holds_the_artifacts_byte_for_byte_in_the_layout_of_the_cache(aot, tmp_path):
    files = contents(build_wheel(aot, tmp_path / "dist"))
    expected = {
        f"kernlib_aot/artifacts/{path.relative_to(aot).as_posix()}": path.read_bytes()
        for path in aot.rglob("*")
        if path.is_file()
    }
    assert expected.items() <= files.items()
    rest = {name for name in files if ".dist-info/" not in name} - expected.keys()
    assert rest == {"kernlib_aot/__init__.py"}


def test_it_needs_the_very_kernlib_and_tvm_ffi_that_its_records_name(aot, tmp_path):
    (record,) = (json.loads(path.read_text())["record"] for path in aot.glob("*/build.json"))
    files = contents(build_wheel(aot, tmp_path / "dist"))
    (text,) = (data for name, data in files.items() if name.endswith("/METADATA"))
    metadata = email.message_from_bytes(text)
    assert (metadata["Name"], metadata["Version"]) == ("kernlib-aot", __version__)
    assert metadata.get_all("Requires-Dist") == [
        f"kernlib=={__version__}", f"apache-tvm-ffi=={record['tvm_ffi']}",
    ]  # fmt: skip
    assert "- twice-cpu for cpu" in metadata.get_payload()


def test_its_list_of_files_has_every_digest(aot, tmp_path):
    files = contents(build_wheel(aot, tmp_path / "dist"))
    (listed,) = (data.decode() for name, data in files.items() if name.endswith("/RECORD"))
    rows = dict(row.split(",", 1) for row in listed.splitlines())
    assert rows.keys() == files.keys()
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        expected = "," if name.endswith("/RECORD") else f"sha256={digest},{len(data)}"
        assert rows[name] == expected


def test_the_same_folder_gives_the_same_bytes(aot, tmp_path):
    wheels = [build_wheel(aot, tmp_path / name) for name in ("one", "two")]
    assert wheels[0].read_bytes() == wheels[1].read_bytes()


def test_it_installs_where_there_is_no_compiler_and_is_found(root, aot, tmp_path):
    set_libc(aot, "glibc 2.17")
    wheel = build_wheel(aot, tmp_path / "dist")
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
         "--disable-pip-version-check", "--target", site, wheel],
        check=True, capture_output=True, timeout=120, env={**os.environ, "PATH": str(empty)},
    )  # fmt: skip
    config = bare(tmp_path, site / "kernlib_aot" / "artifacts", jit_disable=True)
    assert jit.prepare(chosen(plain_spec(root)), config).path.is_relative_to(site)


@pytest.mark.parametrize(
    ("change", "told"),
    [({"kernlib": "0.0.1"}, r"kernlib 0\.0\.1, here is"), ({"mode": "debug"}, "a debug build")],
)
def test_what_must_not_be_packaged_is_refused(aot, tmp_path, change, told):
    edit_record(aot, lambda record: record.update(change))
    with pytest.raises(LoadError, match=told):
        build_wheel(aot, tmp_path / "dist")
    assert not (tmp_path / "dist").exists()


def test_a_damaged_artifact_is_refused(aot, tmp_path):
    next(aot.glob("*/twice.so")).write_bytes(b"")
    with pytest.raises(LoadError, match="0 bytes"):
        build_wheel(aot, tmp_path / "dist")


def test_one_wheel_is_for_one_processor(root, tmp_path):
    specs = [plain_spec(root), plain_spec(root, "cuda")]
    aot = package(specs, tmp_path / "factory", ("cpu", "sm_80"))
    path = min(aot.glob("*/build.json"))
    path.write_text(path.read_text().replace("x86_64-pretended", "aarch64-pretended"))
    with pytest.raises(LoadError, match="aarch64 and x86_64"):
        build_wheel(aot, tmp_path / "dist")


@pytest.mark.parametrize("exists", [True, False])
def test_an_empty_folder_is_refused_with_what_to_do(tmp_path, exists):
    if exists:
        (tmp_path / "aot").mkdir()
    with pytest.raises(SelectionError, match="kernlib aot build"):
        build_wheel(tmp_path / "aot", tmp_path / "dist")

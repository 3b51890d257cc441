"""Kernels of another library are built by g++, loaded and called."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from jit_samples import FILES, chosen, plain_spec, python, start_python, twice_spec, write_root

from kernlib import jit
from kernlib.config import Config, Mode
from kernlib.errors import BuildError, LoadError

pytestmark = pytest.mark.requires("gxx")

CALL = """
import torch
x = torch.arange(4, dtype=torch.float32)
out = torch.empty(4)
jit.load(chosen(twice_spec(root))).function("twice")(x, out)
print(*out.tolist())
"""
PREPARE = "print(jit.prepare(chosen(plain_spec(root))).library)"
#: ``factor`` reads one element past what it was given, on line 5.
OVER_READ = """#include "twice/twice.h"

void twice(const float* x, float* out, long n) {
  for (long i = 0; i < n; ++i) {
    out[i] = kFactor * x[i + 1];
  }
}
"""


@pytest.fixture
def root(tmp_path):
    return write_root(tmp_path / "root")


@pytest.fixture
def config(tmp_path):
    return Config(workspace=tmp_path / "workspace")


def doubled(kernel, size=5):
    import torch

    x, out = torch.randn(size), torch.full((size,), torch.nan)
    kernel.function("twice")(x, out)
    return x, out


def test_a_kernel_of_another_library_is_built_loaded_and_called(root, config):
    kernel = jit.load(chosen(twice_spec(root)), config)
    x, out = doubled(kernel)
    assert out.equal(2 * x)
    assert kernel in jit.loaded_kernels()
    assert kernel.artifact.path.parent == config.workspace / "artifacts"


def test_a_loaded_kernel_is_looked_up(root, config, monkeypatch):
    choice = chosen(twice_spec(root))
    kernel = jit.load(choice, config)
    debug = jit.load(choice, config, Mode.DEBUG)
    monkeypatch.setattr("kernlib.jit._load.prepare", None)
    assert jit.load(choice, config) is kernel
    assert jit.load(chosen(twice_spec(root)), config) is kernel
    assert jit.load(choice, config, Mode.DEBUG) is debug
    assert debug is not kernel
    assert kernel.function("twice") is kernel.function("twice")


def test_another_configuration_with_the_same_build_shares_the_library(root, config):
    choice = chosen(twice_spec(root))
    kernel = jit.load(choice, config)
    assert jit.load(choice, config.replace(sync=True)) is kernel


def test_two_versions_of_a_kernel_live_in_one_process(root, tmp_path, config):
    other = write_root(
        tmp_path / "other", **{"include/twice/factor.h": "constexpr float kFactor = -1.0f;\n"}
    )
    first = jit.load(chosen(twice_spec(root)), config)
    second = jit.load(chosen(twice_spec(other)), config)
    for kernel, factor in ((first, 2), (second, -1), (first, 2)):
        x, out = doubled(kernel)
        assert out.equal(factor * x)


def test_a_function_that_is_not_exported_is_named(root, config):
    with pytest.raises(LoadError, match="thrice"):
        jit.load(chosen(twice_spec(root)), config).function("thrice")


def test_a_symbol_that_nothing_defines_is_an_error_before_any_call(root, config):
    choice = chosen(plain_spec(root, sources=("csrc/twice/binding.cc",)))
    with pytest.raises(BuildError, match="undefined reference to `twice"):
        jit.load(choice, config)


def test_generated_and_kernlibs_own_headers_compile(root, config):
    unit = root / "csrc" / "twice" / "twice_cpu.cc"
    unit.write_text(f'#include "size.h"\n#include "kernlib/scalar.h"\n{unit.read_text()}')
    spec = twice_spec(root, headers=(("size.h", "#pragma once\nconstexpr int kSize = 3;\n"),))
    x, out = doubled(jit.load(chosen(spec), config))
    assert out.equal(2 * x)


def test_after_an_edit_of_a_header_a_new_process_has_the_new_kernel(root, config):
    assert python(CALL, root, config) == "0.0 2.0 4.0 6.0"
    header = root / "include/twice/factor.h"
    header.write_text(header.read_text().replace("2.0f", "5.0f"))
    assert python(CALL, root, config) == "0.0 5.0 10.0 15.0"
    header.write_text(FILES["include/twice/factor.h"])
    disabled = config.replace(jit_disable=True)
    assert python(CALL, root, disabled) == "0.0 2.0 4.0 6.0"


def test_a_warm_load_imports_nothing_that_only_a_build_needs(root, config):
    python(CALL, root, config)
    code = "print(*sorted({'filelock', 'ninja', 'rich'} & sys.modules.keys()))"
    assert python(CALL + code, root, config) == "0.0 2.0 4.0 6.0"


def test_recorded_sources_are_what_runs(root, tmp_path, config):
    spec = twice_spec(root)
    write_root(
        tmp_path / "recorded" / spec.uri,
        **{"include/twice/factor.h": "constexpr float kFactor = 7.0f;\n"},
    )
    x, out = doubled(jit.load(chosen(spec), config.replace(jit_sources=tmp_path / "recorded")))
    assert out.equal(7 * x)


def test_a_refused_kernel_ends_with_the_error_and_its_source_line(root, config):
    unit = root / "csrc/twice/twice_cpu.cc"
    unit.write_text(unit.read_text().replace("kFactor", "kFaktor"))
    with pytest.raises(BuildError) as raised:
        jit.prepare(chosen(plain_spec(root)), config)
    error, source, marker = str(raised.value).splitlines()[1:4]
    assert re.search(r"twice_cpu\.cc:4:\d+: error: .kFaktor. was not declared", error)
    assert "out[i] = kFaktor * x[i]" in source
    assert "^" in marker
    assert "ninja" in raised.value.log_path.read_text()


def test_a_flag_that_no_compiler_knows_is_a_build_error(root, config):
    with pytest.raises(BuildError, match="--bogus"):
        jit.prepare(chosen(plain_spec(root)), config.replace(extra_cflags=("--bogus",)))


def test_messages_are_found_in_every_language(root, config):
    (root / "csrc/twice/twice_cpu.cc").write_text("int x = y;\n")
    child = start_python(PREPARE, root, config, LC_ALL="de_DE.UTF-8", LANGUAGE="de")
    _, err = child.communicate(timeout=60)
    assert "'y' was not declared" in err


def sections(library):
    done = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(library)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.partition("Disassembly")[2]


def has_lines(library):
    done = subprocess.run(["readelf", "-S", library], capture_output=True, text=True, check=True)
    return ".debug_line" in done.stdout


def test_lineinfo_adds_line_tables_to_the_same_code(root, config):
    choice = chosen(plain_spec(root))
    built = {mode: jit.prepare(choice, config, mode).library for mode in list(Mode)[:3]}
    assert sections(built[Mode.LINEINFO]) == sections(built[Mode.RELEASE])
    assert sections(built[Mode.DEBUG]) != sections(built[Mode.RELEASE])
    assert [has_lines(path) for path in built.values()] == [False, True, True]


def test_line_tables_name_the_copied_sources(root, config):
    plan = jit.plan(chosen(plain_spec(root)), config, Mode.DEBUG)
    library = jit.prepare(chosen(plain_spec(root)), config, Mode.DEBUG).library
    done = subprocess.run(
        ["readelf", "--debug-dump=info", str(library)], capture_output=True, text=True, check=True
    )
    assert str(plan.source_dir / "csrc/twice/twice_cpu.cc") in done.stdout


@pytest.mark.requires("asan")
def test_the_sanitizer_names_the_line_of_a_fault(root, config):
    (root / "csrc/twice/twice_cpu.cc").write_text(OVER_READ)
    sanitize = config.replace(jit_mode=Mode.SANITIZE)
    python("jit.prepare(chosen(twice_spec(root)))", root, sanitize)
    found = subprocess.run(
        ["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    options = {"ASAN_OPTIONS": "detect_leaks=0", "LD_PRELOAD": os.path.realpath(found.stdout[:-1])}
    child = start_python(CALL, root, sanitize, **options)
    _, err = child.communicate(timeout=120)
    assert child.returncode != 0
    assert "heap-buffer-overflow" in err
    assert re.search(r"#0 .* in twice.*csrc/twice/twice_cpu\.cc:5", err)


@pytest.mark.requires("asan")
def test_without_the_sanitizer_in_the_process_its_library_is_refused(root, config):
    code = """
from kernlib.errors import LoadError
try:
    jit.load(chosen(twice_spec(root)))
except LoadError as error:
    print(error)
"""
    said = python(code, root, config.replace(jit_mode=Mode.SANITIZE))
    assert "LD_PRELOAD" in said


@pytest.mark.requires("asan")
def test_a_process_under_a_sanitizer_builds_with_compilers_that_are_not(root, config):
    found = subprocess.run(
        ["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    options = {"ASAN_OPTIONS": "detect_leaks=0", "LD_PRELOAD": os.path.realpath(found.stdout[:-1])}
    assert Path(python(PREPARE, root, config, **options)).is_file()


@pytest.mark.parametrize("count", [2, 16])
def test_many_processes_make_one_artifact(root, config, count):
    children = [start_python(PREPARE, root, config) for _ in range(count)]
    ends = [(*child.communicate(timeout=120), child.returncode) for child in children]
    assert len(set(ends)) == 1, ends
    out, err, status = ends[0]
    assert (err, status) == ("", 0)
    artifacts = list((config.workspace / "artifacts").iterdir())
    assert [artifacts[0] / "twice.so"] == [Path(out.strip())]
    assert len(artifacts) == 1


def test_a_build_killed_at_any_moment_leaves_nothing_that_is_taken_for_valid(root, tmp_path):
    """The artifact is either absent or whole, whenever the building process ends."""
    for moment in range(6):
        config = Config(workspace=tmp_path / f"workspace{moment}")
        child = start_python("print('begin', flush=True)\n" + PREPARE, root, config)
        child.stdout.readline()
        try:
            child.wait(0.05 * moment)
        except subprocess.TimeoutExpired:
            child.kill()
        child.communicate()
        assert Path(python(PREPARE, root, config)).is_file()

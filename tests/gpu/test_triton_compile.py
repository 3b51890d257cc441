"""Triton kernels compile for every target; no device is needed."""

import struct

import pytest
from jit_samples import python

from kernlib import jit
from kernlib._builds import _capture
from kernlib.config import Config, Mode, using
from kernlib.errors import BuildError
from kernlib.jit._triton import Triton
from kernlib.ops._activation import activation_spec

pytestmark = pytest.mark.requires("triton")

NAMES = {
    f"silu_and_mul_{dtype}_{block}" for dtype in ("fp16", "bf16", "fp32") for block in (256, 1024)
}
_CUDA = 190  # e_machine of an object for a GPU
_SOURCE = "csrc/activation/activation_triton.py"


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return Config(workspace=tmp_path_factory.mktemp("workspace"))


def chosen(target="sm_90a", spec=None):
    return jit.KernelChoice(spec=spec or activation_spec("triton"), target=target)


def sections(path):
    """Return the sections of an ELF file by name."""
    data = path.read_bytes()
    at, size, count, names = (
        *struct.unpack_from("<Q", data, 40),
        *struct.unpack_from("<HHH", data, 58),
    )
    rows = [struct.unpack_from("<IIQQQQ", data, at + size * n) for n in range(count)]
    texts = data[rows[names][4] :]
    return {
        texts[row[0] : texts.index(b"\0", row[0])].decode(): data[row[4] : row[4] + row[5]]
        for row in rows
    }


def code(path):
    return {name: text for name, text in sections(path).items() if name.startswith(".text")}


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_a_module_folder_holds_one_object_a_specialisation(config, target):
    artifact = jit.prepare(chosen(target), config)
    assert artifact.record.target == target
    assert artifact.library.name == "activation.json"
    objects = {path.stem: path for path in artifact.path.glob("*.cubin")}
    assert objects.keys() == NAMES
    for path in objects.values():
        assert struct.unpack_from("<H", path.read_bytes(), 18) == (_CUDA,)
        assert code(path).keys() == {".text.silu_and_mul"}
    left = {path.name for path in artifact.path.iterdir()} - {
        path.name for path in objects.values()
    }
    assert {name for name in left if not name.startswith(".ninja")} == {
        "activation.json", "build.json", "build.log", "build.ninja", "compile_commands.json",
    }  # fmt: skip


def test_the_target_is_the_one_that_was_named(config):
    codes = {
        target: code(jit.prepare(chosen(target), config).path / "silu_and_mul_fp16_256.cubin")
        for target in ("sm_80", "sm_90a", "sm_100a")
    }
    assert len({text[".text.silu_and_mul"] for text in codes.values()}) == 3


def test_lineinfo_is_the_same_machine_code_with_line_tables(config):
    release = jit.prepare(chosen(), config)
    lineinfo = jit.prepare(chosen(), config, Mode.LINEINFO)
    assert lineinfo.key != release.key
    for name in NAMES:
        plain, lined = (build.path / f"{name}.cubin" for build in (release, lineinfo))
        assert code(plain) == code(lined)
        assert ".debug_line" not in sections(plain)
        assert b"activation_triton.py" in sections(lined)[".debug_line"]


def test_a_module_loads_without_a_device(config):
    kernel = jit.load(chosen(), config)
    assert all(callable(kernel.function(name)) for name in NAMES)


def test_no_triton_is_imported_into_the_process(config):
    code = (
        "import sys; from kernlib.ops._activation import activation_spec\n"
        "spec = activation_spec('triton')\n"
        "jit.load(jit.KernelChoice(spec=spec, target='sm_90a'))\n"
        "print('triton' in sys.modules)"
    )
    assert python(code, None, config) == "False"


def test_an_object_that_was_damaged_is_built_again(config, caplog):
    artifact = jit.prepare(chosen("sm_80"), config)
    path = artifact.path / "silu_and_mul_bf16_256.cubin"
    path.write_bytes(path.read_bytes()[:-1])
    again = jit.prepare(chosen("sm_80"), config)
    assert "silu_and_mul_bf16_256.cubin does not have the size and digest" in caplog.text
    assert Triton().problem(again.library) == ""


def test_the_environment_steers_nothing(config, tmp_path, monkeypatch):
    """What Triton would read from it is in no build record."""
    expected = code(jit.prepare(chosen(), config).path / "silu_and_mul_fp32_1024.cubin")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("DISABLE_PTXAS_OPT", "1")
    monkeypatch.setenv("TRITON_OVERRIDE_ARCH", "sm80")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    other = jit.prepare(chosen(), config.replace(workspace=tmp_path / "workspace"))
    assert code(other.path / "silu_and_mul_fp32_1024.cubin") == expected
    assert [path.name for path in tmp_path.iterdir()] == ["workspace"]


def changed(tmp_path, before, after):
    """Return the operator's spec with another source."""
    source = (jit.source_root() / _SOURCE).read_text()
    assert before in source
    path = tmp_path / _SOURCE
    path.parent.mkdir(parents=True)
    path.write_text(source.replace(before, after))
    spec = activation_spec("triton")
    return jit.KernelSpec(
        name=spec.name, backend="triton", root=tmp_path, sources=spec.sources, targets=spec.targets
    )


@pytest.mark.parametrize(
    ("before", "after", "error", "source"),
    [
        ("at < width", "at < widht", "widht is not defined", "inside = at < widht"),
        ("at < width", "at < (width", "'(' was never closed", "inside = at < (width"),
        ('"num_warps": 4', '"num_warps": 5', "num_warps must be a power of 2", ""),
    ],
)
def test_an_error_ends_with_its_source_line(config, tmp_path, before, after, error, source):
    spec = changed(tmp_path, before, after)
    text = (tmp_path / _SOURCE).read_text().splitlines()
    with pytest.raises(BuildError) as raised:
        jit.prepare(chosen(spec=spec), config)
    message = str(raised.value)
    assert error in message
    assert str(raised.value.log_path) in message
    if source:
        line = next(n for n, row in enumerate(text, 1) if source in row)
        assert f"activation_triton.py:{line}: error: " in message
        assert source in message.splitlines()[-1]


def test_a_capsule_carries_sources_and_record_and_a_replay_rebuilds_them(config, tmp_path):
    with using(config):
        captured = _capture.__wrapped__(chosen())
    assert captured.ref.backend == "triton"
    assert captured.ref.problem is None
    assert captured.sources == {_SOURCE: (jit.source_root() / _SOURCE).read_bytes()}
    folder = tmp_path / "recorded" / captured.ref.uri
    for label, text in captured.sources.items():
        (folder / label).parent.mkdir(parents=True)
        (folder / label).write_bytes(text + b"# recorded\n")
    replayed = config.replace(jit_sources=tmp_path / "recorded", jit_mode=Mode.LINEINFO)
    artifact = jit.prepare(chosen(), replayed)
    record = jit.decode_record(captured.record)
    differences = jit.compare_records(record, artifact.record)
    assert sorted(row.field for row in differences) == [_SOURCE, "flags.triton", "mode"]

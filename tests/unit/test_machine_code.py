"""Machine code is compared by what a disassembler prints, and by sections of a library."""

import pytest
from jit_samples import chosen, fake_config, plain_spec, write_root

from kernlib import jit
from kernlib._commands import main
from kernlib.config import Config, using
from kernlib.errors import SelectionError, ToolchainError
from kernlib.jit import _machine_code
from kernlib.jit._machine_code import compare_code, host_code, kernel_digests, machine_code

MOVE = """        /*0000*/  MOV R1, c[0x0][0x28] ;   /* 0x00000a0000017a02 */
                                           /* 0x000fe40000000f00 */
"""
EXIT = MOVE.replace("MOV R1, c[0x0][0x28]", "EXIT").replace("0a0000017a02", "00000000794d")
SLOWER = MOVE.replace("0x000fe4", "0x000fe8")  # the same instruction, scheduled otherwise


def image(functions, entries=(), extra="", target="sm_80"):
    """Return what is printed of one object."""
    lines = ["", "Fatbin elf code:", "================", f"arch = {target}", extra, "",
             f"\tcode for {target}"]  # fmt: skip
    for name, code in functions.items():
        lines += [f"\t\tFunction : {name}", '\t.headerflags\t@"EF_CUDA_SM80"', code,
                  "\t\t..........", ""]  # fmt: skip
    lines += [
        "symbols:",
        *(f"FUNC          WEAK    DEFAULT    ENTRY    {name}" for name in entries),
    ]
    return "\n".join(lines).splitlines()


def compared(first, second):
    return compare_code(kernel_digests(first), kernel_digests(second))


def test_what_line_tables_add_and_how_it_is_set_out_does_not_count():
    plain = image({"one": MOVE}, ["one"])
    told = image({"one": MOVE.replace("   ", "     ")}, ["one"], "identifier = /some/norm.cu")
    assert compared(plain, told).same == ("one",)


@pytest.mark.parametrize("other", [EXIT, SLOWER, MOVE + EXIT])
def test_another_instruction_encoding_or_length_is_other_code(other):
    found = compared(
        image({"one": MOVE, "two": EXIT}, ["one", "two"]),
        image({"one": other, "two": EXIT}, ["one", "two"]),
    )
    assert (found.different, found.same) == (("one",), ("two",))
    assert (found.unlike, found.total) == (1, 2)


def test_kernels_that_only_one_has_are_named():
    found = compared(image({"one": MOVE, "two": MOVE}), image({"two": MOVE, "three": MOVE}))
    assert (found.only_first, found.same, found.only_second) == (("one",), ("two",), ("three",))
    assert (found.unlike, found.total) == (2, 3)


def test_a_device_function_counts_in_the_kernels_that_may_call_it():
    functions = {"one": MOVE, "helper": MOVE}
    assert kernel_digests(image(functions, ["one"])).keys() == {"one"}
    found = compared(image(functions, ["one"]), image({**functions, "helper": EXIT}, ["one"]))
    assert found.different == ("one",)


def test_older_tools_name_symbols_otherwise():
    old = [
        line.replace("FUNC          WEAK    DEFAULT    ENTRY", "STT_FUNC STB_GLOBAL STO_ENTRY")
        for line in image({"one": MOVE, "helper": MOVE}, ["one"])
    ]
    assert kernel_digests(old).keys() == {"one"}


def test_names_of_what_one_file_sees_hold_no_path():
    first = "_ZN37_INTERNAL_b34b4fd0_7_norm_cu_39e63ab06kernelEv"
    second = first.replace("b34b4fd0", "00000000").replace("39e63ab0", "ffffffff")
    assert compared(image({first: MOVE}), image({second: MOVE})).unlike == 0


def test_the_target_is_part_of_the_code():
    assert compared(image({"one": MOVE}), image({"one": MOVE}, target="sm_90a")).unlike == 1


def test_a_kernel_in_several_objects_is_the_same_if_all_are():
    twice = [*image({"one": MOVE}), *image({"one": EXIT}, target="sm_90a")]
    swapped = [*image({"one": EXIT}, target="sm_90a"), *image({"one": MOVE})]
    assert compared(twice, swapped).unlike == 0
    assert compared(twice, image({"one": MOVE})).unlike == 1


def test_code_that_is_not_shown_is_never_taken_for_the_same():
    with pytest.raises(ValueError, match="no instruction of one"):
        kernel_digests(image({"one": "        MOV R1 ;"}))


@pytest.mark.parametrize("data", [b"", b"text", b"\x7fELF\x02\x01", b"\x7fELF\x01\x01" + bytes(90)])
def test_what_is_no_library_is_refused(tmp_path, data):
    path = tmp_path / "some.so"
    path.write_bytes(data)
    with pytest.raises(SelectionError, match=r"some\.so: it is no 64-bit library"):
        machine_code(path, Config())


def test_a_library_without_sections_has_no_code():
    with pytest.raises(ValueError, match="no names"):
        host_code(b"\x7fELF\x02\x01" + bytes(90))


@pytest.fixture
def device_library(tmp_path, monkeypatch):
    """Return a file that passes for a CUDA library, on a machine without the tools."""
    sections = {_machine_code._FATBIN: b""}
    monkeypatch.setattr(_machine_code, "_sections", lambda _: sections)
    monkeypatch.setattr(_machine_code, "_located", lambda *_: None)
    path = tmp_path / "kernels.so"
    path.write_bytes(bytes(64))
    return path


def test_a_missing_disassembler_is_named_with_what_brings_it(device_library):
    with pytest.raises(ToolchainError, match=r"cuobjdump: not found.*kernlib\[cuda-tools\]"):
        machine_code(device_library, Config())


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'no kernel image' >&2; exit 1", "cannot read .*: no kernel image"),
        ("true", "it holds no kernels"),
        ("printf '\\tcode for sm_80\\n\\t\\tFunction : one\\n'", "no instruction of one"),
    ],
)
def test_a_disassembler_that_fails_is_reported(
    device_library, tmp_path, monkeypatch, script, message
):
    tool = tmp_path / "cuobjdump"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setattr(_machine_code, "_located", lambda *_: str(tool))
    with pytest.raises((ToolchainError, SelectionError), match=message):
        machine_code(device_library, Config())


def test_the_tools_are_looked_for_beside_nvcc(tmp_path, monkeypatch):
    config = fake_config(tmp_path)
    monkeypatch.setattr(_machine_code, "_TOOLKIT", tmp_path / "nowhere")
    monkeypatch.setattr(_machine_code, "_PACKAGES", dict.fromkeys(_machine_code._PACKAGES, "none"))
    monkeypatch.setattr(_machine_code.shutil, "which", lambda name: name if "/" in name else None)
    assert _machine_code.disassembler(config) is None
    beside = [tmp_path / "tools" / name for name in ("cuobjdump", "nvdisasm")]
    for path in beside:
        path.touch(0o755)
    assert _machine_code.disassembler(config) == tuple(map(str, beside))


def test_the_command_refuses_what_is_not_there(tmp_path, capsys):
    config = fake_config(tmp_path)
    artifact = jit.prepare(chosen(plain_spec(write_root(tmp_path / "root"))), config)
    with using(config):
        assert main(["jit", "compare", "ff", "ff"]) == 2
        assert "no key in" in capsys.readouterr().err
        assert main(["jit", "compare", "./none.so", artifact.key]) == 2
        assert "none.so: No such file" in capsys.readouterr().err
        artifact.library.write_bytes(b"other")
        assert main(["jit", "compare", artifact.key, artifact.key]) == 2
        assert "See kernlib cache verify" in capsys.readouterr().err

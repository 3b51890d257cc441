"""The build record is canonical, and says in which fact two builds differ."""

import msgspec
import pytest

from kernlib import jit
from kernlib.jit import BuildRecord

RECORD = BuildRecord(
    uri="twice-cpu",
    name="twice",
    backend="cpu",
    params={"head_dim": 128, "causal": True},
    units=("csrc/a.cc",),
    include_dirs=("include",),
    headers=(),
    sources={"csrc/a.cc": "aa", "include/b.h": "bb"},
    flags={"cxx": ("-O3",), "ld": ("-shared",)},
    target="cpu",
    mode="release",
    toolchain={"cxx": "g++ 12"},
    tvm_ffi="0.1",
    kernlib="0.2",
)


def changed(**changes):
    return msgspec.structs.replace(RECORD, **changes)


def test_the_key_is_32_hexadecimal_digits_and_always_the_same():
    key = jit.record_key(RECORD)
    assert len(key) == 32
    assert int(key, 16) >= 0
    assert jit.record_key(jit.decode_record(jit.record_json(RECORD))) == key


def test_the_order_of_a_mapping_means_nothing():
    backwards = changed(
        sources=dict(reversed(RECORD.sources.items())), params=dict(reversed(RECORD.params.items()))
    )
    assert jit.record_json(backwards) == jit.record_json(RECORD)


def test_every_field_is_in_the_key():
    others = {
        "schema_version": 2, "uri": "x", "name": "x", "backend": "cuda", "params": {"head_dim": 64},
        "units": ("csrc/b.cc",), "include_dirs": ("csrc",), "headers": ("generated/x.h",),
        "sources": {"csrc/a.cc": "ab"}, "flags": {"cxx": ("-O2",)}, "target": "sm_80",
        "mode": "debug", "toolchain": {"cxx": "g++ 13"}, "tvm_ffi": "0.2", "kernlib": "0.3",
    }  # fmt: skip
    assert set(others) == set(BuildRecord.__struct_fields__)
    keys = {jit.record_key(changed(**{name: value})) for name, value in others.items()}
    assert len(keys | {jit.record_key(RECORD)}) == len(others) + 1


def test_the_order_of_units_flags_and_folders_is_in_the_key():
    flags = ({"cxx": ("-a", "-b")}, {"cxx": ("-b", "-a")})
    assert len({jit.record_key(changed(flags=value)) for value in flags}) == 2
    units = (("a.cc", "b.cc"), ("b.cc", "a.cc"))
    assert len({jit.record_key(changed(units=value)) for value in units}) == 2


def test_true_and_one_are_two_parameters():
    assert jit.record_key(changed(params={"a": True})) != jit.record_key(changed(params={"a": 1}))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"uri": "x"}', b'{"surprise": 1}'])
def test_what_is_no_record_is_refused(text):
    with pytest.raises(msgspec.MsgspecError):
        jit.decode_record(text)


def test_equal_records_do_not_differ():
    assert jit.compare_records(RECORD, changed()) == ()


def test_sources_are_compared_file_by_file():
    now = changed(sources={"csrc/a.cc": "other", "include/c.h": "cc"})
    found = {row.field: row for row in jit.compare_records(RECORD, now)}
    assert sorted(found) == ["csrc/a.cc", "include/b.h", "include/c.h"]
    assert "changed" in found["csrc/a.cc"].current
    assert found["include/b.h"].current == "missing"
    assert found["include/c.h"].current == "added"


def test_mappings_are_compared_entry_by_entry():
    now = changed(
        flags={"cxx": ("-O0", "-g"), "ld": ("-shared",)},
        toolchain={"cxx": "g++ 12", "nvcc": "nvcc 13"},
    )
    rows = [tuple(row) for row in jit.compare_records(RECORD, now)]
    assert rows == [("flags.cxx", "-O3", "-O0 -g"), ("toolchain.nvcc", "absent", "nvcc 13")]


def test_a_difference_reads_as_a_sentence():
    (row,) = jit.compare_records(RECORD, changed(mode="debug"))
    assert str(row) == "mode: recorded release, here debug"

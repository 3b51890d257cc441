"""The manifest's text, and what editors are told."""

from pathlib import Path

from kernlib.jit._ninja import Manifest, Step, compile_commands, ninja_text, object_name

GOLDEN = Path(__file__).parent / "golden" / "twice-cuda.ninja"

MANIFEST = Manifest(
    title="twice-cuda for sm_90a, release",
    tools=(
        ("cxx", ("/usr/bin/g++", "-O3", "-I/ws/a b/include", "-DTEXT=a$b")),
        ("nvcc", ("ccache", "/cuda/bin/nvcc", "-gencode", "arch=compute_90a,code=sm_90a")),
    ),
    steps=(
        Step("/ws/a b/csrc/twice/twice.cu", object_name("csrc/twice/twice.cu"), "nvcc"),
        Step("/ws/a b/csrc/twice/binding.cc", object_name("csrc/twice/binding.cc"), "cxx"),
    ),
    link=("/usr/bin/g++", "-shared", "-L/cuda/lib64", "-lcudart_static"),
    library="twice.so",
)


def test_the_manifest_is_the_golden_one():
    assert ninja_text(MANIFEST) == GOLDEN.read_text()


def test_units_of_one_name_in_two_folders_become_two_objects():
    assert object_name("csrc/a/x.cc") != object_name("csrc/b/x.cc")


def test_what_editors_are_told():
    first, second = compile_commands(MANIFEST, "/ws/artifacts/key")
    assert first["directory"] == second["directory"] == "/ws/artifacts/key"
    assert first["arguments"][:2] == ["ccache", "/cuda/bin/nvcc"]
    assert first["arguments"][-4:] == ["-c", first["file"], "-o", first["output"]]
    assert second["arguments"][2] == "-I/ws/a b/include"

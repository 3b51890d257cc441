"""The include closure holds every file that a build reads, and no other."""

import pytest
from jit_samples import plain_spec, twice_spec, write_root

from kernlib import jit
from kernlib.errors import IncludeError, SpecError
from kernlib.jit._sources import closure


@pytest.fixture
def root(tmp_path):
    return write_root(tmp_path / "root")


def unit(root, text, **changes):
    """Return the closure of a spec whose one unit has this text."""
    (root / "csrc" / "unit.cc").write_text(text)
    return closure(plain_spec(root, sources=("csrc/unit.cc",), **changes))


def test_units_and_all_they_include_are_found(root):
    assert list(closure(twice_spec(root))) == [
        "csrc/twice/binding.cc",
        "csrc/twice/twice_cpu.cc",
        "include/twice/factor.h",
        "include/twice/twice.h",
    ]


def test_the_bytes_are_those_of_the_files(root):
    files = closure(plain_spec(root))
    assert files == {label: (root / label).read_bytes() for label in files}


def test_kernlibs_own_headers_are_found_from_another_root(root):
    files = unit(root, '#include "kernlib/scalar.h"\n')
    own = jit.source_root() / "include/kernlib/scalar.h"
    assert files["include/kernlib/scalar.h"] == own.read_bytes()


def test_a_specs_own_header_comes_before_kernlibs(root):
    (root / "include" / "kernlib").mkdir()
    (root / "include" / "kernlib" / "scalar.h").write_text("// mine\n")
    files = unit(root, '#include "kernlib/scalar.h"\n')
    assert files["include/kernlib/scalar.h"] == b"// mine\n"


def test_kernlibs_headers_are_found_without_being_asked_for(root):
    files = unit(root, '#include "kernlib/scalar.h"\n', include_dirs=())
    assert "include/kernlib/scalar.h" in files


def test_a_quoted_include_that_is_nowhere_is_named_with_its_line(root):
    (root / "include/twice/factor.h").write_text('#pragma once\n\n#  include  "gone.h"\n')
    with pytest.raises(IncludeError) as raised:
        closure(plain_spec(root))
    error = raised.value
    assert (error.source, error.line, error.include) == ("include/twice/factor.h", 3, "gone.h")
    assert error.searched == ("include/twice", "include", "csrc", "generated")


def test_headers_of_the_toolchain_are_not_followed(root):
    assert list(unit(root, "#include <vector>\n#include <cuda_runtime.h>\n")) == ["csrc/unit.cc"]


def test_an_include_in_angle_brackets_is_followed_where_it_is_found(root):
    assert "include/twice/factor.h" in unit(root, "#include <twice/twice.h>\n")


@pytest.mark.parametrize(
    "text", ['// #include "gone.h"\n', '/*\n#include "gone.h"\n*/\n', 's = "#include";\n']
)
def test_what_is_commented_out_need_not_exist(root, text):
    assert list(unit(root, text)) == ["csrc/unit.cc"]


def test_an_include_after_a_comment_counts(root):
    with pytest.raises(IncludeError):
        unit(root, '/* one */\n/* two */\n#include "gone.h"\n')


def test_the_folder_of_the_file_is_searched_first(root):
    (root / "csrc" / "twice" / "factor.h").write_text("// beside\n")
    (root / "csrc" / "twice" / "unit.cc").write_text('#include "factor.h"\n')
    files = closure(plain_spec(root, sources=("csrc/twice/unit.cc",)))
    assert list(files) == ["csrc/twice/factor.h", "csrc/twice/unit.cc"]


def test_dots_are_followed_inside_the_root_and_not_out_of_it(root, tmp_path):
    assert "include/twice/factor.h" in unit(root, '#include "../include/twice/factor.h"\n')
    (tmp_path / "outside.h").touch()
    with pytest.raises(IncludeError):
        unit(root, '#include "../../outside.h"\n')


def test_headers_that_include_each_other_end(root):
    (root / "include/twice/factor.h").write_text('#pragma once\n#include "twice.h"\n')
    assert len(closure(plain_spec(root))) == 3


def test_a_generated_header_is_a_file_like_any_other(root):
    header = '#include "twice/factor.h"\nconstexpr int kSize = 4;\n'
    files = unit(root, '#include "size.h"\n', headers=(("size.h", header),))
    assert files["generated/size.h"] == header.encode()
    assert "include/twice/factor.h" in files


def test_a_source_that_is_not_there_is_named(root):
    with pytest.raises(SpecError, match=r"csrc/gone\.cc"):
        closure(plain_spec(root, sources=("csrc/gone.cc",)))


def test_recorded_sources_replace_every_root(root, tmp_path):
    recorded = write_root(
        tmp_path / "recorded", **{"include/twice/factor.h": "constexpr float kFactor = 3;\n"}
    )
    (root / "include/only_here.h").touch()
    assert b"3" in closure(plain_spec(root), recorded)["include/twice/factor.h"]
    (recorded / "csrc/twice/twice_cpu.cc").write_text('#include "only_here.h"\n')
    with pytest.raises(IncludeError):
        closure(plain_spec(root), recorded)
    (recorded / "csrc/twice/twice_cpu.cc").write_text('#include "kernlib/scalar.h"\n')
    with pytest.raises(IncludeError):
        closure(plain_spec(root), recorded)

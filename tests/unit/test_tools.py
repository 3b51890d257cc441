"""The tools that keep installation and documents honest."""

import importlib.util
import subprocess
import sys

import pytest


@pytest.fixture
def tool(repository):
    """Load a script of tools/ as a module."""

    def load(name):
        spec = importlib.util.spec_from_file_location(name, repository / "tools" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


TESTED = (
    '# why\nfilelock==4.3.1; python_version >= "3.11"\nTyping_Extensions==4.16.0\ntorch==2.13.0\n'
)


def test_a_torch_that_is_there_is_pinned_as_it_is(tool):
    pins = tool("pins").pins(TESTED, {"torch": "2.11.0+cu130", "filelock": "3.0"}, ["torch"])
    assert "torch==2.11.0+cu130" in pins.splitlines()
    assert "torch==2.13.0" not in pins.splitlines()
    assert 'filelock==4.3.1; python_version >= "3.11"' in pins.splitlines()


def test_without_a_torch_the_tested_one_is_taken(tool):
    assert tool("pins").pins(TESTED, {}, ["torch"]).strip() == TESTED.strip()


def test_everything_that_is_there_can_be_kept_under_any_spelling(tool):
    installed = {"typing-extensions": "4.12.0", "torch": "2.11.0", "other": "1"}
    pins = tool("pins").pins(TESTED, installed, installed).splitlines()
    assert {"typing-extensions==4.12.0", "torch==2.11.0", "other==1"} <= set(pins)
    assert "Typing_Extensions==4.16.0" not in pins


@pytest.mark.parametrize(
    ("version", "accepted"),
    [("2.11.0+cu130", True), ("1.0rc1.post2.dev3", True), ("2.0ubuntu1", False), ("1-x y", False)],
)
def test_versions_that_pip_would_refuse_are_left_out(tool, version, accepted):
    assert bool(tool("pins").VERSION.fullmatch(version)) is accepted


def test_every_direct_dependency_has_a_tested_version(tool, repository):
    pins = tool("pins")
    lines = (repository / "constraints.txt").read_text().splitlines()
    tested = {pins.name_of(line) for line in lines}
    project = (repository / "pyproject.toml").read_text()
    bounds = [part for part in project.split('"') if ">=" in part and part[0].isalpha()]
    assert len(bounds) > 10
    # A CUDA build of torch brings the one Triton it works with; a pin would contradict it.
    tested.add("triton")
    assert [bound for bound in bounds if pins.name_of(bound) not in tested] == []


def test_no_registry_is_named_in_what_installs(repository):
    for name in ("constraints.txt", "pyproject.toml", "Makefile", ".ci/run"):
        text = (repository / name).read_text()
        assert "://" not in text, name
        assert "index" not in text, name


def test_the_readme_shows_the_variables_as_config_has_them(tool, repository):
    tables = tool("readme_tables")
    readme = (repository / "README.md").read_text()
    assert tables.with_table(readme, tables.env_table(tables.variables())) == readme


def test_a_stale_table_is_seen_and_rewritten(tool, tmp_path, monkeypatch):
    tables = tool("readme_tables")
    readme = tmp_path / "README.md"
    monkeypatch.setattr(tables, "README", readme)
    readme.write_text(f"before\n{tables.BEGIN}\n| old |\n{tables.END}\nafter\n")
    with pytest.raises(SystemExit, match="stale"):
        tables.main(["--check"])
    assert "old" in readme.read_text()
    tables.main([])
    tables.main(["--check"])
    written = readme.read_text()
    assert written.startswith(f"before\n{tables.BEGIN}\n| variable |")
    assert written.endswith(f"|\n{tables.END}\nafter\n")
    assert "KERNLIB_LOG_LEVEL" in written


def test_a_readme_without_markers_is_refused(tool):
    with pytest.raises(SystemExit, match="env-table:begin"):
        tool("readme_tables").with_table("nothing here", "| table |")


def test_every_cell_of_the_table_stays_in_its_column(tool):
    tables = tool("readme_tables")
    for line in tables.env_table(tables.variables()).splitlines():
        assert line.count("|") == 5, line


def test_the_size_report_counts_every_room(repository):
    done = subprocess.run(
        [sys.executable, "tools/size_report.py"],
        cwd=repository, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for room in ("kernlib/jit", "kernlib/dump", "include/kernlib", "tests/unit", "total"):
        assert room in done.stdout

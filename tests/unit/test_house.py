"""The house keeps its rules: who imports whom, how large things are, how they are introduced."""

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE_LINES, FUNCTION_LINES, PARAMETERS, INTRODUCTION_WORDS = 300, 50, 6, 10

#: Each room and the rooms it may import, beside itself and what is in OPEN.
MAY_IMPORT = {
    "errors": set(),
    "_variables": set(),
    "config": {"errors", "_variables"},
    "jit": {"errors", "config"},
    "dump": {"errors"},
    "fence": {"errors"},
    "ring": {"errors"},
    "_checks": {"errors"},
    "logging": {"errors", "config", "dump", "ring"},
    "_background": {"errors", "config", "jit"},
    "_crash_handler": {"jit"},
    "_native_recorder": {"config", "jit", "logging", "_background"},
    "_registry": {"errors", "config", "jit", "_checks"},
    "_facts": {"errors", "config", "jit", "dump"},
    "_builds": {"errors", "config", "jit", "dump", "logging"},
    "_statistics": {"errors", "config", "jit", "_background"},
    "_runtime": {
        "errors", "config", "jit", "dump", "logging", "_checks", "_registry", "_facts", "_builds",
        "_native_recorder", "_statistics",
    },
    "ops": {
        "errors", "config", "jit", "_checks", "_runtime", "_statistics", "_native_recorder",
        "_crash_handler",
    },
    "replay": {
        "errors", "fence", "config", "jit", "dump", "_checks", "_facts", "_registry",
        "_crash_handler",
    },
    "selftest": {
        "errors", "config", "jit", "dump", "_checks", "_facts", "_registry", "_runtime", "ops",
        "replay",
    },
    "__init__": {"ops", "_runtime"},
    "checks": {"_checks"},
    "_version": set(),
    "_fork": set(),
}  # fmt: skip
OPEN = {"_fork", "_version"}
FREE = {"_commands"}  # a program puts everything together
HEAVY = {"torch", "tvm_ffi", "safetensors", "structlog"}
#: Public operators whose signature is the field's, so that callers need no adapter.
WIDE_ON_PURPOSE = {"append_paged_kv"}
STANDARD_ONLY = {"errors", "_variables", "config"}


@dataclass(frozen=True)
class Import:
    """One imported module: where, what, and when it happens."""

    file: Path
    line: int
    module: str
    top_level: bool
    typing_only: bool

    def __str__(self):
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.module}"


def modules():
    return sorted((ROOT / "kernlib").rglob("*.py"))


def relative(path):
    return str(path.relative_to(ROOT))


def room_of(path):
    """Return the part of the package a file belongs to."""
    parts = path.relative_to(ROOT / "kernlib").parts
    return parts[0].removesuffix(".py")


def room_named(module):
    """Return the room an absolute module name of this package lies in."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def is_typing_guard(node):
    test = getattr(node, "test", None)
    return isinstance(node, ast.If) and ast.unparse(test).endswith("TYPE_CHECKING")


def names_of(node, path):
    """Return the absolute modules an import statement names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        package = path.relative_to(ROOT).with_suffix("").parts[: -node.level]
        base = ".".join([*package, *filter(None, [base])])
    if base == "kernlib":  # `from kernlib import jit` names a room
        return [f"kernlib.{alias.name}" for alias in node.names]
    return [base]


def imports(path):
    """Return every import of a file, at whatever depth it stands."""
    found = []

    def visit(node, *, top_level, typing_only):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import | ast.ImportFrom):
                found.extend(
                    Import(path, child.lineno, name, top_level, typing_only)
                    for name in names_of(child, path)
                )
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            visit(
                child,
                top_level=top_level and not inside,
                typing_only=typing_only or is_typing_guard(child),
            )

    visit(parse(path), top_level=True, typing_only=False)
    return found


ALL_IMPORTS = [found for path in modules() for found in imports(path)]


def allowed(found):
    room, target = room_of(found.file), room_named(found.module)
    if room in FREE or target in OPEN or target == room:
        return True
    if room == "replay" and target in {"ops", "selftest"}:
        return found.file.name.startswith("_worker") and not found.top_level
    return target in MAY_IMPORT[room]


def test_every_room_has_import_rules():
    rooms = {room_of(path) for path in modules()}
    assert sorted(rooms - MAY_IMPORT.keys() - FREE) == []


def test_the_rooms_import_only_what_lies_below_them():
    package = [found for found in ALL_IMPORTS if found.module.split(".")[0] == "kernlib"]
    assert package
    assert [str(found) for found in package if not allowed(found)] == []


def test_imports_between_the_rooms_have_no_circle():
    order, waiting = [], dict(MAY_IMPORT)
    while waiting:
        ready = [room for room, needs in waiting.items() if needs <= set(order)]
        assert ready, f"a circle among {sorted(waiting)}"
        order += ready
        waiting = {room: needs for room, needs in waiting.items() if room not in ready}


def test_heavy_packages_are_imported_where_they_are_needed():
    early = [
        str(found)
        for found in ALL_IMPORTS
        if found.module.split(".")[0] in HEAVY and found.top_level and not found.typing_only
    ]
    assert early == []


def test_errors_and_config_use_the_standard_library_only():
    foreign = [
        str(found)
        for found in ALL_IMPORTS
        if room_of(found.file) in STANDARD_ONLY
        and found.module.split(".")[0] not in {"kernlib", *sys.stdlib_module_names}
    ]
    assert foreign == []


@pytest.mark.parametrize(
    "module",
    ["kernlib", "kernlib.dump", "kernlib.jit", "kernlib.logging", "kernlib.ops",
     "kernlib.replay.cli"],
)  # fmt: skip
def test_importing_loads_nothing_heavy(module):
    code = f"import sys, {module}; print(*sorted({HEAVY!r} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_the_stub_and_the_package_export_the_same_names():
    names = {path.suffix: exports(path) for path in (ROOT / "kernlib").glob("__init__.py*")}
    assert names[".py"] == names[".pyi"]


def exports(path):
    """Return ``__all__`` of a file as it is written, or None."""
    for node in parse(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return None


def rank(name):
    """Return where a name stands in ``__all__``: constants, classes, then the rest (RUF022)."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def test_all_is_sorted_where_it_is_given():
    given = {relative(path): exports(path) for path in modules() if exports(path) is not None}
    assert [path for path, names in given.items() if names != sorted(names, key=rank)] == []


def test_every_package_with_code_says_what_it_exports():
    packages = [path for path in modules() if path.name == "__init__.py" and parse(path).body[1:]]
    assert [relative(path) for path in packages if exports(path) is None] == []


def test_every_module_says_in_a_few_words_what_it_is_for():
    wordy = []
    for path in modules():
        first = (ast.get_docstring(parse(path)) or "").partition("\n")[0]
        if not 0 < len(first.split()) <= INTRODUCTION_WORDS:
            wordy.append(f"{relative(path)}: {first!r}")
    assert wordy == []


def sources():
    """Return everything a ceiling holds for: the package, its kernels and the tools."""
    suffixes = {".py", ".h", ".cuh", ".cu", ".cc"}
    found = [path for top in ("kernlib", "include", "csrc", "tools") for path in walk(ROOT / top)]
    return [path for path in found if path.suffix in suffixes]


def walk(folder):
    return sorted(folder.rglob("*"))


def test_no_file_outgrows_its_room():
    sizes = {relative(path): len(path.read_text().splitlines()) for path in sources()}
    assert {path: lines for path, lines in sizes.items() if lines > FILE_LINES} == {}


def functions():
    for path in sources():
        if path.suffix == ".py":
            for node in ast.walk(parse(path)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{relative(path)}:{node.lineno} {node.name}", node


def test_no_function_is_too_long():
    sizes = {name: node.end_lineno - node.lineno + 1 for name, node in functions()}
    assert {name: lines for name, lines in sizes.items() if lines > FUNCTION_LINES} == {}


def parameters(node):
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [argument for argument in every if argument.arg not in {"self", "cls"}]


def test_no_function_takes_too_many_parameters():
    counts = {name: len(parameters(node)) for name, node in functions()}
    over = {name: count for name, count in counts.items() if count > PARAMETERS}
    assert {name: n for name, n in over.items() if name.split()[1] not in WIDE_ON_PURPOSE} == {}


def broad(handler):
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(ast.unparse(kind) in {"Exception", "BaseException"} for kind in kinds)


def swallows(handler):
    """Return whether a handler can end without raising again what it caught."""
    last = handler.body[-1]
    return not (isinstance(last, ast.Raise) and last.exc is None)


def test_one_broad_except_in_the_package_around_the_sinks():
    places = [
        f"{relative(path)}:{node.lineno}"
        for path in modules()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ExceptHandler) and broad(node) and swallows(node)
    ]
    assert len(places) <= 1, f"the sinks' one is enough: {places}"
    assert all(place.startswith("kernlib/logging/") for place in places), places


def test_device_and_cpu_kernels_know_no_framework():
    framework = ("torch/", "ATen/", "c10/", "tvm/", "dlpack/", "Python.h", "pybind11/")
    found = [
        f"{relative(path)}: {line.strip()}"
        for path in [*walk(ROOT / "include"), *(ROOT / "csrc").rglob("*.cu")]
        if path.is_file()
        for line in path.read_text().splitlines()
        if line.lstrip().startswith("#include") and any(name in line for name in framework)
    ]
    assert found == []


def test_the_rules_see_a_broken_rule(tmp_path, monkeypatch):
    """A test that cannot fail is a defect: plant what each parsing rule must find."""
    planted = tmp_path / "kernlib" / "jit" / "bad.py"
    planted.parent.mkdir(parents=True)
    planted.write_text(
        "import torch\n"
        "from kernlib.dump import read\n"
        "def f():\n    from ..logging import recorded\n    import structlog\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import tvm_ffi\n"
        "try:\n    pass\nexcept (OSError, Exception):\n    pass\n"
    )
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    found = imports(planted)
    assert [f.module for f in found if f.top_level and not f.typing_only] == [
        "torch", "kernlib.dump", "typing",
    ]  # fmt: skip
    package = [f for f in found if f.module.startswith("kernlib")]
    assert [f.module for f in package if not allowed(f)] == ["kernlib.dump", "kernlib.logging"]
    handlers = [n for n in ast.walk(parse(planted)) if isinstance(n, ast.ExceptHandler)]
    assert [broad(handler) and swallows(handler) for handler in handlers] == [True]

"""What importing the JIT costs: a warm load imports no more than it needs."""

import subprocess
import sys

from kernlib import jit

COLD = ("_aot", "_batch", "_entries", "_errors", "_prune", "_resources", "_triton")


def loaded_after(code):
    """Return which of the modules that only a build or a command needs are loaded."""
    code += f"; import sys; print(*[n for n in {COLD!r} if f'kernlib.jit.{{n}}' in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_import_loads_nothing_that_a_warm_load_does_not_need():
    assert loaded_after("import kernlib.jit") == []


def test_a_name_is_imported_at_its_first_use():
    assert "_prune" in loaded_after("from kernlib.jit import prune")


def test_every_public_name_is_there_and_listed():
    assert [name for name in jit.__all__ if not hasattr(jit, name)] == []
    assert set(jit.__all__) <= set(dir(jit))


def test_no_other_name_is_there():
    assert not hasattr(jit, "nothing_of_this_name")

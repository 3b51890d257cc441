"""A program: compiles a Triton source ahead of time.

It is run by its path, as a compiler would be, and imports nothing of kernlib. The source defines
``SPECIALISATIONS``: by name a kernel, its signature, constants and number of warps. Each becomes
an object beside OUT, which lists them. No GPU is asked for.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import re
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType, TracebackType

_SCHEMA_VERSION = 1
_WARP = 32
#: Variables that change what Triton makes: the build record would have to hold them.
_STEERING = re.compile(r"(TRITON|LLVM|MLIR|NVPTX|PTXAS|DISABLE|USE_IR|ALLOW|DUMP)_?[A-Z0-9_]*")
_PARAMETER = re.compile(r"^\s*\.param\s", re.MULTILINE)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compile a Triton source ahead of time.")
    parser.add_argument("--capability", type=int, required=True, help="90 for sm_90a")
    parser.add_argument("--line-info", action="store_true", help="add line tables")
    parser.add_argument("-c", dest="source", type=Path, required=True)
    parser.add_argument("-o", dest="out", type=Path, required=True)
    return parser.parse_args()


def _steer(cache: str, *, line_info: bool) -> None:
    """Leave to Triton nothing that the build record does not say, nor its own cache."""
    for name in [name for name in os.environ if _STEERING.fullmatch(name)]:
        del os.environ[name]
    os.environ["TRITON_CACHE_DIR"] = cache
    os.environ["TRITON_DISABLE_LINE_INFO"] = "0" if line_info else "1"


def _executed(source: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(source.stem, source)
    if spec is None or spec.loader is None:
        raise ImportError(f"{source} is no Python source")
    sys.dont_write_bytecode = True
    module = sys.modules[source.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _flat(types: Any) -> list[str]:  # noqa: ANN401 - a type, or tuples of types
    if isinstance(types, str):
        return [types]
    return [name for part in types for name in _flat(part)]


def _compile(name: str, given: dict[str, Any], capability: int, folder: Path) -> dict[str, Any]:
    """Compile one specialisation and return what launching it takes."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature, constants = given["signature"], given["constants"]
    source = ASTSource(
        given["kernel"],
        {**signature, **dict.fromkeys(constants, "constexpr")},
        constants,
    )
    target = GPUTarget("cuda", capability, _WARP)
    compiled = triton.compile(source, target, {"num_warps": given["num_warps"]})
    facts, cubin = compiled.metadata, compiled.asm["cubin"]
    if facts.num_ctas != 1 or facts.global_scratch_size or facts.profile_scratch_size:
        raise ValueError(f"{name} needs clusters or scratch memory, which are not supported")
    # After the kernel's own parameters stand pointers to scratch memory: null, since none is used.
    parameters = _flat(signature.values())
    scratch = len(_PARAMETER.findall(compiled.asm["ptx"])) - len(parameters)
    path = folder / f"{name}.cubin"
    path.write_bytes(cubin)
    return {
        "object": path.name,
        "size": len(cubin),
        "sha256": hashlib.sha256(cubin).hexdigest(),
        "symbol": facts.name,
        "parameters": parameters,
        "scratch": scratch,
        "threads": facts.num_warps * _WARP,
        "shared": facts.shared,
    }


def _place(error: BaseException, source: Path) -> str:
    """Return file, line and text of an error as a compiler would, where Triton tells them."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: error: {error.msg}\n    {error.text or ''}"
    inner: BaseException | None = error
    message = ""
    while inner is not None:  # the innermost error tells the cause
        message = getattr(inner, "error_message", "") or message or str(inner)
        inner = inner.__cause__
    line = getattr(getattr(error, "node", None), "lineno", 0)  # of the function
    if line and (function := getattr(error, "src", "")):
        text = source.read_text(encoding="utf-8")
        before = text[: text.find(function)].count("\n") if function in text else 0
        shown = function.splitlines()[line - 1]
        return f"{source}:{before + line}: error: {message}\n{shown}"
    return f"error: {source}: {type(error).__name__}: {message}"


def main() -> None:
    """Compile every specialisation, then list them."""
    arguments = _arguments()
    folder = arguments.out.absolute().parent

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sys.stderr.write(f"{_place(error, arguments.source)}\n\n")
        traceback.print_exception(kind, error, trace)

    sys.excepthook = tell
    here = str(Path(__file__).parent)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    with tempfile.TemporaryDirectory(prefix=".triton-", dir=folder) as cache:
        _steer(cache, line_info=arguments.line_info)
        kernels = {
            name: _compile(name, given, arguments.capability, folder)
            for name, given in _executed(arguments.source).SPECIALISATIONS.items()
        }
    listing = {"schema_version": _SCHEMA_VERSION, "kernels": kernels}
    arguments.out.write_text(json.dumps(listing, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

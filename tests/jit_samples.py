"""A small kernel of another library, and compilers that only pretend."""

import os
import shlex
import subprocess
import sys

from kernlib import jit
from kernlib.config import Config

__all__ = [
    "FILES",
    "chosen",
    "fake_config",
    "fake_cxx",
    "fake_nvcc",
    "plain_spec",
    "python",
    "start_python",
    "twice_spec",
    "write_root",
]

#: ``twice.h`` includes ``factor.h``: a header that no unit names.
FILES = {
    "csrc/twice/twice_cpu.cc": '#include "twice/twice.h"\n\n'
    "void twice(const float* x, float* out, long n) {\n"
    "  for (long i = 0; i < n; ++i) out[i] = kFactor * x[i];\n"
    "}\n",
    "csrc/twice/binding.cc": "#include <tvm/ffi/container/tensor.h>\n"
    "#include <tvm/ffi/function.h>\n\n"
    '#include "twice/twice.h"\n\n'
    "void run(tvm::ffi::TensorView x, tvm::ffi::TensorView out) {\n"
    "  twice(static_cast<const float*>(x.data_ptr()), static_cast<float*>(out.data_ptr()),\n"
    "        x.numel());\n"
    "}\n"
    "TVM_FFI_DLL_EXPORT_TYPED_FUNC(twice, run);\n",
    "csrc/twice/twice.cu": '#include "twice/twice.h"\n\n'
    "__global__ void kernel(const float* x, float* out, long n) {\n"
    "  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;\n"
    "  if (i < n) out[i] = kFactor * x[i];\n"
    "}\n"
    "void twice(const float* x, float* out, long n) {\n"
    "  kernel<<<(n + 127) / 128, 128>>>(x, out, n);\n"
    "}\n",
    "include/twice/twice.h": '#pragma once\n#include "factor.h"\n'
    "void twice(const float* x, float* out, long n);\n",
    "include/twice/factor.h": "#pragma once\nconstexpr float kFactor = 2.0f;\n",
}

_TOOL = """#!/bin/sh
# Answers like a compiler, notes every call, and "compiles" by copying what it is given.
echo "$@" >> {folder}/calls.txt
case " $* " in
  *" --version "*) cat {answer}; exit 0 ;;
  *" -dumpmachine "*) echo x86_64-pretended; exit 0 ;;
  *" --dryrun "*) echo '#$ TOP={folder}/toolkit'; exit 0 ;;
esac
env > {folder}/environment.txt
[ -e {folder}/say ] && cat {folder}/say && exit 1
seconds=$(cat {folder}/wait 2>&-) && echo $$ >> {folder}/waiting.txt && sleep $seconds
out= inputs= previous=
for word in "$@"; do
  case "$previous $word" in
    "-o "*) out=$word ;;
    *.cc|*.cu|*.o) [ -f "$word" ] && inputs="$inputs $word" ;;
  esac
  previous=$word
done
cat $inputs > "$out"
"""


def _tool(path, answer):
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    text = path.with_suffix(".version")
    text.write_text(f"{answer}\n")
    path.write_text(
        _TOOL.replace("{folder}", shlex.quote(str(folder))).replace("{answer}", str(text))
    )
    path.chmod(0o755)
    return path


def fake_cxx(folder, version="1.0"):
    """Write a C++ compiler that pretends; ``calls.txt`` beside it lists its command lines."""
    return _tool(folder / "pretended-g++", f"pretended {version}")


def fake_nvcc(folder, version="13.0"):
    """Write an nvcc that pretends, with a toolkit that has the one header asked for."""
    header = folder / "toolkit" / "include" / "cuda_runtime.h"
    header.parent.mkdir(parents=True, exist_ok=True)
    header.touch()
    return _tool(folder / "pretended-nvcc", f"release {version}, V{version}.1")


def fake_config(folder, **changes):
    """Return a Config whose compilers pretend and whose workspace is below ``folder``."""
    tools = folder / "tools"
    given = {"workspace": folder / "workspace"}
    if "cxx" not in changes:
        given["cxx"] = str(fake_cxx(tools))
    if "nvcc" not in changes:
        given["nvcc"] = str(fake_nvcc(tools))
    return Config(**{**given, **changes})


def write_root(folder, **changes):
    """Write the sample's sources below ``folder`` and return it."""
    for label, text in {**FILES, **changes}.items():
        path = folder / label
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def plain_spec(root, backend="cpu", **changes):
    """Return a spec of the sample without its binding: it builds at once, but cannot be loaded."""
    unit = "csrc/twice/twice.cu" if backend == "cuda" else "csrc/twice/twice_cpu.cc"
    targets = ("sm_80+",) if backend == "cuda" else ("cpu",)
    given = {"name": "twice", "backend": backend, "root": root, "sources": (unit,)}
    return jit.KernelSpec(**{**given, "targets": targets, **changes})


def twice_spec(root, backend="cpu", **changes):
    """Return the spec of the whole sample: kernels and binding."""
    units = (*plain_spec(root, backend).sources, "csrc/twice/binding.cc")
    return plain_spec(root, backend, **{"sources": units, **changes})


def chosen(spec, target=None):
    """Return a choice of a spec for a target it supports."""
    usual = "cpu" if spec.backend == "cpu" else "sm_90a"
    return jit.KernelChoice(spec=spec, target=target or usual, reason="a test asks for it")


_PRELUDE = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from jit_samples import chosen, plain_spec, twice_spec
from kernlib import jit
root = Path({root!r})
"""


def start_python(code, root, config, **environment):
    """Start a new process that runs ``code`` with the sample at ``root``, under ``config``."""
    tests = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - as text
    source = _PRELUDE.format(tests=tests, root=str(root)) + code
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KERNLIB_")}
    return subprocess.Popen(
        [sys.executable, "-c", source], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**kept, **config.to_env(), **environment},
    )  # fmt: skip


def python(code, root, config, **environment):
    """Run ``code`` in a new process and return what it printed; its failure fails the test."""
    child = start_python(code, root, config, **environment)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    assert err == ""
    return out.strip()

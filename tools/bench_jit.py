"""What a warm load, a look-up and a cold build cost, against load_inline of tvm-ffi, in one run.

Host time by time.perf_counter_ns. Warm loads are timed in new processes after torch is imported,
kernlib's and load_inline's by turns; kernlib's cannot start a process, so neither ninja nor a
compiler. The results of every kernel that is timed are checked first.
"""

import argparse
import json
import os
import pickle
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from kernlib import PagedDecode, append_paged_kv, jit, rms_norm, silu_and_mul
from kernlib.config import Config, using
from kernlib.ops._activation import activation_spec
from kernlib.ops._norm import norm_spec
from kernlib.ops._paged_cache import append_paged_kv_spec
from kernlib.ops._paged_decode import paged_decode_spec

HEAD_DIM = 128
SCALE = """
void scale(tvm::ffi::TensorView out, tvm::ffi::TensorView x, double by) {
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(out.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] * static_cast<float>(by);
}
"""
EMPTY = "void nothing() {}"

#: Both children print one JSON object: the milliseconds of each stage.
BEGIN = """
import json, os, pickle, subprocess, sys, time
import torch
given = pickle.loads(sys.stdin.buffer.read())
now, stages = time.perf_counter_ns, {}
def timed(name, work):
    begin = now()
    result = work()
    stages[name] = (now() - begin) / 1e6
    return result
def import_tvm_ffi():
    import tvm_ffi.cpp
"""
KERNLIB = """
def refuse(*_, **__):
    raise SystemExit("a warm load started a process")
subprocess.Popen.__init__ = os.system = os.posix_spawn = os.posix_spawnp = os.fork = refuse
def import_jit():
    import kernlib.jit
    return kernlib.jit
def choice_of(values):
    return jit.KernelChoice(spec=jit.KernelSpec(**values), target="cpu")
timed("import tvm_ffi", import_tvm_ffi)
jit = timed("import kernlib.jit", import_jit)
loaded = {}
for name, values in given.items():
    choice = timed(f"spec {name}", lambda: choice_of(values))
    loaded[name] = choice, timed(f"load {name}", lambda: jit.load(choice))
from kernlib.config import get_config
for name, (choice, kernel) in loaded.items():
    plan = timed(f"plan again {name}", lambda: jit.plan(choice))
    timed(f"find again {name}", lambda: jit.find_artifact(plan, get_config()))
    if jit.load(choice) is not kernel:
        raise SystemExit("a loaded kernel was loaded again")
rounds, load = range(50_000), jit.load
choice = loaded["norm"][0]
begin = now()
for _ in rounds:
    pass
bare = now() - begin
begin = now()
for _ in rounds:
    load(choice)
stages["look-up ns"] = (now() - begin - bare) / len(rounds)
print(json.dumps(stages))
"""
INLINE = """
timed("import tvm_ffi", import_tvm_ffi)
from tvm_ffi.cpp import load_inline
module = timed("load_inline", lambda: load_inline(**given))
x = torch.randn(64)
out = torch.empty_like(x)
module.scale(out, x, 2.0)
if not torch.equal(out, x * 2):
    raise SystemExit("load_inline computes something else")
print(json.dumps(stages))
"""


def expect(holds: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not holds:
        sys.exit(f"bench_jit: not what it should be: {what}")


def specs() -> dict[str, jit.KernelSpec]:
    """Return the CPU kernels by name, the first one first."""
    return {
        "norm": norm_spec("cpu"),
        "activation": activation_spec("cpu"),
        "append": append_paged_kv_spec("cpu"),
        "paged_decode": paged_decode_spec("cpu", HEAD_DIM),
    }


def check_results() -> None:
    """Build what is not there yet, and compare every kernel with torch."""
    x, weight = torch.randn(8, 256), torch.randn(256)
    expected = torch.nn.functional.rms_norm(x, (256,), weight, 1e-6)
    expect(torch.allclose(rms_norm(x, weight), expected, atol=1e-5), "rms_norm")
    gated = torch.nn.functional.silu(x[:, :128]) * x[:, 128:]
    expect(torch.allclose(silu_and_mul(x), gated, atol=1e-5), "silu_and_mul")
    cache = torch.zeros(2, 2, 1, 4, HEAD_DIM)
    k, v = torch.randn(2, 3, 1, HEAD_DIM).unbind()
    pages = [torch.tensor(row, dtype=torch.int32) for row in ([1], [0, 1], [3])]
    places = [torch.tensor(row, dtype=torch.int32) for row in ([0, 0, 0], [0, 1, 2])]
    append_paged_kv(k, v, cache, *pages, *places)
    expect(torch.equal(cache[1, 0, 0, :3], k[:, 0]), "append_paged_kv")
    decode, q = PagedDecode(1, 1, HEAD_DIM, 4), torch.randn(1, 1, HEAD_DIM)
    decode.plan(pages[1], pages[0], pages[2])
    attended = torch.softmax(q[0] @ k[:, 0].T * HEAD_DIM**-0.5, -1) @ v[:, 0]
    expect(torch.allclose(decode.run(q, cache)[0], attended, atol=1e-5), "PagedDecode.run")


def child(code: str, given: object, config: Config) -> dict[str, float]:
    """Return the stages of a new process; bytecode is cached, as in an installed package."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith("KERNLIB_")}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code], input=pickle.dumps(given), capture_output=True,
        check=False, env={**environ, **config.to_env()},
    )  # fmt: skip
    expect(done.returncode == 0, done.stderr.decode()[-2000:])
    found: dict[str, float] = json.loads(done.stdout)
    return found


def warm(config: Config, scratch: Path, rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of every stage, over processes of both kinds by turns."""
    kernels = {
        name: {row.name: getattr(spec, row.name) for row in fields(spec) if row.init}
        for name, spec in specs().items()
    }
    inline = {"name": "scale", "cpp_sources": SCALE, "functions": ["scale"],
              "build_directory": str(scratch / "inline")}  # fmt: skip
    (scratch / "inline").mkdir()
    times: dict[str, list[float]] = {}
    for turn in range(rounds + 1):
        found = {f"inline {name}": value for name, value in child(INLINE, inline, config).items()}
        found |= child(KERNLIB, kernels, config)
        if turn:  # the first of each builds, and caches bytecode
            for name, value in found.items():
                times.setdefault(name, []).append(value)
    return times | sums(times, list(kernels))


def sums(times: dict[str, list[float]], kernels: list[str]) -> dict[str, list[float]]:
    """Return what a user waits for: the stages added up, process by process."""

    def total(*names: str) -> list[float]:
        return [sum(stages) for stages in zip(*(times[name] for name in names), strict=True)]

    first, *further = kernels
    loads = [total(f"spec {name}", f"load {name}") for name in further]
    own = (f"spec {first}", f"load {first}")
    return {
        "inline with all imports": total("inline import tvm_ffi", "inline load_inline"),
        "first kernel": total(*own),
        "first kernel with kernlib's import": total("import kernlib.jit", *own),
        "first kernel with all imports": total("import tvm_ffi", "import kernlib.jit", *own),
        "a further kernel, the slowest": [max(turn) for turn in zip(*loads, strict=True)],
    }


def cold(scratch: Path, rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of builds into workspaces that hold no artifact, by turns."""
    from tvm_ffi.cpp import load_inline

    choices = {"cpu": jit.KernelChoice(spec=norm_spec("cpu"), target="cpu")}
    if shutil.which("nvcc"):
        choices["sm_90a"] = jit.KernelChoice(spec=norm_spec("cuda"), target="sm_90a")
    times: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[[], Any]) -> None:
        begin = time.perf_counter_ns()
        work()
        times.setdefault(name, []).append((time.perf_counter_ns() - begin) / 1e6)

    for turn in range(rounds):
        for target, choice in choices.items():
            config = Config(workspace=scratch / f"cold-{target}-{turn}")
            jit.toolchain_identity(choice.spec.backend, config)  # compilers asked who they are
            timed(f"cold norm {target}", lambda: jit.prepare(choice, config))  # noqa: B023 - now
        folder = scratch / f"cold-inline-{turn}"
        folder.mkdir()
        timed(
            "cold load_inline, empty",
            lambda: load_inline(
                name="nothing", cpp_sources=EMPTY, functions=["nothing"],
                build_directory=str(folder),  # noqa: B023 - called now
            ),
        )  # fmt: skip
    return times


def row(name: str, values: list[float], against: float | None = None, budget: str = "") -> None:
    middle = statistics.median(values)
    ratio = f"{middle / against:>9.2f}" if against else f"{'':>9}"
    print(f"{name:<36}{middle:>10.3f}{min(values):>10.3f}{max(values):>10.3f}{ratio}  {budget}")


def report(warm_times: dict[str, list[float]], cold_times: dict[str, list[float]]) -> None:
    from importlib.metadata import version

    cxx = jit.toolchain_identity("cpu", Config())["cxx"]
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, torch "
        f"{torch.__version__}, apache-tvm-ffi {version('apache-tvm-ffi')}, {cxx}"
    )
    print(f"perf_counter_ns, {len(warm_times['load norm'])} processes of each kind by turns")
    print(f"{'ms':<36}{'median':>10}{'min':>10}{'max':>10}{'x inline':>9}  budget")
    shown = {
        "inline load_inline": ("inline load_inline", ""),
        "first kernel": ("inline load_inline", "5 ms, and no slower than load_inline"),
        "first kernel with kernlib's import": ("inline load_inline", ""),
        "a further kernel, the slowest": ("inline load_inline", "1 ms"),
        "inline with all imports": ("inline with all imports", ""),
        "first kernel with all imports": ("inline with all imports", ""),
    }
    for name, (other, budget) in shown.items():
        row(name, warm_times[name], statistics.median(warm_times[other]), budget)
    for name in sorted(set(warm_times) - set(shown) - {"look-up ns"}):
        row(f"  {name}", warm_times[name])
    row("look-up of a loaded kernel, ns", warm_times["look-up ns"], None, "500 ns")
    inline = statistics.median(cold_times["cold load_inline, empty"])
    for name, values in cold_times.items():
        budget = {"cold norm cpu": "2000 ms", "cold norm sm_90a": "3000 ms"}.get(name, "")
        row(name, values, inline, budget)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--cold-rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kernlib-bench-") as name:
        scratch = Path(name)
        config = Config(workspace=scratch / "warm")
        with using(config):
            check_results()
        report(warm(config, scratch, options.rounds), cold(scratch, options.cold_rounds))


if __name__ == "__main__":
    main()

"""What this machine can do, probed once; a skip names what is missing.

``@pytest.mark.requires("nvcc")`` skips a test where nvcc is missing; with ``--require=nvcc`` such a
skip is a failure. Beside the names below, ``sm_80+`` asks for a device of that compute capability
or later and ``sm_90a`` for exactly that one.
"""

import importlib.util
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

__all__ = ["NAMES", "find_nvcc", "known", "missing"]


def _output(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


@cache
def find_nvcc():
    """Return the path of nvcc, or None."""
    usual = Path("/usr/local/cuda/bin/nvcc")
    return shutil.which("nvcc") or (str(usual) if usual.exists() else None)


def _gxx():
    return "" if shutil.which("g++") else "g++ is not on PATH"


def _clang():
    return "" if shutil.which("clang++") else "clang++ is not on PATH"


def _asan():
    if reason := _gxx():
        return reason
    library = Path(_output("g++", "-print-file-name=libasan.so"))
    return "" if library.is_absolute() and library.exists() else "g++ has no libasan.so"


def _nvcc():
    return "" if find_nvcc() else "nvcc is neither on PATH nor in /usr/local/cuda"


def _devices():
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _cuda():
    return "" if _devices() else "torch sees no CUDA device"


def _cuda_pair():
    count = _devices()
    return "" if count > 1 else f"two CUDA devices are needed, torch sees {count}"


def _compute_sanitizer():
    beside = Path(find_nvcc() or "nvcc").resolve().with_name("compute-sanitizer")
    if shutil.which("compute-sanitizer") or beside.exists():
        return ""
    return "compute-sanitizer is neither on PATH nor beside nvcc"


def _cuobjdump():
    from kernlib.config import Config
    from kernlib.jit._machine_code import disassembler

    found = disassembler(Config(nvcc=find_nvcc() or "nvcc"))
    return "" if found else "cuobjdump or nvdisasm is in no toolkit and no package"


def _triton():
    return "" if importlib.util.find_spec("triton") else "the package triton is not installed"


_PROBES = {
    "asan": _asan,
    "clang": _clang,
    "compute-sanitizer": _compute_sanitizer,
    "cuda": _cuda,
    "cuda-pair": _cuda_pair,
    "cuobjdump": _cuobjdump,
    "gxx": _gxx,
    "nvcc": _nvcc,
    "triton": _triton,
}
NAMES = tuple(_PROBES)
_ARCHITECTURE = re.compile(r"sm_(\d+)(\d)(a?)(\+?)")


def known(name):
    """Return whether ``name`` is a capability that can be asked for."""
    return name in _PROBES or _ARCHITECTURE.fullmatch(name) is not None


def _architecture(name):
    if reason := _cuda():
        return reason
    import torch

    major, minor, _, later = _ARCHITECTURE.fullmatch(name).groups()
    wanted, have = (int(major), int(minor)), torch.cuda.get_device_capability()
    if have == wanted or (later and have > wanted):
        return ""
    return f"the device has compute capability {have[0]}.{have[1]}"


@cache
def missing(name):
    """Return why ``name`` is not to be had here, or an empty text if it is."""
    if not known(name):
        message = f"unknown capability {name!r}; known: {', '.join(NAMES)}, sm_80+, sm_90a"
        raise ValueError(message)
    return _PROBES[name]() if name in _PROBES else _architecture(name)

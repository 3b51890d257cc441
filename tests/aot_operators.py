"""Runs every operator on the device it is told, and prints which; for a process of its own."""

import sys

import ops_checks as checks
import torch

from kernlib import jit, ops

__all__ = ["OPERATORS"]


def _append(device):
    checks.append_matches(device, torch.float16, "dense", 5, 64)


def _fused_add(device):
    checks.fused_add_rms_norm_matches(device, torch.bfloat16, "dense", (3, 5))


def _decode(device):
    for head_dim in (64, 128):
        checks.decode_matches(device, torch.float16, "dense", head_dim, (8, 2), 5)


def _norm(device):
    checks.rms_norm_matches(device, torch.float32, "slice", (3, 5))


def _silu(device):
    checks.silu_and_mul_matches(device, torch.float16, "dense", (3, 5))


#: One run of each public operator, compared with its reference.
OPERATORS = {
    "PagedDecode": _decode,
    "append_paged_kv": _append,
    "fused_add_rms_norm_": _fused_add,
    "rms_norm": _norm,
    "silu_and_mul": _silu,
}

if __name__ == "__main__":
    for name in ops.__all__:
        OPERATORS[name](sys.argv[1])
        sys.stdout.write(f"{name}\n")
    for kernel in jit.loaded_kernels():
        sys.stdout.write(f"{kernel.artifact.library}\n")

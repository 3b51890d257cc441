"""Builds and loads kernels: specs, toolchains, cache."""

from kernlib.jit._build import prepare
from kernlib.jit._cache import Artifact, find_artifact
from kernlib.jit._load import Kernel, load, loaded_kernels
from kernlib.jit._plan import BuildPlan, plan
from kernlib.jit._record import (
    BuildRecord,
    Difference,
    compare_records,
    decode_record,
    record_json,
    record_key,
)
from kernlib.jit._spec import KernelChoice, KernelSpec
from kernlib.jit._target import requested_targets, target_of
from kernlib.jit._toolchain import toolchain_identity
from kernlib.jit._workspace import artifacts_dir, generated_dir, source_root, workspace_dir

__all__ = [
    "Artifact",
    "BuildPlan",
    "BuildRecord",
    "Difference",
    "Kernel",
    "KernelChoice",
    "KernelSpec",
    "artifacts_dir",
    "compare_records",
    "decode_record",
    "find_artifact",
    "generated_dir",
    "load",
    "loaded_kernels",
    "plan",
    "prepare",
    "record_json",
    "record_key",
    "requested_targets",
    "source_root",
    "target_of",
    "toolchain_identity",
    "workspace_dir",
]

"""Builds and loads kernels: specs, toolchains, cache."""

from kernlib.jit._aot import mismatch_text, package_dir
from kernlib.jit._batch import BatchResult, build_many
from kernlib.jit._build import prepare
from kernlib.jit._cache import Artifact, find_artifact
from kernlib.jit._entries import CacheEntry, cache_entries, entry_named, other_sizes, verify_entry
from kernlib.jit._load import Kernel, load, loaded_kernels
from kernlib.jit._plan import BuildPlan, plan
from kernlib.jit._prune import Pruned, PruneLimits, Remnant, prune
from kernlib.jit._record import (
    ArtifactMetadata,
    BuildRecord,
    Difference,
    compare_records,
    decode_record,
    record_json,
    record_key,
)
from kernlib.jit._spec import KernelChoice, KernelSpec
from kernlib.jit._target import build_targets, requested_targets, target_of
from kernlib.jit._toolchain import toolchain_identity
from kernlib.jit._usage import hold, holders
from kernlib.jit._workspace import artifacts_dir, generated_dir, source_root, workspace_dir

__all__ = [
    "Artifact",
    "ArtifactMetadata",
    "BatchResult",
    "BuildPlan",
    "BuildRecord",
    "CacheEntry",
    "Difference",
    "Kernel",
    "KernelChoice",
    "KernelSpec",
    "PruneLimits",
    "Pruned",
    "Remnant",
    "artifacts_dir",
    "build_many",
    "build_targets",
    "cache_entries",
    "compare_records",
    "decode_record",
    "entry_named",
    "find_artifact",
    "generated_dir",
    "hold",
    "holders",
    "load",
    "loaded_kernels",
    "mismatch_text",
    "other_sizes",
    "package_dir",
    "plan",
    "prepare",
    "prune",
    "record_json",
    "record_key",
    "requested_targets",
    "source_root",
    "target_of",
    "toolchain_identity",
    "verify_entry",
    "workspace_dir",
]

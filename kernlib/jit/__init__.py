"""Builds and loads kernels: specs, toolchains, cache."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernlib.jit._build import prepare
from kernlib.jit._cache import Artifact, find_artifact
from kernlib.jit._load import Kernel, load, loaded_kernels, open_kernel
from kernlib.jit._plan import BuildPlan, plan
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
from kernlib.jit._toolchain import clean_environment, toolchain_identity
from kernlib.jit._usage import hold, holders
from kernlib.jit._workspace import artifacts_dir, generated_dir, source_root, workspace_dir

if TYPE_CHECKING:
    from kernlib.jit._aot import mismatch_text, package_dir
    from kernlib.jit._batch import BatchResult, build_many
    from kernlib.jit._entries import (
        CacheEntry,
        cache_entries,
        entry_named,
        other_sizes,
        verify_entry,
    )
    from kernlib.jit._prune import Pruned, PruneLimits, Remnant, prune

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
    "clean_environment",
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
    "open_kernel",
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

#: What a warm load does not need is imported at its first use.
_LATER = {
    "mismatch_text": "_aot",
    "package_dir": "_aot",
    "BatchResult": "_batch",
    "build_many": "_batch",
    "CacheEntry": "_entries",
    "cache_entries": "_entries",
    "entry_named": "_entries",
    "other_sizes": "_entries",
    "verify_entry": "_entries",
    "Pruned": "_prune",
    "PruneLimits": "_prune",
    "Remnant": "_prune",
    "prune": "_prune",
}

if not TYPE_CHECKING:  # the names are known to a type checker, and no others are

    def __getattr__(name: str) -> Any:  # noqa: ANN401 - typed by the imports above
        try:
            home = _LATER[name]
        except KeyError:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message) from None
        value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})

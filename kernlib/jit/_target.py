"""CPU and CUDA architectures a kernel can be built for."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from kernlib.errors import ConfigError, UnsupportedTargetError

if TYPE_CHECKING:
    import torch

    from kernlib.config import Config

__all__ = [
    "CPU",
    "build_targets",
    "detected_targets",
    "gencode",
    "is_family",
    "requested_targets",
    "supports",
    "target_of",
]

CPU = "cpu"

_ARCH = re.compile(r"sm_(\d{2,3})([af]?)", re.ASCII)
_LISTED = re.compile(r"(\d{1,2})\.(\d)([af]?)", re.ASCII)
#: From compute capability 9.0 on, the architecture-specific instructions (wgmma, TMA) need the
#: suffix; CUDA programming guide, "Architecture-Specific Features".
_SUFFIX_FROM = 90
#: From which compute capability on a suffix exists: architecture-specific, family-specific.
_SUFFIXES = {"a": 90, "f": 100}
_VARIABLE = "KERNLIB_CUDA_ARCH_LIST"


def _number(target: str) -> int | None:
    match = _ARCH.fullmatch(target)
    return int(match[1]) if match else None


def is_family(text: str) -> bool:
    """Return whether a text names one CUDA architecture, or one and all later ones."""
    return _number(text.removesuffix("+")) is not None


def supports(family: str, target: str) -> bool:
    """Return whether a family of a spec (``cpu``, ``sm_90a``, ``sm_80+``) holds a target."""
    if not family.endswith("+"):
        return family == target
    least, wanted = _number(family[:-1]), _number(target)
    return least is not None and wanted is not None and wanted >= least


def gencode(target: str) -> str:
    """Return nvcc's ``-gencode`` value for one target: its machine code and nothing else.

    Raises UnsupportedTargetError for what is no CUDA architecture.
    """
    match = _ARCH.fullmatch(target)
    if match is None:
        raise UnsupportedTargetError("nvcc", target, ("sm_80", "sm_90a", "sm_100a", "..."))
    return f"arch=compute_{match[1]}{match[2]},code={target}"


def _of_capability(major: int, minor: int) -> str:
    number = major * 10 + minor
    return f"sm_{number}{'a' if number >= _SUFFIX_FROM else ''}"


@cache
def _of_cuda_device(index: int) -> str:
    import torch

    return _of_capability(*torch.cuda.get_device_capability(index))


def target_of(device: torch.device) -> str:
    """Return the target of a device: ``cpu``, or the architecture of that very GPU.

    Raises UnsupportedTargetError for other kinds of devices.
    """
    if device.type == CPU:
        return CPU
    if device.type != "cuda":
        raise UnsupportedTargetError("kernlib", str(device), (CPU, "cuda"))
    import torch

    return _of_cuda_device(torch.cuda.current_device() if device.index is None else device.index)


def _listed(text: str) -> str:
    match = _LISTED.fullmatch(text)
    if match is None:
        raise ConfigError(_VARIABLE, text, "architectures such as 8.0 9.0a 10.0f, or native")
    number, suffix = int(match[1] + match[2]), match[3]
    least = _SUFFIXES.get(suffix, 0)
    if number < least:
        expected = f"suffix {suffix!r} only from {least // 10}.{least % 10} on"
        raise ConfigError(_VARIABLE, text, expected)
    return f"sm_{number}{suffix}"


def requested_targets(config: Config) -> tuple[str, ...]:
    """Return the targets of ``KERNLIB_CUDA_ARCH_LIST``: ``8.0 9.0a`` is sm_80 and sm_90a.

    ``native`` stands for the targets of the devices of this machine. Raises ConfigError for an
    entry that is no architecture, or has a suffix that its family does not know.
    """
    targets: list[str] = []
    for text in config.cuda_arch_list:
        if text == "native":
            targets += detected_targets()
        else:
            targets.append(_listed(text))
    return tuple(dict.fromkeys(targets))


def detected_targets() -> tuple[str, ...]:
    """Return the targets of the CUDA devices of this machine, each once; none without devices."""
    import torch

    if not torch.cuda.is_available():
        return ()
    return tuple(dict.fromkeys(map(_of_cuda_device, range(torch.cuda.device_count()))))


def build_targets(config: Config) -> tuple[str, ...]:
    """Return what to build for where nothing is named: the CPU, all devices, all requests."""
    return tuple(dict.fromkeys((CPU, *detected_targets(), *requested_targets(config))))

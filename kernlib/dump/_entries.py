"""Writes and reads the safetensors files of a capsule."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kernlib.errors import CapsuleError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import torch

    from kernlib.dump._staging import DeviceBytes

__all__ = ["Blob", "Placed", "entry_buffers", "read_entries"]

_MAX_HEADER = 64 << 20
_PREFIX = 8


class Blob(NamedTuple):
    """Bytes to be stored under a name, with the safetensors dtype and shape they show."""

    entry: str
    dtype: str
    shape: tuple[int, ...]
    data: memoryview | DeviceBytes
    itemsize: int = 1


class Placed(NamedTuple):
    """Where the bytes of an entry lie in a written file."""

    offset: int
    nbytes: int


def entry_buffers(
    blobs: Sequence[Blob],
) -> tuple[list[bytes | memoryview | DeviceBytes], dict[str, Placed]]:
    """Return what a safetensors file of these entries consists of, and where each one lies.

    The library's own writer is not used: it takes bytes in some versions and addresses in
    others, copies, and cannot create a file for its owner only. Reading is left to it.
    """
    # Large items first keeps each entry aligned to its own dtype, which readers rely on.
    ordered = sorted(blobs, key=lambda blob: -blob.itemsize)
    header = {}
    spans = {}
    at = 0
    for blob in ordered:
        end = at + len(blob.data)
        header[blob.entry] = {"dtype": blob.dtype, "shape": blob.shape, "data_offsets": (at, end)}
        spans[blob.entry] = (at, end)
        at = end
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % _PREFIX)
    base = _PREFIX + len(text)
    placed = {name: Placed(base + start, end - start) for name, (start, end) in spans.items()}
    head = len(text).to_bytes(_PREFIX, "little") + text
    return [head, *(blob.data for blob in ordered)], placed


def read_entries(path: Path, sizes: Iterable[tuple[str, int]]) -> dict[str, torch.Tensor]:
    """Return entries of the given names and sizes as flat uint8 tensors on the file's pages."""
    from safetensors import SafetensorError, safe_open

    _check_header_size(path)
    found = {}
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            names = set(file.keys())
            for name, nbytes in sizes:
                if name not in names:
                    raise CapsuleError(path, f"has no entry {name!r}")
                data = _flat(file.get_tensor(name))
                if data.numel() != nbytes:
                    raise CapsuleError(
                        path, f"entry {name!r} has {data.numel()} bytes, call.json says {nbytes}"
                    )
                found[name] = data
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        raise CapsuleError(path, f"is not a whole safetensors file: {error}") from None
    return found


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    flat = tensor.reshape(-1)
    return flat if flat.dtype is torch.uint8 else flat.view(torch.uint8)


def _check_header_size(path: Path) -> None:
    """Refuse links and absurd header sizes before the library looks at the file."""
    if path.is_symlink() or not path.is_file():
        raise CapsuleError(path, "is not a regular file")
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(_PREFIX)
    header = int.from_bytes(prefix, "little")
    if len(prefix) < _PREFIX or header > size - _PREFIX:
        raise CapsuleError(path, f"is torn: {size} bytes do not hold its header of {header}")
    if header > _MAX_HEADER:
        raise CapsuleError(path, f"has a header of {header} bytes; at most {_MAX_HEADER} are read")

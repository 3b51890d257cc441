"""Moves what torch allocates while an api runs."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import torch

    #: Takes a fresh tensor, the operator's name, and whether the contents mean something; returns
    #: the storage to use, which may be the tensor's own.
    Move = Callable[[torch.Tensor, str, bool], torch.UntypedStorage]

__all__ = ["moved_allocations"]

#: The operators that allocate and write nothing.
_BARE = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
)
_LIFTED = "lift_fresh"  # what torch.tensor makes comes to light as an operator's argument
_DEVICES = ("cpu", "cuda")


def moved_allocations(move: Move) -> AbstractContextManager[object]:
    """Return a context in which every tensor that torch allocates lies where ``move`` says.

    It sees the operators that are called in it from this thread, by Python and by C++ alike; what
    an operator allocates inside itself it does not see. Tensors come back with the same contents,
    dtype, shape, stride and offset. Pinned and empty tensors, subclasses, and what is allocated
    while a CUDA graph is captured are left where they are.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Moved(TorchDispatchMode):  # type: ignore[no-untyped-call]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """Spare the child torch's compiler: importing it takes longer than all the rest."""
            return False

        def __torch_dispatch__(
            self,
            func: Any,  # noqa: ANN401 - an operator of torch
            _types: object,
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:  # noqa: ANN401 - what the operator returns
            given = kwargs or {}
            name = func.overloadpacket.__name__
            if name == "resize_":
                _make_room(*args[:2])
            result = func(*args, **given)
            if given.get("pin_memory"):
                return result
            known = () if name == _LIFTED else (args, tuple(given.values()))
            old = {_identity(tensor) for tensor in _tensors(known)}
            return _Moving(move, name, old).value(result)

    return Moved()  # type: ignore[no-untyped-call]


class _Moving:
    """One operator's result; tensors of it that share a storage share one afterwards."""

    def __init__(self, move: Move, operator: str, old: set[int]) -> None:
        self._move = move
        self._operator = operator
        self._old = old
        self._new: dict[int, torch.UntypedStorage] = {}

    def value(self, result: Any) -> Any:  # noqa: ANN401 - what an operator returns
        if isinstance(result, (list, tuple)):
            moved = [self.value(item) for item in result]
            return moved if isinstance(result, list) else tuple(moved)
        return self._tensor(result) if _is_plain(result) else result

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        import torch

        identity = _identity(tensor)
        if identity in self._old:
            return tensor
        if identity not in self._new:
            bare = self._operator in _BARE
            self._new[identity] = self._move(tensor, self._operator, not bare)
        memory = self._new[identity]
        if memory.data_ptr() == tensor.untyped_storage().data_ptr():
            return tensor
        moved = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        moved.set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())
        return moved


def _is_plain(value: object) -> bool:
    """Return whether a value is a tensor on memory that can be elsewhere as well."""
    import torch

    if type(value) is not torch.Tensor or value.layout is not torch.strided:
        return False
    if value.device.type not in _DEVICES or value.is_conj() or value.is_neg():
        return False
    if value.is_quantized or not value.untyped_storage().nbytes():
        return False
    if value.device.type == "cuda":
        return not torch.cuda.is_current_stream_capturing()
    # The question alone would make a context where there is none.
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return not (in_use and value.is_pinned())


def _make_room(tensor: torch.Tensor, shape: Sequence[int]) -> None:
    """Give a tensor that is to grow a storage that can."""
    memory = tensor.untyped_storage()
    wanted = (prod(shape) + tensor.storage_offset()) * tensor.itemsize
    if wanted > memory.nbytes() and not memory.resizable():
        larger = memory.clone()  # type: ignore[no-untyped-call]
        tensor.set_(larger, tensor.storage_offset(), tensor.shape, tensor.stride())


def _identity(tensor: torch.Tensor) -> int:
    identity: int = tensor.untyped_storage()._cdata  # noqa: SLF001 - nothing public tells it
    return identity


def _tensors(value: object) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided:
            yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)

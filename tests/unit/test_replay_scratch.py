"""Scratch is overwritten before a call, and nothing else is; tensors are named by their line."""

from types import SimpleNamespace

import pytest
import torch

from kernlib.dump import View
from kernlib.replay._origin import origin_of
from kernlib.replay._scratch import overwrite_scratch


def made(**tensors):
    """Return a call with these tensors as its arguments, and the tensors by view number."""
    storages = {}
    views = []
    for path, tensor in tensors.items():
        storage = storages.setdefault(tensor.untyped_storage().data_ptr(), len(storages))
        views.append(
            View(
                path=path.replace("__", "."), storage=storage,
                dtype=str(tensor.dtype)[6:], itemsize=tensor.itemsize, shape=tuple(tensor.shape),
                stride=tensor.stride(), offset=int(tensor.storage_offset()),
            )
        )  # fmt: skip
    return SimpleNamespace(views=views), dict(enumerate(tensors.values()))


@pytest.mark.parametrize(("how", "word"), [("zeroed", 0), ("poisoned", -1)])
def test_only_the_elements_of_named_tensors_are_overwritten(how, word):
    pool = torch.arange(24).reshape(4, 6)
    x = torch.arange(6)
    call, tensors = made(out=pool[:, 1:3], x=x, self__workspace=torch.arange(3))
    notes = overwrite_scratch(("out", "self.workspace", "absent"), call, tensors, how)
    assert (pool[:, 1:3] == word).all()
    assert (pool[:, [0, 3, 4, 5]] == torch.arange(24).reshape(4, 6)[:, [0, 3, 4, 5]]).all()
    assert torch.equal(x, torch.arange(6))
    assert (tensors[2] == word).all()
    assert notes == [f"{name} was {how} before the call" for name in ("out", "self.workspace")]


def test_poison_is_nan_in_every_float_type():
    dtypes = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2)
    call, tensors = made(**{f"t{at}": torch.zeros(3, dtype=d) for at, d in enumerate(dtypes)})
    overwrite_scratch(("t0", "t1", "t2", "t3", "t4"), call, tensors, "poisoned")
    assert all(tensor.float().isnan().all() for tensor in tensors.values())


def test_what_shares_memory_with_an_input_is_left():
    x = torch.arange(6.0)
    call, tensors = made(x=x, out=x[2:])
    notes = overwrite_scratch(("out",), call, tensors, "poisoned")
    assert notes == ["out is not poisoned: it shares memory with x"]
    assert torch.equal(x, torch.arange(6.0))
    call, tensors = made(x=x[:2], out=x[2:])
    overwrite_scratch(("out",), call, tensors, "poisoned")
    assert x[:2].tolist() == [0.0, 1.0]
    assert x[2:].isnan().all()


def test_odd_tensors_are_overwritten_too():
    call, tensors = made(
        scalar=torch.tensor(3.0), wide=torch.ones(1, 4).expand(3, 4), none=torch.empty(0, 3),
        turned=torch.ones(2, 3).t(), gone=torch.empty(3, device="meta"),
        grad=torch.ones(3, requires_grad=True),
    )  # fmt: skip
    overwrite_scratch(tuple(view.path for view in call.views), call, tensors, "poisoned")
    assert all(t.isnan().all() for t in tensors.values() if t.device.type == "cpu")


def test_recorded_contents_stay_unless_others_are_asked_for():
    call, tensors = made(out=torch.ones(3))
    assert overwrite_scratch(("out",), call, tensors, "recorded") == []
    assert tensors[0].tolist() == [1.0] * 3


def test_a_tensor_has_the_name_that_its_line_gives_it():
    here = "unit/test_replay_scratch.py"
    out = origin_of("empty")
    assert out.startswith(f"out (empty at {here}:")
    typed: str = origin_of("zeros")
    assert typed.startswith(f"typed (zeros at {here}:")
    assert [origin_of("empty")][0].startswith(f"a tensor (empty at {here}:")

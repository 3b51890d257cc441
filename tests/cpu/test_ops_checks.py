"""Declared preconditions and bindings agree, and refuse what is wrong before anything runs."""

import inspect

import pytest
import torch

import kernlib
import kernlib.ops
from kernlib._checks import LiveValues, evaluate
from kernlib._registry import registry
from kernlib.errors import ArgumentError

pytestmark = pytest.mark.requires("gxx")

ROWS = torch.zeros(3, 16)
POOL = torch.zeros(4, 2, 2, 4, 8)
INTS = {"dtype": torch.int32}


def apart(*shape, dtype=torch.float32):
    """Return a tensor whose first element lies between two multiples of its size."""
    count = torch.Size(shape).numel()
    size = torch.empty(0, dtype=dtype).element_size()
    raw = bytearray(count * size + 1)
    return torch.frombuffer(raw, dtype=dtype, offset=1, count=count).view(shape)


def ints(*values):
    return torch.tensor(values, **INTS)


def norm(**changes):
    return {"x": torch.zeros(3, 16), "weight": torch.zeros(16), "eps": 1e-6} | changes


def fused(**changes):
    return norm(residual=torch.zeros(3, 16)) | changes


def silu(**changes):
    return {"x": torch.zeros(3, 16)} | changes


def append(**changes):
    lists = {
        "kv_indices": [3, 0, 2], "kv_indptr": [0, 2, 3], "kv_last_page_len": [1, 4],
        "batch_indices": [0, 1, 1], "positions": [4, 0, 3],
    }  # fmt: skip
    lists = {name: torch.tensor(values, **INTS) for name, values in lists.items()}
    tensors = {name: torch.zeros(3, 2, 8) for name in ("k", "v")}
    return {**tensors, "kv_cache": torch.zeros(4, 2, 2, 4, 8), **lists, **changes}


def decode(**changes):
    return {"q": torch.zeros(2, 4, 8), "kv_cache": torch.zeros(4, 2, 2, 4, 8)} | changes


def plan(**changes):
    lists = {"kv_indptr": [0, 2, 3], "kv_indices": [3, 0, 2], "kv_last_page_len": [1, 4]}
    return {name: torch.tensor(values, **INTS) for name, values in lists.items()} | changes


#: What the bindings refuse: the arguments that are wrong, by operator.
REFUSED = {
    ("rms_norm", norm): [
        {"x": torch.zeros(3, 16).double()}, {"x": torch.zeros(()), "weight": torch.zeros(1)},
        {"x": torch.zeros(3, 32)[:, ::2]}, {"x": apart(3, 16)}, {"weight": torch.zeros(15)},
        {"weight": torch.zeros(1, 16)}, {"weight": torch.zeros(16).half()},
        {"weight": torch.zeros(32)[::2]}, {"weight": apart(16)}, {"out": torch.zeros(3, 15)},
        {"out": torch.zeros(3, 16).half()}, {"out": torch.zeros(16)},
        {"out": torch.zeros(1, 16).expand(3, 16)}, {"out": torch.zeros(16, 3).t()},
        {"x": torch.zeros(4, 3, 3, 2, 16)[:, :2, :2]}, {"weight": torch.zeros(16, device="meta")},
    ],
    ("fused_add_rms_norm_", fused): [
        {"residual": torch.zeros(2, 16)}, {"residual": torch.zeros(3, 16).half()},
        {"residual": torch.zeros(1, 16).expand(3, 16)}, {"x": torch.zeros(1, 16).expand(3, 16)},
        {"x": ROWS, "residual": ROWS}, {"weight": torch.zeros(8)}, {"residual": apart(3, 16)},
    ],
    ("silu_and_mul", silu): [
        {"x": torch.zeros(3, 15)}, {"x": torch.zeros(3, 16).int()}, {"x": torch.zeros(())},
        {"out": torch.zeros(3, 16)}, {"out": torch.zeros(2, 8)}, {"out": torch.zeros(3, 8).half()},
        {"out": torch.zeros(1, 8).expand(3, 8)}, {"out": torch.zeros(3, 16)[:, ::2]},
        {"x": apart(3, 16)}, {"x": torch.zeros(4, 3, 3, 2, 16)[:, :2, :2]},
    ],
    ("append_paged_kv", append): [
        {"k": torch.zeros(3, 1, 8)}, {"k": torch.zeros(3, 2, 4)}, {"v": torch.zeros(2, 2, 8)},
        {"v": torch.zeros(3, 2, 8).half()}, {"k": torch.zeros(3, 16)},
        {"k": torch.zeros(3, 8, 2).mT}, {"kv_cache": torch.zeros(4, 2, 2, 4, 8).double()},
        {"kv_cache": torch.zeros(4, 3, 2, 4, 8)}, {"kv_cache": torch.zeros(4, 2, 2, 0, 8)},
        {"kv_cache": torch.zeros(4, 2, 8, 8)}, {"kv_cache": torch.zeros(4, 2, 2, 8, 4).mT},
        {"kv_cache": torch.zeros(1, 2, 2, 4, 8).expand(4, 2, 2, 4, 8)},
        {"kv_indices": torch.zeros(3).long()}, {"kv_indptr": torch.zeros(4, **INTS)},
        {"positions": torch.zeros(2, **INTS)}, {"batch_indices": torch.zeros(4, **INTS)},
        {"positions": torch.zeros(1, 3, **INTS)}, {"positions": torch.zeros(6, **INTS)[::2]},
        {"kv_indices": apart(3, dtype=torch.int32)},
    ],
    ("PagedDecode.plan", plan): [
        {"kv_indptr": torch.zeros(3)}, {"kv_indptr": torch.zeros(2, **INTS)},
        {"kv_indices": torch.zeros(1, 3, **INTS)}, {"kv_indices": torch.zeros(6, **INTS)[::2]},
        {"kv_last_page_len": torch.zeros(2).long()},
        {"kv_last_page_len": torch.zeros(2, **INTS, device="meta")},
    ],
    ("PagedDecode.run", decode): [
        {"q": torch.zeros(3, 4, 8)}, {"q": torch.zeros(2, 2, 8)}, {"q": torch.zeros(2, 4, 16)},
        {"q": torch.zeros(2, 4, 8).double()}, {"q": torch.zeros(2, 8, 4).mT}, {"q": ROWS},
        {"kv_cache": torch.zeros(4, 2, 2, 4, 8).half()}, {"kv_cache": torch.zeros(4, 2, 2, 8, 8)},
        {"kv_cache": torch.zeros(4, 2, 1, 4, 8)}, {"kv_cache": torch.zeros(4, 1, 2, 4, 8)},
        {"out": torch.zeros(2, 4, 4)}, {"out": torch.zeros(2, 4, 8).half()},
        {"out": torch.zeros(1, 4, 8).expand(2, 4, 8)}, {"q": apart(2, 4, 8)},
    ],
}  # fmt: skip
#: What no binding looks at, and is found all the same.
FOUND_ALONE = {
    ("rms_norm", norm): [
        {"x": ROWS[:2], "out": ROWS[1:]}, {"weight": ROWS[0], "out": ROWS},
    ],
    ("fused_add_rms_norm_", fused): [{"x": ROWS[:2], "residual": ROWS[1:]}, {"weight": ROWS[0],
                                     "x": ROWS}],
    ("silu_and_mul", silu): [{"x": ROWS, "out": ROWS[:, 8:]}, {"x": ROWS, "out": ROWS[:, 4:12]}],
    ("append_paged_kv", append): [
        {"kv_indices": ints(3, 4, 2)}, {"positions": ints(8, 0, 3)},
        {"kv_indptr": ints(0, 4, 3)}, {"batch_indices": ints(0, 2, 1)},
    ],
    ("PagedDecode.run", decode): [
        {"out": POOL[2, 0].view(-1)[:64].view(2, 4, 8), "kv_cache": POOL},
        {"q": POOL.view(-1)[:64].view(2, 4, 8), "out": POOL.view(-1)[8:72].view(2, 4, 8)},
    ],
}  # fmt: skip
RIGHT = {
    ("rms_norm", norm): [
        {}, {"x": torch.zeros(2, 3, 32)[..., :16]}, {"x": torch.zeros(0, 16)},
        {"x": ROWS, "out": ROWS}, {"out": torch.zeros(3, 32)[:, :16]},
        {"x": torch.zeros(3, 32)[:, :16], "out": torch.zeros(3, 32)[:, 16:]},
        {"x": torch.zeros(3, 0), "weight": torch.zeros(0)}, {"x": torch.zeros(16)},
        {"x": torch.zeros(3, 16).half(), "weight": torch.zeros(16).half()},
    ],
    ("fused_add_rms_norm_", fused): [{}, {"residual": torch.zeros(3, 32)[:, 16:]}],
    ("silu_and_mul", silu): [
        {}, {"x": ROWS, "out": ROWS[:, :8]}, {"x": torch.zeros(2, 3, 32)[..., :16]},
        {"x": torch.zeros(0, 16)}, {"out": torch.zeros(3, 8)},
    ],
    ("append_paged_kv", append): [{}, {"kv_cache": torch.zeros(4, 2, 4, 2, 8).transpose(2, 3)}],
    ("PagedDecode.plan", plan): [{}],
    ("PagedDecode.run", decode): [{}, {"out": torch.zeros(2, 4, 16)[..., :8]}],
}  # fmt: skip


def cases(table):
    return [
        pytest.param(name, make, changes, id=f"{name}-{at}")
        for (name, make), rows in table.items()
        for at, changes in enumerate(rows)
    ]


def prepared(name):
    """Return the function to call, what is passed first, and the api."""
    api = registry.get("kernlib", name)
    if "." not in name:
        return getattr(kernlib, name), (), api
    decoding = kernlib.PagedDecode(4, 2, 8, 4)
    if name.endswith("run"):
        decoding.plan(**plan())
    return getattr(type(decoding), name.partition(".")[2]), (decoding,), api


def outcomes_of(api, first, arguments):
    values = LiveValues.of(
        inspect.signature(api.function), first, arguments, bound=api.kind == "method"
    )
    return evaluate(api.checks, values)


def findings(api, first, arguments):
    outcomes = outcomes_of(api, first, arguments)
    assert [row.reason for row in outcomes if "failed" in row.reason] == []
    return [found for row in outcomes for found in row.findings]


@pytest.mark.parametrize(("name", "make", "changes"), cases(REFUSED))
def test_what_a_binding_refuses_is_found_too(name, make, changes):
    function, first, api = prepared(name)
    arguments = make(**changes)
    assert findings(api, first, arguments)
    with pytest.raises((TypeError, ValueError, BufferError, RuntimeError)):
        function(*first, **arguments)


@pytest.mark.parametrize(("name", "make", "changes"), cases(RIGHT))
def test_what_a_binding_takes_breaks_nothing(name, make, changes):
    function, first, api = prepared(name)
    arguments = make(**changes)
    assert {row.state for row in outcomes_of(api, first, arguments)} == {"held"}
    function(*first, **arguments)


@pytest.mark.parametrize(("name", "make", "changes"), cases(FOUND_ALONE))
def test_what_no_binding_looks_at_is_found(name, make, changes):
    _, first, api = prepared(name)
    arguments = make(**changes)
    assert findings(api, first, arguments)


@pytest.mark.parametrize("numbers", [(4, 0, 8, 4), (3, 2, 8, 4), (4, 2, 12, 4), (4, 2, 264, 4),
                                     (4, 2, 8, 0)])  # fmt: skip
def test_numbers_that_a_decoder_refuses_are_found_too(numbers):
    names = ("num_qo_heads", "num_kv_heads", "head_dim", "page_size")
    api = registry.get("kernlib", "PagedDecode.__init__")
    assert findings(api, (object(),), dict(zip(names, numbers, strict=True)))
    with pytest.raises((ArgumentError, ValueError)):
        kernlib.PagedDecode(*numbers)


PROGRAM = """
import kernlib, torch
from kernlib.errors import InvalidInputError
int32 = torch.int32
decode = kernlib.PagedDecode(4, 2, 64, 16)
indices = torch.tensor([0, 1, 67108864, 3], dtype=int32)
decode.plan(torch.tensor([0, 2, 4], dtype=int32), indices, torch.tensor([16, 3], dtype=int32))
try:
    decode.run(torch.zeros(2, 4, 64), torch.zeros(4, 2, 2, 16, 64))
except InvalidInputError as error:
    print(error.argument, error)
print(kernlib.rms_norm(torch.ones(2, 8), torch.ones(8)).shape)
"""
SAID = "self.kv_indices PagedDecode.run: kv_indices[2] = 67108864, but the pool has 4 pages"


@pytest.mark.parametrize("level", ["off", "args", "dump"])
def test_what_would_end_the_process_is_raised_at_every_level(server, tmp_path, level):
    child = server.run(
        PROGRAM, KERNLIB_CHECK="1", KERNLIB_LOG_LEVEL=level, KERNLIB_DUMP_DIR=tmp_path / "dumps",
        KERNLIB_LOG_DEST=tmp_path / "log",
    )  # fmt: skip
    assert (child.status, child.stderr) == (0, "")
    assert child.stdout.splitlines() == [SAID, "torch.Size([2, 8])"]
    if level != "off":
        lines = (tmp_path / "log").read_text().splitlines()
        assert sum("PagedDecode.run" in line and "InvalidInputError" in line for line in lines) == 1
    assert (tmp_path / "dumps").exists() == (level == "dump")

"""Values that the native recorder and Python must tell alike."""

import enum
import re

import torch


class Colour(enum.IntEnum):
    RED = 3


class Opaque:
    pass


class Pages:
    def attend(self, x, *rest, **options):
        del rest, options
        return x


def attend(x, *rest, **options):
    del rest
    if "fail" in options:
        raise ValueError(options["fail"])
    return options.get("give", x)


X = torch.arange(48, dtype=torch.float32).view(2, 4, 6)
PLAIN_VALUES = {
    "strided": X[:, ::2],
    "transposed": X.transpose(0, 2),
    "expanded": X[:1].expand(3, 4, 6),
    "size one": X[:, :1].transpose(0, 1),
    "empty": torch.empty(0, 3),
    "scalar": torch.tensor(2.5),
    "offset": X.flatten()[1:],
    "grad": torch.ones(3, requires_grad=True),
    "parameter": torch.nn.Parameter(torch.ones(2)),
    "none": None,
    "true": True,
    "false": False,
    "int": -7,
    "least int": -(1 << 63),
    "float": 1e-6,
    "inf": float("inf"),
    "text": "paged",
    "long text": "x" * 120,
    "letters": "\N{GREEK SMALL LETTER KAPPA}" * 7,
    "dtype": torch.float8_e4m3fn,
    "list": [1, 2.5, None, X],
    "tuple": (X, (True, "a")),
    "no items": [],
    "size": X.shape,
    "enum": Colour.RED,
}
#: What the native recorder leaves to Python.
OTHER_VALUES = {
    "object": Opaque(),
    "class": Opaque,
    "dict": {"a": 1, "b": [X]},
    "many items": list(range(40)),
    "deep": [[[[[[1]]]]]],
    "big int": 1 << 70,
    "too long": "y" * 121,
    "sparse": torch.eye(3).to_sparse(),
    "meta": torch.empty(2, 3, device="meta"),
    "device": torch.device("cpu"),
    "bytes": b"abc",
    "set": {1},
}
#: Quantised dtypes carry more than their name; those of a few bits are bytes to DLPack.
FOREIGN = re.compile(r"torch\.(q|bits|u?int[1-7]$)")
DTYPES = sorted(
    {
        value
        for value in vars(torch).values()
        if isinstance(value, torch.dtype) and not FOREIGN.match(str(value))
    },
    key=str,
)


def native_functions():
    """Return the functions of the native recorder, built for the tests."""
    from kernlib import jit
    from kernlib._native_recorder import recorder_spec
    from kernlib.logging import NativeRecorder

    kernel = jit.load(jit.KernelChoice(spec=recorder_spec(), target="cpu"))
    return NativeRecorder(*(kernel.function(name) for name in NativeRecorder._fields))

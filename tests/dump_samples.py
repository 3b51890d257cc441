"""Calls and capsules for the tests of the format."""

import msgspec
import torch

from kernlib import dump

PROCESS = dump.Process(host="node-1.lan", pid=77, argv=("serve.py",), python="3.12", versions={})


def call(sequence=1, **parts):
    fields = {
        "sequence": sequence,
        "api": "Thing.run",
        "status": "started",
        "started_at": "2026-01-02T03:04:05+00:00",
        "package": "pkg",
        "module": "pkg.ops",
        "qualname": "Thing.run",
        "kind": "method",
        "arguments": dump.Arguments(args=[], kwargs={}),
        "thread": dump.Thread(name="main", ident=1),
        "caller": "serve.py:12 main",
    }
    return dump.Call(**(fields | parts))


def encoded(**values):
    """Return an encoder that met the values, and the call that passes them by name."""
    encoder = dump.Encoder()
    kwargs = {name: encoder.encode(value, name) for name, value in values.items()}
    storages = encoder.storages()
    arguments = dump.Arguments(args=[], kwargs=kwargs)
    return encoder, call(arguments=arguments, views=encoder.views, storages=storages)


def begin(session_dir, sequence=1, **values):
    """Publish a started capsule; return its writer, its encoder and its call."""
    encoder, record = encoded(**values)
    record = msgspec.structs.replace(record, sequence=sequence)
    writer = dump.CapsuleWriter(str(session_dir), sequence, record.api)
    writer.start(record, dump.input_blobs(encoder.memory, record))
    return writer, encoder, record


def ended(encoder, record, result, status="returned"):
    """Return the call with its result, and the outcome's call and blobs are left to the test."""
    node = encoder.encode(result, "result")
    return msgspec.structs.replace(
        record,
        status=status,
        finished_at="2026-01-02T03:04:06+00:00",
        result=node,
        views=encoder.views,
        storages=encoder.storages(),
    )


def finish(writer, encoder, record, result):
    """Complete a started capsule; return the call as it was written."""
    record = ended(encoder, record, result)
    left = dump.outcome(encoder.memory, record, writer.stored)
    record = msgspec.structs.replace(record, changed=left.changed)
    writer.finish(record, left.blobs)
    return record


def read_back(capsule):
    """Return the arguments by name, rebuilt from a capsule's files."""
    from pathlib import Path

    record = dump.read_call(Path(capsule))
    views = dump.rebuild(
        record.storages, dump.input_views(record), dump.read_inputs(Path(capsule), record)
    )
    return {name: dump.decode(node, views) for name, node in record.arguments.kwargs.items()}


def same_bits(one, other):
    """Return whether two tensors hold the same bytes, NaN payloads and padding bits included."""
    return one.dtype == other.dtype and one.shape == other.shape and raw(one) == raw(other)


def raw(tensor):
    """Return the bytes of a tensor's elements in row-major order, without any arithmetic."""
    whole = torch.empty(0, dtype=torch.uint8)
    whole.set_(tensor.untyped_storage())
    data = bytes(whole.tolist())
    size = tensor.element_size()
    places = [tensor.storage_offset()]
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        places = [place + at * stride for place in places for at in range(length)]
    return b"".join(data[place * size : (place + 1) * size] for place in places)

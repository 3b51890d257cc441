"""What a ring says of calls on a device, natively and by Python."""

import pytest
from native_samples import attend, native_functions

from kernlib import ring
from kernlib._registry import Api
from kernlib.config import Config, Level
from kernlib.logging import Recorder, RingSink, recorded

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.requires("cuda", "gxx")


@pytest.fixture(scope="module")
def native():
    return native_functions()


@pytest.fixture
def sinks(tmp_path, native):
    """Return a sink that records natively and one that does not."""
    made = []
    for name, functions in (("native", lambda: native), ("python", lambda: None)):
        config = Config(log_level=Level.ARGS, log_format="ring", log_dest=str(tmp_path / name))
        made.append(RingSink(config, dict, functions))
    return made


def record(sinks, *args, times=3):
    """Record the same calls in both ways; return the records of each."""
    for sink in sinks:
        public = recorded(attend, Api("attend", attend), Recorder([sink]))
        for _ in range(times):
            public(*args)
    return [ring.read_ring(sink.path).records for sink in sinks]


@pytest.mark.parametrize("own_stream", [False, True])
def test_device_address_and_stream_are_told(sinks, own_stream):
    stream = torch.cuda.Stream() if own_stream else torch.cuda.default_stream()
    x = torch.zeros(4, 6, device="cuda")[:, ::2]
    with torch.cuda.stream(stream):
        both = record(sinks, 1, x)
    for records in both:
        for call in (found for found in records if found.kind is ring.Kind.CALL):
            tensor = call.values["args[1]"]
            assert (tensor.device, tensor.pointer) == ("cuda:0", x.data_ptr())
            assert (tensor.shape, tensor.stride) == (tuple(x.shape), x.stride())
            assert call.stream == stream.cuda_stream
            assert not call.capturing


def test_a_capture_is_told_and_undisturbed(sinks):
    x = torch.ones(8, device="cuda")
    doubled = Api("double", lambda value: value * 2)
    publics = [recorded(doubled.function, doubled, Recorder([sink])) for sink in sinks]
    for public in publics:
        for _ in range(3):
            public(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = [public(x) for public in publics]
    x.fill_(3)
    graph.replay()
    assert all((result == 6).all() for result in results)
    for sink in sinks:
        calls = [r for r in ring.read_ring(sink.path).records if r.kind is ring.Kind.CALL]
        assert [call.capturing for call in calls] == [False, False, False, True]

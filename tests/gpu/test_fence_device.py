"""On a device too a fence finds at full speed what plain memory and memcheck's defaults hide.

With TEST_SAMPLES=DIR what the tools wrote is kept there: real samples for the parsers.
"""

import ctypes
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import capabilities
import pytest
import replay_runs as runs
import torch

from kernlib import jit
from kernlib.config import Mode, get_config
from kernlib.fence import Fence, Trampling, moved_allocations
from kernlib.replay._address import explain
from kernlib.replay._coredump import find_cuda_gdb
from kernlib.replay._locate import locate
from kernlib.replay._protocol import Compared, Placed, Request, Stage, Trampled
from kernlib.replay._run import run_child
from kernlib.replay._tools import Tool, tool_for

pytestmark = pytest.mark.requires("gxx", "nvcc", "cuda", "sm_80+")

ROWS, WIDTH = 64, 128
#: Each leaves a tensor by little; recorded, all of them return.
CALLS = f"""
ahead = floats(1 << 12)  # what lies before the others in the allocator's memory
faultlib.take_rows(floats({ROWS}, {WIDTH}), ints(4, 2, {ROWS}))
faultlib.look_back(floats(64), ints(1, *[0] * 63))
faultlib.put(floats(17), ints(3, 17), floats(2))
faultlib.take_rows(floats({ROWS}, {WIDTH}), ints(4, 2, 1))
"""
PAST, BEFORE, PADDING, SOUND = range(4)


@pytest.fixture(scope="module")
def capsules(tmp_path_factory):
    dumps = tmp_path_factory.mktemp("dumps")
    done = runs.record(CALLS, dumps, device="cuda")
    assert done.returncode == 0, done.stderr
    return sorted(dumps.glob("*/0*"))


@pytest.fixture
def child(capsules, tmp_path, monkeypatch, request):
    """Return a function that runs one of CALLS in a child, on such memory, behind such a tool."""
    monkeypatch.setenv("PYTHONPATH", runs.environment(runs.TESTS, {})["PYTHONPATH"])

    def run(place, memory, mode=Mode.LINEINFO, tool=None):
        config = get_config().replace(jit_mode=mode)
        folder = tmp_path / f"run-{len(list(tmp_path.glob('run-*')))}"
        folder.mkdir()
        asked = Request(str(capsules[place]), ["faultlib"], memory=memory)
        end = run_child(asked, config, tool or Tool(""), folder=folder, timeout=200)
        for place_of_files in (folder, tmp_path):
            keep_samples(place_of_files, request.node.name)
        placed = [event for event in end.events if isinstance(event, Placed)]
        return SimpleNamespace(
            end=end,
            fault=end.fault,
            stage=[event.name for event in end.events if isinstance(event, Stage)][-1],
            target=explain(end.fault, placed) if end.fault else None,
            source=locate(end.fault, jit.generated_dir(config)) if end.fault else None,
            trampled=[event for event in end.events if isinstance(event, Trampled)],
            compared=[event for event in end.events if isinstance(event, Compared)],
            placed={view.path: place for place in placed for view in place.views},
        )

    return run


def keep_samples(folder, name):
    if wanted := os.environ.get("TEST_SAMPLES"):
        for path in [*folder.glob("*.txt"), *folder.glob("*.xml"), *folder.glob("*.log")]:
            stem = "".join(c if c.isalnum() else "_" for c in name)
            shutil.copy(path, Path(wanted) / f"{stem}-{path.name}")


def defaults_of_memcheck(folder):
    """Return memcheck as it comes: no padding, and torch's allocator as it is."""
    given = tool_for(Mode.LINEINFO, on_cuda=True, config=get_config(), folder=folder)
    report = folder / "defaults.xml"
    command = (given.command[0], "--tool", "memcheck", "--xml", "--save", str(report))
    return Tool("compute-sanitizer", command, (), report)


def test_neither_a_plain_run_nor_memchecks_defaults_see_a_row_too_far(child, tmp_path):
    plain = child(PAST, "plain")
    assert (plain.fault, plain.stage) == (None, "done"), plain.end.log
    if not capabilities.missing("compute-sanitizer"):
        watched = child(PAST, "plain", tool=defaults_of_memcheck(tmp_path))
        assert (watched.fault, watched.stage) == (None, "done"), watched.end.log


@pytest.mark.parametrize(
    ("place", "memory", "marker"),
    [(PAST, "fence-end", "read-past-pool"), (BEFORE, "fence-start", "negative-index")],
    ids=["end", "start"],
)
def test_a_fence_makes_it_an_illegal_access_at_full_speed(child, place, memory, marker):
    ran = child(place, memory, Mode.RELEASE)
    assert ran.fault is not None, ran.end.log
    assert ran.fault.kind == "device error"
    assert "illegal memory access" in ran.fault.text
    again = child(place, memory, Mode.LINEINFO)
    assert again.fault.kind == "device error"
    if find_cuda_gdb() is None:
        assert "cuda-gdb was not found" in again.fault.note
        return
    assert again.fault.note == "", again.end.log
    assert again.fault.thread.startswith("block (")
    assert again.source.file == runs.ELEMENTS
    assert abs(again.source.line - runs.fault_line(marker)[0]) <= 1


@pytest.mark.parametrize(
    ("place", "memory", "text"),
    [
        (PAST, "fence-end", f"past the end of pool (row {ROWS} of {ROWS})"),
        (BEFORE, "fence-start", "4 bytes before the start of x (element -1 of 64)"),
    ],
    ids=["end", "start"],
)
def test_the_registers_in_a_core_dump_name_the_argument_or_none(child, place, memory, text):
    """Without a tool the address is at best in a register; it is told as a guess."""
    if find_cuda_gdb() is None:
        pytest.skip("cuda-gdb is neither on PATH nor in /usr/local/cuda")
    ran = child(place, memory, Mode.LINEINFO)
    assert ran.fault.candidates, (ran.fault, ran.end.log)
    assert ran.fault.thread.startswith("block (")
    if ran.target is not None:  # unless the instructions after it have changed the register
        assert text in ran.target.text
        assert not ran.target.certain


@pytest.mark.requires("compute-sanitizer")
@pytest.mark.parametrize(
    ("place", "memory", "marker", "text"),
    [
        (PAST, "fence-end", "read-past-pool", f"past the end of pool (row {ROWS} of {ROWS})"),
        (BEFORE, "fence-start", "negative-index",
         "4 bytes before the start of x (element -1 of 64)"),
    ],
    ids=["end", "start"],
)  # fmt: skip
def test_memcheck_on_fenced_memory_names_argument_thread_and_line(
    child, tmp_path, place, memory, marker, text
):
    tool = tool_for(Mode.LINEINFO, on_cuda=True, config=get_config(), folder=tmp_path)
    ran = child(place, memory, tool=tool)
    assert ran.fault is not None, ran.end.log
    assert ran.target is not None, ran.fault
    assert ran.target.text.endswith(text)
    assert ran.target.certain
    assert (ran.source.line, ran.source.text) == runs.fault_line(marker)
    assert (ran.fault.access, ran.fault.size) == ("read", 4)


def test_a_write_into_padding_is_told_though_nothing_faults(child):
    """68 bytes keep their alignment of 256, so 188 lie between them and the fence."""
    ran = child(PADDING, "fence-end")
    assert (ran.fault, ran.stage) == (None, "done"), ran.end.log
    assert ran.placed["out"].after == 188
    assert ran.trampled == [Trampled("out", "after", 0, 4)]


@pytest.mark.parametrize("memory", ["fence-end", "fence-start"])
def test_a_sound_call_gives_the_recorded_bits_and_its_output_is_fenced(child, memory):
    ran = child(SOUND, memory)
    assert (ran.fault, ran.stage, ran.trampled) == (None, "done", []), ran.end.log
    assert [row.identical for row in ran.compared] == [True]
    (output,) = [place for place in ran.placed.values() if place.storage == -1]
    assert output.views[0].path.startswith("out (new_empty at ")
    assert output.device.startswith("cuda")
    assert output.guard > 0


def is_mapped(address):
    """Return whether memory of this process lies there; free bytes are all processes'."""
    handle = ctypes.c_ulonglong()
    driver = ctypes.CDLL("libcuda.so.1")
    if driver.cuMemRetainAllocationHandle(ctypes.byref(handle), ctypes.c_void_p(address)):
        return False
    assert driver.cuMemRelease(handle) == 0
    return True


@pytest.mark.parametrize("side", ["end", "start"])
def test_memory_is_placed_watched_and_given_back(side):
    device, nbytes = torch.device("cuda:0"), (1 << 28) + 4
    torch.zeros(1, device=device)
    fence = Fence(side)
    storage = fence.allocate(nbytes, 512, device)
    address = storage.data_ptr()
    block = fence.at(address)
    assert is_mapped(address)
    assert is_mapped(address + nbytes - 1)
    assert not is_mapped(block._first - 1)
    assert not is_mapped(block._first + block.layout.mapped)
    assert storage.nbytes() == nbytes
    assert storage.data_ptr() % 256 == 0
    assert block.gap == (252 if side == "end" else 0)
    tensor = torch.empty(0, dtype=torch.float32, device=device).set_(storage)
    tensor.fill_(2.0)
    assert float(tensor.double().sum()) == 2.0 * (nbytes // 4)
    assert block.trampled() == []
    beyond, _ = block._pages.tensor(storage.data_ptr() + nbytes + 1, 2)
    beyond.fill_(0)
    assert block.trampled() == [Trampling("after", 1, 2)]
    del tensor, storage, beyond
    assert [found for _, found in fence.collect()] == [Trampling("after", 1, 2)]
    assert not is_mapped(address)
    assert not is_mapped(address + nbytes - 1)


def test_what_torch_allocates_on_the_device_is_moved():
    fence = Fence("end")

    def move(tensor, _operator, kept):
        memory = tensor.untyped_storage()
        moved = fence.allocate(memory.nbytes(), memory.data_ptr(), memory.device)
        return moved.copy_(memory) if kept else moved.fill_(0xFF)

    x = torch.arange(12.0, device="cuda").reshape(3, 4)
    with moved_allocations(move):
        bare, copied, called = torch.empty_like(x), x.t().contiguous(), x @ x.t()
    assert bare.isnan().all()
    assert torch.equal(copied, x.t())
    assert torch.equal(called.cpu(), x.cpu() @ x.cpu().t())
    for tensor in (bare, copied, called):
        assert fence.at(tensor.untyped_storage().data_ptr()) is not None

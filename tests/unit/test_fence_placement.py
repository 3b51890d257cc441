"""Fenced storages touch their fence, keep their alignment, and tell who wrote beside them."""

import ctypes
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernlib.errors import FenceError
from kernlib.fence import Fence, Trampling, lay_out, moved_allocations
from kernlib.fence._device import DevicePages
from kernlib.fence._driver import AccessDesc, AllocationProp, Driver

CPU = torch.device("cpu")
ALIGNED = 4096
PLACES = [
    (granule, alignment, nbytes, address)
    for granule, alignment in ((4096, 64), (1 << 21, 256))
    for nbytes in (1, 4, 60, 64, 120, 256, 4095, 4096, 4097, 1 << 21, (1 << 21) + 4)
    for address in (0, ALIGNED, ALIGNED + 64, ALIGNED + 16, ALIGNED + 4, ALIGNED + 1)
]


def kept(address, most):
    return min(address & -address, most) or most


@pytest.mark.parametrize("side", ["end", "start"])
@pytest.mark.parametrize(("granule", "alignment", "nbytes", "address"), PLACES)
def test_a_storage_is_as_aligned_as_it_was_and_as_near_as_that_allows(
    side, granule, alignment, nbytes, address
):
    layout = lay_out(nbytes, address, side, granule=granule, alignment=alignment)
    wanted = kept(address, alignment)
    assert kept(layout.before, alignment) == wanted
    assert layout.mapped % granule == layout.guard % granule == 0
    assert layout.before + nbytes + layout.after == layout.mapped
    assert min(layout.before, layout.after) >= 0
    gap = layout.after if side == "end" else layout.before
    assert gap < 2 * wanted
    assert layout.mapped < nbytes + granule + 2 * wanted
    assert layout.guard >= min(nbytes, 1 << 30)
    assert layout.reserved == layout.mapped + 2 * layout.guard


@pytest.mark.parametrize(
    ("nbytes", "address", "side", "gap"),
    [
        (128, ALIGNED, "end", 0),
        (120, ALIGNED, "end", 8),  # it would be misaligned at the fence
        (120, ALIGNED + 8, "end", 0),
        (112, ALIGNED + 8, "end", 8),  # the fence touched, it would be aligned better than it was
        (128, ALIGNED, "start", 0),
        (128, ALIGNED + 4, "start", 4),
    ],
)
def test_where_alignment_and_fence_disagree_alignment_wins(nbytes, address, side, gap):
    layout = lay_out(nbytes, address, side, granule=4096, alignment=64)
    assert (layout.after if side == "end" else layout.before) == gap


def write(address, *values):
    ctypes.memmove(address, bytes(values), len(values))


def test_padding_tells_who_wrote_to_it_and_where():
    fence = Fence("end")
    storage = fence.allocate(120, ALIGNED, CPU)
    start, block = storage.data_ptr(), fence.at(storage.data_ptr())
    storage.fill_(0)
    assert block.trampled() == []
    write(start + 121, 0, 0, 0)
    assert block.trampled() == [Trampling("after", 1, 3)]
    write(start - 6, 1)
    write(start - 3, 1)
    assert block.trampled() == [Trampling("before", 2, 4), Trampling("after", 1, 3)]
    fence.release()


@pytest.mark.parametrize("value", [0, 1, 0x7E, 0x80, 0xFE])
@pytest.mark.parametrize("offset", [0, 1])
def test_every_byte_of_padding_is_watched(value, offset):
    fence = Fence("end")
    storage = fence.allocate(121, ALIGNED, CPU)
    write(storage.data_ptr() + 121 + offset, value)
    assert fence.at(storage.data_ptr()).trampled() == [Trampling("after", offset, 1)]
    fence.release()


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2,
              torch.float8_e4m3fn],
)  # fmt: skip
def test_padding_reads_as_nan(dtype):
    fence = Fence("end")
    storage = fence.allocate(64, ALIGNED, CPU)
    block = (ctypes.c_ubyte * 256).from_address(storage.data_ptr() - 256)
    assert torch.frombuffer(block, dtype=dtype).float().isnan().all()
    del block
    fence.release()


TOUCH = """
import ctypes, torch
from kernlib.fence import Fence
fence = Fence({side!r})
storage = fence.allocate(128, 4096, torch.device("cpu"))
storage.fill_(7)
print(bytes((ctypes.c_char * 128).from_address(storage.data_ptr())) == b"\\x07" * 128, flush=True)
ctypes.string_at(storage.data_ptr() + {offset}, 1)
print("survived")
"""


@pytest.mark.parametrize(
    ("side", "offset", "survives"),
    [("end", 128, False), ("end", -1, True), ("start", -1, False), ("start", 128, True)],
)
def test_the_next_byte_faults_on_the_fenced_side(server, side, offset, survives):
    done = server.run(TOUCH.format(side=side, offset=offset))
    assert done.stdout.split() == (["True", "survived"] if survives else ["True"])
    assert done.status == (0 if survives else -signal.SIGSEGV)


def mapped_bytes():
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    bounds = [line.split()[0].split("-") for line in maps.splitlines()]
    return sum(int(end, 16) - int(start, 16) for start, end in bounds)


def test_memory_comes_back_once_nothing_holds_it():
    fence = Fence("end")
    before = mapped_bytes()
    storage = fence.allocate((1 << 26) - 64, ALIGNED, CPU)
    view = torch.empty(0, dtype=torch.float32).set_(storage, 0, (4,), (1,))
    assert mapped_bytes() - before >= 3 << 26
    del storage
    assert fence.collect() == []
    assert mapped_bytes() - before >= 3 << 26
    view.fill_(2.0)
    write(view.data_ptr() - 1, 9)
    address = view.data_ptr()
    del view
    assert fence.collect() == [(address, Trampling("before", 0, 1))]
    assert fence.blocks() == ()
    assert mapped_bytes() - before < 1 << 26


class Moves:
    """Moves every allocation to fenced memory and keeps account."""

    def __init__(self):
        self.fence = Fence("end")
        self.seen = []

    def __call__(self, tensor, operator, kept):
        self.seen.append((operator, kept))
        memory = tensor.untyped_storage()
        moved = self.fence.allocate(memory.nbytes(), memory.data_ptr(), memory.device)
        return moved.copy_(memory) if kept else moved.fill_(0xFF)

    def holds(self, *tensors):
        return all(self.fence.at(t.untyped_storage().data_ptr()) is not None for t in tensors)


def test_what_an_api_allocates_is_moved_with_its_contents():
    x = torch.arange(12.0).reshape(3, 4)
    moves = Moves()
    with moved_allocations(moves):
        bare = [
            torch.empty(2, 3), torch.empty_like(x), x.new_empty(3),
            torch.empty_strided((2, 2), (1, 2)), x.new_empty_strided((2,), (3,)),
        ]  # fmt: skip
        made = torch.zeros(2), x.t().contiguous(), torch.tensor([3, 1, 2]), x + 1
        parts = torch.arange(6).split(2)
        view, same = x[1:], x.contiguous()
    assert moves.holds(*bare, *made, *parts)
    assert not moves.holds(view)
    assert same.data_ptr() == x.data_ptr()
    assert all(t.isnan().all() for t in bare[:3])
    assert (bare[3].stride(), bare[4].stride()) == ((1, 2), (3,))
    assert torch.equal(made[1], x.t())
    assert made[2].tolist() == [3, 1, 2]
    assert len({part.untyped_storage().data_ptr() for part in parts}) == 1
    assert moves.seen[:2] == [("empty", False), ("empty_like", False)]
    assert ("zeros", True) in moves.seen


def test_moved_tensors_go_on_as_others_do():
    moves = Moves()
    with moved_allocations(moves):
        grown = torch.zeros(3).resize_(100)
        weight = torch.ones(3, requires_grad=True)
        (weight * 2).sum().backward()
        with torch.inference_mode():
            inferred = torch.zeros(2) + 1
        empty, meta = torch.empty(0), torch.empty(3, device="meta")
    assert (grown.shape, grown[:3].tolist()) == ((100,), [0.0] * 3)
    assert weight.grad.tolist() == [2.0] * 3
    assert inferred.is_inference()
    assert not moves.holds(empty)
    assert meta.device.type == "meta"


class Calls:
    """Stands for the driver's library: notes each call and fails at one of them."""

    def __init__(self, failing=""):
        self.names = []
        for name in (
            "cuInit", "cuGetErrorName", "cuMemGetAllocationGranularity", "cuMemAddressReserve",
            "cuMemAddressFree", "cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap",
            "cuMemSetAccess",
        ):  # fmt: skip
            setattr(self, name, self._call(name, failing))

    def _call(self, name, failing):
        def call(*arguments):
            self.names.append(name)
            if name == "cuMemGetAllocationGranularity":
                arguments[0]._obj.value = 1 << 21
            return 2 if name == failing else 0

        return call


def test_the_structures_have_the_sizes_of_the_header():
    assert ctypes.sizeof(AllocationProp) == 32
    assert AllocationProp.location.offset == 8
    assert AllocationProp.win32_handle_meta_data.offset == 16
    assert ctypes.sizeof(AccessDesc) == 12


@pytest.mark.parametrize(
    ("failing", "calls"),
    [
        ("cuMemAddressReserve", []),
        ("cuMemCreate", ["cuMemAddressFree"]),
        ("cuMemMap", ["cuMemRelease", "cuMemAddressFree"]),
        ("cuMemSetAccess", ["cuMemUnmap", "cuMemAddressFree"]),
    ],
)
def test_what_the_driver_refuses_leaves_nothing_behind(failing, calls):
    library = Calls(failing)
    pages = DevicePages(0, Driver(library))
    layout = lay_out(64, 0, "end", granule=pages.granule, alignment=pages.alignment)
    with pytest.raises(FenceError, match=failing):
        pages.map(layout)
    after = library.names[library.names.index(failing) + 1 :]
    assert [name for name in after if name != "cuGetErrorName"] == calls


def test_a_mapping_is_given_back_whole():
    library = Calls()
    pages = DevicePages(0, Driver(library))
    layout = lay_out(64, 0, "start", granule=pages.granule, alignment=pages.alignment)
    pages.unmap(pages.map(layout), layout)
    assert library.names[-2:] == ["cuMemUnmap", "cuMemAddressFree"]
    assert library.names.count("cuMemRelease") == library.names.count("cuMemCreate") == 1


def test_without_a_driver_it_says_so():
    with pytest.raises(FenceError, match=r"libcuda\.so\.1"):
        Driver(SimpleNamespace())

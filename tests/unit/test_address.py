"""A fault's address is told as an argument, an element and a distance; guesses are called so."""

import pytest

from kernlib.replay._address import explain
from kernlib.replay._protocol import Placed, PlacedView
from kernlib.replay._sanitizers import Fault

PAGE = 2 * 16 * 8 * 4
KV = PlacedView("kv_pool", "float32", 4, (64, 2, 16, 8), (256, 128, 8, 1), unit="page")
POOL = Placed(0, "cuda:0", 0x7F0000000000, 64 * PAGE, (KV,), before=512, guard=1 << 21)
Q = Placed(
    1, "cuda:0", 0x7F2000000000, 4 * 6 * 8 * 2,
    (PlacedView("q", "bfloat16", 2, (4, 6, 8), (48, 8, 1)),),
)  # fmt: skip
FENCED_LINE = Placed(
    2, "cpu", 0x5000_0000_1000, 16, (PlacedView("x", "float32", 4, (4,), (1,)),), guard=1 << 16
)
PLACED = [POOL, Q, FENCED_LINE]


def told(address, placed=PLACED, **facts):
    return explain(Fault("fault", "", "tool", address=address, **facts), placed)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (POOL.address + POOL.nbytes + 4, "4 bytes past the end of kv_pool (page 64 of 64)"),
        (POOL.address + POOL.nbytes, "the first byte past the end of kv_pool (page 64 of 64)"),
        (POOL.address + POOL.nbytes + PAGE, "1024 bytes past the end of kv_pool (page 65 of 64)"),
        (POOL.address - 1, "1 byte before the start of kv_pool (page -1 of 64)"),
        (FENCED_LINE.address - 12, "12 bytes before the start of x (element -3 of 4)"),
        (Q.address + (3 * 48 + 5 * 8) * 2, "inside q[3,5,0]"),
        (Q.address + (3 * 48 + 5 * 8) * 2 + 1, "inside q[3,5,0] (byte 1)"),
    ],
)  # fmt: skip
def test_the_argument_is_named(address, text):
    target = told(address)
    assert (target.text, target.certain) == (text, True)
    assert (
        target.argument
        == text.partition(" of " if " of " in text else "inside ")[2].split(
            "[" if "inside" in text else " ("
        )[0]
    )


def test_relation_and_distance_are_data_too():
    past, before, inside = (
        told(address) for address in (POOL.address + POOL.nbytes + 4, POOL.address - 8, Q.address)
    )
    assert [(t.relation, t.distance) for t in (past, before, inside)] == [
        ("past the end", 4), ("before the start", 8), ("inside", 0),
    ]  # fmt: skip


def test_near_a_storage_without_a_fence_is_a_guess():
    target = told(Q.address + Q.nbytes + 96)
    assert target.text == "96 bytes past the end of q (row 5 of 4); a guess: no fence stood there"
    assert (target.argument, target.certain) == ("q", False)


def test_beyond_the_fence_is_a_guess_and_far_away_is_nobodys():
    end = FENCED_LINE.address + FENCED_LINE.nbytes + FENCED_LINE.guard
    assert told(end - 1).certain
    beyond = told(end)
    assert beyond.text.endswith("; a guess: the fence of a storage ends before it")
    assert not beyond.certain
    far = told(end + (1 << 30))
    assert (far.argument, far.relation, far.certain) == ("", "elsewhere", True)
    assert far.text == f"0x{end + (1 << 30):x} is near no tensor of the call"
    assert "x (" not in far.text


def test_an_access_that_begins_inside_and_ends_outside():
    target = told(Q.address + Q.nbytes - 8, size=16, access="read")
    assert target.text == "8 of its 16 bytes lie past the end of q"
    assert (target.relation, target.distance) == ("past the end", 8)


def test_a_sanitizer_that_names_the_block_makes_it_certain_or_nobodys():
    past = Q.address + Q.nbytes
    same = told(past, region=(Q.address - 64, past))
    assert (same.text, same.certain) == ("the first byte past the end of q (row 4 of 4)", True)
    other = told(past + 64, region=(past + 32, past + 64))
    assert (other.argument, other.relation) == ("", "elsewhere")
    assert "a block of 32 bytes that is no tensor of the call" in other.text


def test_a_block_that_holds_several_storages_or_is_far_away_decides_nothing():
    past = Q.address + Q.nbytes
    beside = Placed(5, "cuda:0", past + 512, 64, (PlacedView("b", "int8", 1, (64,), (1,)),))
    shared = told(past + 8, [Q, beside], region=(Q.address, past + (1 << 20)))
    assert (shared.argument, shared.certain) == ("q", False)
    far = told(1 << 60, region=(Q.address, past))
    assert (far.argument, far.relation) == ("", "elsewhere")
    assert "is near no tensor" in far.text


def test_views_of_one_storage_are_told_apart():
    """Three slices of a fused row: a byte past the last is the storage's end, not the first's."""
    parts = tuple(
        PlacedView(name, "float32", 4, (2, 4), (12, 1), offset)
        for name, offset in (("q", 0), ("k", 4), ("v", 8))
    )
    fused = Placed(0, "cpu", 4096, 96, parts, guard=64)
    assert told(4096 + 12 * 4 + 5 * 4, [fused]).text == "inside k[1,1]"
    past = told(4096 + 96, [fused])
    assert past.argument == "v"
    assert past.text == "the first byte past the end of the storage of v"
    assert told(4095, [fused]).argument == "q"


def test_padding_between_rows_belongs_to_no_element():
    rows = Placed(0, "cpu", 4096, 64, (PlacedView("x", "float32", 4, (4, 3), (4, 1)),))
    assert (
        told(4096 + 12, [rows]).text == "byte 12 of the storage of x, in no element of the tensor"
    )


def test_a_transposed_view_names_no_row():
    turned = Placed(0, "cpu", 4096, 96, (PlacedView("x", "float32", 4, (4, 6), (1, 4)),), guard=64)
    assert told(4096 + 5 * 16 + 8, [turned]).text == "inside x[2,5]"
    assert told(4096 + 96, [turned]).text == "the first byte past the end of x"


def test_what_was_placed_later_stands_where_something_was_before():
    again = Placed(-1, "cuda:0", POOL.address, 64, (PlacedView("out", "float32", 4, (16,), (1,)),))
    assert told(POOL.address, [POOL, again]).argument == "out"


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_element_is_one_element(shape):
    view = PlacedView("scale", "float32", 4, shape, (1,) * len(shape))
    place = Placed(0, "cpu", 4096, 4, (view,), guard=64)
    index = f"inside scale[{','.join('0' * len(shape))}]" if shape else "inside scale"
    assert told(4098, [place]).text == f"{index} (byte 2)"
    assert told(4100, [place]).text.startswith("the first byte past the end of scale")


def test_without_an_address_or_storages_nothing_is_said():
    assert told(None) is None
    assert told(4096, []) is None
    assert told(4096, [Placed(0, "meta", 0, 64, ())]) is None


def test_of_several_candidates_the_one_in_a_fence_is_told():
    fault = Fault("device error", "", "GPU core dump", candidates=(
        (POOL.address + 8, "thread 0"), (Q.address + Q.nbytes, "thread 1"),
        (POOL.address + POOL.nbytes + 4, "thread 2"), (POOL.address - 4, "thread 3"),
    ))  # fmt: skip
    target = explain(fault, PLACED)
    assert target.text == (
        "4 bytes past the end of kv_pool (page 64 of 64); "
        "a guess: a register held that address after the fault"
    )
    assert (target.thread, target.certain) == ("thread 2", False)
    innocent = Fault("device error", "", "GPU core dump", candidates=((POOL.address, "thread 0"),))
    assert explain(innocent, PLACED) is None
    assert explain(fault, []) is None


def test_what_a_tool_keeps_free_around_a_storage_tells_whose_an_address_is():
    fault = Fault("out of bounds", "", "compute-sanitizer", address=Q.address - 4)
    assert explain(fault, [Q]).certain is False
    padded = explain(fault, [Q], padding=4096)
    assert (padded.text, padded.certain) == ("4 bytes before the start of q (row -1 of 4)", True)
    far = Fault("out of bounds", "", "compute-sanitizer", address=Q.address - 4097)
    assert explain(far, [Q], padding=4096).certain is False


def test_between_two_storages_in_a_tools_padding_none_is_blamed_for_certain():
    late = Placed(
        3, "cpu", Q.address + Q.nbytes + 4096, 512, (PlacedView("b", "float32", 4, (128,), (1,)),)
    )
    first_past = Fault("out of bounds", "", "compute-sanitizer", address=Q.address + Q.nbytes)
    target = explain(first_past, [Q, late], padding=4096)
    assert target.argument == "q"
    told = Fault(
        "out of bounds", "", "compute-sanitizer", address=Q.address + Q.nbytes,
        region=(Q.address, Q.address + Q.nbytes),
    )  # fmt: skip
    assert explain(told, [Q, late], padding=4096).argument == "q"
    between = Fault("out of bounds", "", "compute-sanitizer", address=Q.address + Q.nbytes + 2048)
    assert not explain(between, [Q, late], padding=4096).certain

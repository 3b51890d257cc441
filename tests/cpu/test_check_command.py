"""``kernlib-replay --check`` tells bad input from a kernel bug, and runs nothing."""

import json

import pytest
from replay_runs import FAR, capsule, command, record, replay

from kernlib.replay._diagnose import diagnose

pytestmark = pytest.mark.requires("gxx")

CODE = """
pool, pages = floats(6, 5), ints(0, 0, 0)
faultlib.put(floats(3), ints(0, 1), floats(2))
kernlib.silu_and_mul(floats(3, 16))
filled = faultlib.take_rows(pool, pages)
table = faultlib.Table(5)
table.plan(ints(4, {far}), 1.0)
try:
    table.run(floats(6, 4))
except ValueError:
    pass
faultlib.take_rows(filled, ints(4, 2, {far}))
"""


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    """Return what a process left that died of a bad index; its second last call raised."""
    folder = tmp_path_factory.mktemp("check") / "dumps"
    done = record(CODE.format(far=FAR), folder)
    assert done.returncode < 0, done.stderr
    return folder


def check(path, *arguments):
    done = command(path, "--check", "--json", "--import", "faultlib", *arguments)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["exit_status"] == done.returncode
    return done.returncode, report["calls"]


def test_a_broken_precondition_is_bad_input_for_certain(dumps):
    status, (found,) = check(dumps)
    assert (status, found["answer"], found["confidence"]) == (15, "bad input", "certain")
    assert found["text"] == "bad input (certain: 1 of 1 declared precondition is broken)"
    (row,) = found["findings"]
    assert (row["argument"], row["message"]) == (
        "pages", "pages[0] = 4, but the pool has 3 rows (2 such entries)",
    )  # fmt: skip
    assert row["origin"]["text"] == "pages was written by none of the recorded calls before it"


def test_the_text_fits_a_terminal_and_needs_no_compiler(dumps):
    done = command(dumps, "--check", "--import", "faultlib", KERNLIB_CXX="none-such", PATH="")
    assert done.returncode == 15
    lines = done.stdout.splitlines()
    assert lines[0].startswith("BAD INPUT: call ")
    assert lines[-1].startswith("  capsule     ")
    assert all(len(line) <= 80 for line in lines[:-1])


def test_attributes_of_the_receiver_are_judged_too(dumps):
    found = diagnose(capsule(dumps, "Table.run"), ("faultlib",))
    assert found.exit_status == 15
    assert found.findings[0].message == f"pages[1] = {FAR}, but the pool has 6 rows"


def test_a_call_that_returned_and_breaks_nothing_is_no_kernel_bug(dumps):
    found = diagnose(capsule(dumps, "put"), ("faultlib",))
    assert (found.exit_status, found.answer) == (0, "unknown")
    assert found.text == ("unknown (the call returned, and the one declared precondition holds)")


def test_an_api_that_declares_nothing_is_unknown(dumps):
    found = diagnose(capsule(dumps, "Table.plan"), ("faultlib",))
    assert (found.exit_status, found.text) == (
        0,
        "unknown (no preconditions are declared for Table.plan)",
    )


def test_without_the_package_nothing_is_judged(dumps):
    done = command(dumps, "--check", "--json")
    (found,) = json.loads(done.stdout)["calls"]
    assert (done.returncode, found["answer"]) == (3, "unknown")
    assert "--import faultlib" in found["text"]


def test_torch_is_loaded_only_where_values_are_read(dumps):
    done = command(dumps, "--check", "--api", "silu_and_mul", python=("-X", "importtime"))
    assert (done.returncode, "declared preconditions hold" in " ".join(done.stdout.split())) == (
        0,
        True,
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "kernlib.ops._activation" in loaded
    assert loaded.isdisjoint({"torch", "tvm_ffi", "safetensors"})


def test_a_call_that_was_refused_is_refused_again(tmp_path):
    code = f"faultlib.take_rows(floats(6, 5), ints(4, 2, {FAR}))"
    done = record(code, tmp_path, KERNLIB_CHECK="1")
    message = f"take_rows: pages[2] = {FAR}, but the pool has 6 rows"
    assert (done.returncode, message in done.stderr) == (1, True)
    replayed = replay(tmp_path)
    assert (replayed.status, replayed.verdict) == (15, "invalid_input")
    assert replayed.call["reason"] == message
    assert replayed.findings == [("pages", message.removeprefix("take_rows: "))]

"""The state of a call that goes on can change in its file, and nothing else does."""

import dump_samples as samples
import msgspec
import pytest

from kernlib import dump

MOST = 2**64 - 1
STATES = [
    dump.State(status="suspended"),
    dump.State(status="suspended", yielded=dump.Yielded(items=MOST, answered=True)),
    dump.State(status="started", yielded=dump.Yielded(items=0)),
    dump.State(status="started"),
]


@pytest.mark.parametrize("api", ["rows", '"status":"started"', "é", "\ud800"])
@pytest.mark.parametrize("yielded", [None, dump.Yielded(items=0)])
def test_states_follow_each_other_in_place(tmp_path, api, yielded):
    record = samples.call(api=api, qualname='"status":"started"', yielded=yielded)
    writer = dump.CapsuleWriter(str(tmp_path), 1, api)
    writer.start(record, (), stepped=True)
    (folder,) = tmp_path.iterdir()
    before = dump.read_call(folder)
    size = (folder / "call.json").stat().st_size
    for state in STATES:
        writer.update(state)
        found = dump.read_call(folder)
        assert (found.status, found.yielded) == (state.status, state.yielded)
        assert msgspec.structs.replace(found, status="started", yielded=yielded) == before
        assert (folder / "call.json").stat().st_size == size


def test_a_state_is_not_written_through_a_link(tmp_path):
    writer = dump.CapsuleWriter(str(tmp_path / "session"), 1, "rows")
    (tmp_path / "session").mkdir()
    writer.start(samples.call(), (), stepped=True)
    file = next((tmp_path / "session").iterdir()) / "call.json"
    other = file.rename(tmp_path / "other")
    text = other.read_bytes()
    file.symlink_to(other)
    with pytest.raises(OSError, match="symbolic links"):
        writer.update(STATES[0])
    assert other.read_bytes() == text

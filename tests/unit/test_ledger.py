"""What must go for a new call: the oldest of the hottest kind, never what is rare or pinned."""

import random

import pytest

from kernlib.dump import Budget
from kernlib.dump._budget import _MOST_AT_ONCE, Ledger
from kernlib.dump._kinds import Kinds


class Bench:
    """A ledger whose calls end at once, and what it still holds, by kind."""

    def __init__(self, **budget):
        self.ledger = Ledger(Budget(**budget))
        self.held = {}
        self.next = 1

    def run(self, kind, times=1, nbytes=1):
        """Record calls of a kind; return the numbers of those that were admitted."""
        admitted = []
        for _ in range(times):
            number, self.next = self.next, self.next + 1
            victims = self.ledger.admit(number, nbytes, kind)
            if victims is None:
                continue
            for victim in victims:
                del self.held[victim]
            self.ledger.finish(number, nbytes)
            self.held[number] = kind
            admitted.append(number)
        return admitted

    def of(self, kind):
        return [number for number, held in self.held.items() if held == kind]


def test_a_hot_kind_never_pushes_out_a_rare_one():
    bench = Bench(max_calls=10)
    rare = bench.run("rare", 2)
    hot = bench.run("hot", 500)
    assert bench.of("rare") == rare
    assert bench.of("hot") == hot[-8:]
    assert bench.ledger.evicted == 492


def test_kinds_that_are_equally_hot_share_the_room():
    bench = Bench(max_calls=12)
    for _ in range(100):
        for kind in "abc":
            bench.run(kind)
    assert {kind: len(bench.of(kind)) for kind in "abc"} == {"a": 4, "b": 4, "c": 4}
    assert min(bench.held) > 300 - 12 - 3, "of each the newest stayed"


def test_where_every_kind_is_rare_the_oldest_goes():
    bench = Bench(max_calls=5)
    for number in range(20):
        bench.run(number)
    assert list(bench.held) == [16, 17, 18, 19, 20]


def test_a_hot_kind_does_not_push_out_a_rare_one_where_there_is_room_for_two():
    bench = Bench(max_calls=2)
    bench.run("rare")
    bench.run("hot", 50)
    assert list(bench.held.values()) == ["rare", "hot"]
    bench = Bench(max_bytes=2)
    bench.run("rare")
    bench.run("hot", 50)
    assert list(bench.held.values()) == ["rare", "hot"]


def test_bytes_are_taken_from_the_kind_that_has_most_of_them():
    """Many small capsules would be lost for nothing if their number were to decide."""
    bench = Bench(max_bytes=1000)
    small = bench.run("small", 50, nbytes=1)
    large = bench.run("large", 20, nbytes=150)
    assert bench.of("small") == small
    assert bench.of("large") == large[-6:]


def test_a_single_large_capsule_outlives_many_of_another_kind():
    bench = Bench(max_bytes=1000)
    bench.run("rare", nbytes=500)
    bench.run("hot", 100, nbytes=100)
    assert len(bench.of("rare")) == 1
    assert len(bench.of("hot")) == 5


def test_a_kind_over_its_quota_loses_its_own_oldest():
    bench = Bench(max_per_kind=3)
    other = bench.run("other", 3)
    hot = bench.run("hot", 10)
    assert bench.of("hot") == hot[-3:]
    assert bench.of("other") == other
    assert (bench.ledger.over_quota, bench.ledger.evicted) == (7, 0)


def test_a_quota_of_none_or_nothing_is_no_limit():
    for quota in (None, 0):
        bench = Bench(max_per_kind=quota)
        bench.run("hot", 50)
        assert len(bench.held) == 50


def test_calls_of_no_kind_have_no_quota():
    bench = Bench(max_per_kind=2)
    bench.run(None, 5)
    assert len(bench.held) == 5


def test_where_the_first_calls_are_kept_the_quota_refuses():
    bench = Bench(max_per_kind=2, max_calls=5, keep="first")
    assert bench.run("a", 4) == [1, 2]
    assert bench.run("b", 1) == [5]
    assert bench.run("c", 9) == [6, 7]
    assert bench.run("d", 2) == []
    assert (bench.ledger.over_quota, bench.ledger.refused) == (2 + 7, 2)


def test_pinned_calls_count_against_no_quota_and_go_once_unpinned():
    bench = Bench(max_per_kind=2)
    for number in (1, 2, 3):
        bench.ledger.admit(number, 1, "plan")
        bench.ledger.pin(number)
        bench.ledger.finish(number, 1)
        bench.held[number] = "plan"
    bench.next = 4
    bench.run("plan", 2)
    assert bench.of("plan") == [1, 2, 3, 4, 5]
    bench.ledger.unpin(2)
    bench.run("plan")
    assert bench.of("plan") == [1, 3, 5, 6], "the unpinned one is old, so it went first"


def test_nothing_is_evicted_for_a_call_that_will_not_fit():
    bench = Bench(max_bytes=100, max_per_kind=2)
    bench.run("a", 2, nbytes=10)
    assert bench.run("a", nbytes=101) == []
    assert len(bench.held) == 2
    assert (bench.ledger.refused, bench.ledger.refused_bytes) == (1, 101)


def test_lowered_limits_are_reached_over_several_calls():
    bench = Bench(max_calls=100)
    bench.run("hot", 100)
    bench.ledger.max_calls = 10
    sizes = []
    while len(bench.held) > 10:
        bench.run("hot")
        sizes.append(len(bench.held))
    assert sizes[0] == 100 - _MOST_AT_ONCE + 1
    assert sizes == sorted(sizes, reverse=True)


def test_a_large_call_gets_its_room_at_once_however_many_small_ones_it_takes():
    bench = Bench(max_bytes=100)
    bench.run("small", 100)
    assert bench.run("large", nbytes=60)
    assert bench.ledger.nbytes <= 100


def test_a_call_that_is_completed_twice_counts_once():
    """A capsule whose outputs do not fit on the disk is completed again without them."""
    ledger = Ledger(Budget(max_calls=2))
    for number in (1, 2):
        assert ledger.admit(number, 10, "k") == []
        ledger.finish(number, 500)
        ledger.finish(number, 7)
    assert (ledger.calls, ledger.nbytes) == (2, 14)
    for number, victim in ((3, 1), (4, 2), (5, 3)):
        assert ledger.admit(number, 10, "k") == [victim]
        ledger.finish(number, 7)


def test_an_extension_evicts_as_an_admission_does():
    bench = Bench(max_bytes=100)
    bench.run("hot", 5, nbytes=15)
    assert bench.ledger.admit(90, 20, "rare") == []
    assert bench.ledger.extend(90, 20) == [1]
    assert bench.ledger.extend(90, 61) is None
    assert bench.ledger.nbytes == 100
    assert bench.ledger.refused_bytes == 61


@pytest.mark.parametrize("seed", range(20))
def test_kinds_agree_with_a_plain_count_of_them(seed):
    """The shelves by number of members against counting all members anew at every step."""
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    kinds, model = Kinds(), {}
    for number in range(1, 600):
        joining = chance.choice("aaaabbc") + chance.choice("xy")
        if model and chance.random() < 0.48:
            chosen = kinds.most_numerous(joining), kinds.heaviest(joining, number)
            victim = chance.choice([*model, *chosen])
            del model[victim]
            kinds.remove(victim)
        else:
            number = number if chance.random() < 0.8 else -number  # noqa: PLW2901 - an unpinned one
            model[number] = (joining, chance.randrange(50))
            kinds.add(joining, number, model[number][1])
        check(kinds, model, chance.choice("abcd") + "x")


def check(kinds, model, joining):
    groups = {}
    for number, (kind, nbytes) in sorted(model.items()):
        groups.setdefault(kind, []).append((number, nbytes))
    assert len(kinds) == len(model)
    assert kinds.nbytes == sum(nbytes for _, nbytes in model.values())
    assert all(kinds.count(kind) == len(members) for kind, members in groups.items())
    assert all(kinds.oldest(kind) == members[0][0] for kind, members in groups.items())
    if not model:
        return
    counts = {kind: len(members) + (kind == joining) for kind, members in groups.items()}
    chosen = kinds.most_numerous(joining)
    kind = model[chosen][0]
    assert (counts[kind], groups[kind][0][0]) == (max(counts.values()), chosen)
    sizes = {
        kind: sum(nbytes for _, nbytes in members) + 70 * (kind == joining)
        for kind, members in groups.items()
        if counts[kind] > 1
    }
    chosen = kinds.heaviest(joining, 70)
    kind = model[chosen][0]
    assert groups[kind][0][0] == chosen
    if sizes:
        assert sizes[kind] == max(sizes.values())

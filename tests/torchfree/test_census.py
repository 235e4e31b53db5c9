"""The three ways to list what was born agree with a test that holds every object itself."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leaklab.measure.census import Census, DisturbedError, FrozenCensus, RefreezingCensus, ScanCensus
from leaklab.measure.measurement import Cohorts
from leaklab.runtime.addresses import addresses_of, distinct, kinds_of, types_at
from leaklab.runtime.gc_control import gc_paused


class Node:
    """An object of which the test knows the run that made it."""

    def __init__(self, run: int) -> None:
        self.run = run
        self.other: Node | None = None


OPERATIONS = st.one_of(
    st.tuples(st.just("make"), st.integers(1, 4)),
    st.tuples(st.just("drop"), st.integers(0, 20)),
    st.tuples(st.just("replace"), st.integers(0, 20)),
    st.tuples(st.just("cycle"), st.integers(1, 3)),
    st.tuples(st.just("kept cycle"), st.integers(1, 2)),
)
PROGRAMS = st.lists(st.lists(OPERATIONS, max_size=5), min_size=1, max_size=6)


class World:
    """The nodes that a program made; whatever it drops is remembered by weak references only."""

    def __init__(self, n_before: int) -> None:
        self.held = [Node(0) for _ in range(n_before)]
        self.known = [weakref.ref(node) for node in self.held]

    def make(self, run: int) -> Node:
        node = Node(run)
        self.known.append(weakref.ref(node))
        return node

    def do(self, run: int, operation: str, number: int) -> None:
        if operation == "make":
            self.held.extend(self.make(run) for _ in range(number))
        elif operation == "drop" and self.held:
            del self.held[number % len(self.held)]
        elif operation == "replace" and self.held:
            place = number % len(self.held)
            del self.held[place]  # dies first: the new one is likely to get its address
            self.held.insert(place, self.make(run))
        elif operation in ("cycle", "kept cycle"):
            for _ in range(number):
                first, second = self.make(run), self.make(run)
                first.other, second.other = second, first
                if operation == "kept cycle":
                    self.held.append(first)

    def alive(self) -> list[Node]:
        return [node for node in (ref() for ref in self.known) if node is not None]

    def born_addresses(self) -> set[int]:
        return {id(node) for node in self.alive() if node.run > 0}


def nodes_in(census: Census) -> set[int]:
    return set(census.addresses[census.kinds == id(Node)].tolist())


def play(taker, program, *, n_before: int, freezes: bool) -> tuple[list[set[int]], list[set[int]]]:
    """Run *program*; return for each run the nodes that the census showed after it, and those born that lived."""
    world, shown, born = World(n_before), [], []
    gc.collect()
    with gc_paused():
        taker.begin()
        try:
            for run, operations in enumerate(program, start=1):
                taker.mark()
                for operation, number in operations:
                    world.do(run, operation, number)
                if freezes:
                    gc.freeze()
                census = taker.take()
                shown.append(nodes_in(census))
                born.append(world.born_addresses())
                assert (np.diff(census.addresses) > 0).all()
        finally:
            taker.end()
            gc.unfreeze()
    world.held.clear()
    gc.collect()
    assert world.alive() == []
    return shown, born


@settings(max_examples=12)
@given(PROGRAMS, st.integers(0, 5))
def test_the_frozen_census_shows_exactly_what_was_born_and_lives(program, n_before):
    shown, born = play(FrozenCensus(collects=True), program, n_before=n_before, freezes=False)
    assert shown == born


@settings(max_examples=12)
@given(PROGRAMS, st.integers(0, 5))
def test_without_collecting_the_frozen_census_shows_garbage_cycles_too(program, n_before):
    shown, born = play(FrozenCensus(collects=False), program, n_before=n_before, freezes=False)
    assert shown == born


@settings(max_examples=6)
@given(PROGRAMS, st.integers(0, 5))
def test_the_scanning_census_shows_exactly_what_was_born_and_lives(program, n_before):
    shown, born = play(ScanCensus(collects=True), program, n_before=n_before, freezes=False)
    assert shown == born


@settings(max_examples=6)
@given(PROGRAMS)
def test_the_refreezing_census_sees_through_a_cell_that_freezes(program):
    # Without collecting, an old node and a new one at its address cannot be told apart: no node is old here.
    shown, born = play(RefreezingCensus(), program, n_before=0, freezes=True)
    assert shown == born


@settings(max_examples=12)
@given(PROGRAMS, st.integers(0, 5))
def test_cohorts_know_the_run_that_made_each_survivor(program, n_before):
    taker, cohorts, world = FrozenCensus(collects=True), Cohorts(len(program)), World(n_before)
    gc.collect()
    with gc_paused():
        taker.begin()
        try:
            for run, operations in enumerate(program, start=1):
                taker.mark()
                for operation, number in operations:
                    world.do(run, operation, number)
                cohorts.add(taker.take())
        finally:
            taker.end()
        gc.collect()
        objects = gc.get_objects()
        cohorts.keep_alive_ones(addresses_of(objects), kinds_of(objects))
        objects.clear()
    by_run = Counter(node.run for node in world.alive())
    expected = tuple(by_run[run] for run in range(1, len(program) + 1))
    assert dict(cohorts.by_kind()).get(id(Node), (0,) * len(program)) == expected
    addresses, kinds, runs = cohorts.members()
    of_nodes = kinds == id(Node)
    found = dict(zip(addresses[of_nodes].tolist(), (runs[of_nodes] + 1).tolist(), strict=True))
    assert found == {id(node): node.run for node in world.alive() if node.run}


class Slotted:
    """Of one size without a dict: the next one gets the address of the last that died."""

    __slots__ = ("value",)


N_SLOTTED = 100


def replace_all(held: list[Slotted]) -> list[int]:
    """Drop every object, and make new ones until some address was given again; return those addresses."""
    before = {id(thing) for thing in held}
    held.clear()
    while not any(id(thing) in before for thing in held[-N_SLOTTED:]):
        assert len(held) < 1_000_000, "the allocator gave no address again: this test would show nothing"
        held.extend(Slotted() for _ in range(N_SLOTTED))
    return [id(thing) for thing in held if id(thing) in before]


@pytest.mark.parametrize("census_type", [FrozenCensus, ScanCensus])
def test_a_new_object_at_the_address_of_a_dead_one_is_known_to_be_young(census_type):
    taker, cohorts = census_type(collects=True), Cohorts(2)
    gc.collect()
    with gc_paused():
        held: list[Slotted] = []
        taker.begin()
        try:
            taker.mark()
            held.extend(Slotted() for _ in range(N_SLOTTED))
            cohorts.add(taker.take())
            taker.mark()
            reused = replace_all(held)
            census = taker.take()
            cohorts.add(census)
        finally:
            taker.end()
    assert census.young[np.isin(census.addresses, reused)].tolist() == [True] * len(reused)
    assert dict(cohorts.by_kind())[id(Slotted)] == (N_SLOTTED, len(held))
    objects = gc.get_objects()
    cohorts.keep_alive_ones(addresses_of(objects), kinds_of(objects))
    objects.clear()
    assert dict(cohorts.by_kind())[id(Slotted)] == (0, len(held))


def test_an_object_of_the_baseline_replaced_at_its_address_is_seen_as_born():
    taker = ScanCensus(collects=True)
    held = [Slotted() for _ in range(N_SLOTTED)]
    gc.collect()
    with gc_paused():
        taker.begin()
        taker.mark()
        reused = replace_all(held)
        census = taker.take()
        taker.end()
    assert set(reused) <= set(census.addresses.tolist())
    assert set(census.addresses[census.kinds == id(Slotted)].tolist()) == {id(thing) for thing in held}


@pytest.mark.parametrize(
    ("disturb", "how"),
    [
        pytest.param(gc.freeze, "frozen", id="freeze"),
        pytest.param(gc.unfreeze, "thawed", id="unfreeze"),
        pytest.param(lambda: (gc.unfreeze(), gc.freeze()), "frozen", id="unfreeze and freeze"),
    ],
)
def test_the_frozen_census_says_how_the_cell_disturbed_it(disturb, how):
    taker = FrozenCensus(collects=True)
    taker.begin()
    try:
        taker.mark()
        disturb()
        with pytest.raises(DisturbedError) as raised:
            taker.take()
        assert raised.value.how == how
    finally:
        taker.end()


def test_the_scanning_census_says_that_the_cell_froze():
    taker = ScanCensus(collects=True)
    taker.begin()
    taker.mark()
    gc.freeze()
    try:
        with pytest.raises(DisturbedError, match="frozen"):
            taker.take()
    finally:
        gc.unfreeze()


def test_the_scanning_census_leaves_frozen_objects_frozen():
    keep = [Node(0) for _ in range(3)]
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        taker = ScanCensus(collects=True)
        taker.begin()
        taker.mark()
        keep.append(Node(1))
        census = taker.take()
        taker.end()
        assert nodes_in(census) == {id(keep[3])}
        assert before - 100 < gc.get_freeze_count() <= before  # frozen ones may die, none is thawed
    finally:
        gc.unfreeze()


def test_an_empty_run_bears_nothing():
    taker, counts = FrozenCensus(collects=True), [-1] * 4
    gc.collect()
    with gc_paused():
        taker.begin()
        for run in range(4):
            taker.mark()
            counts[run] = len(taker.take().addresses)
        taker.end()
    assert counts == [0, 0, 0, 0]


EMPTY_RUNS = """
import gc, sys
from leaklab.measure import census
taker, counts = getattr(census, sys.argv[1])(collects=sys.argv[2] == "True"), [-1] * 4
gc.collect()
gc.disable()
taker.begin()
for run in range(4):
    taker.mark()
    counts[run] = len(taker.take().addresses)
taker.end()
print(counts)
"""


@pytest.mark.parametrize("census_type", ["FrozenCensus", "ScanCensus"])
@pytest.mark.parametrize("collects", ["True", "False"])
def test_not_even_the_first_census_of_a_process_lists_what_counting_itself_made(census_type, collects):
    done = subprocess.run(
        [sys.executable, "-c", EMPTY_RUNS, census_type, collects], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[0, 0, 0, 0]"


def test_the_newest_cohort_owns_an_address():
    cohorts = Cohorts(2)
    one = Census(np.array([16, 32]), np.array([7, 7]), np.array([False, False]))
    again = Census(np.array([16, 32]), np.array([7, 7]), np.array([True, False]))
    assert cohorts.add(one) == 2
    assert cohorts.add(again) == 1
    cohorts.keep_alive_ones(np.array([16, 32]), np.array([7, 7]))
    assert cohorts.sizes() == (1, 1)


def test_an_address_with_another_type_is_another_object():
    cohorts = Cohorts(2)
    cohorts.add(Census(np.array([16]), np.array([7]), np.array([False])))
    cohorts.add(Census(np.array([16]), np.array([9]), np.array([False])))
    cohorts.keep_alive_ones(np.array([16]), np.array([9]))
    assert dict(cohorts.by_kind()) == {9: (0, 1)}


def test_a_new_phase_makes_everything_alive_old_but_not_forgotten():
    cohorts = Cohorts(2)
    cohorts.add(Census(np.array([16]), np.array([7]), np.array([False])))
    cohorts.start_phase()
    assert cohorts.add(Census(np.array([48]), np.array([7]), np.array([False]))) == 1
    assert cohorts.sizes() == (1, 1)


def test_cohorts_without_a_run_are_empty():
    addresses, kinds, runs = Cohorts(3).members()
    assert (len(addresses), len(kinds), len(runs)) == (0, 0, 0)
    assert Cohorts(3).sizes() == ()
    assert list(Cohorts(3).by_kind()) == []


@given(st.lists(st.one_of(st.integers(), st.text(), st.none(), st.floats()), max_size=60))
def test_addresses_and_kinds_are_what_id_says(things):
    assert addresses_of(things).tolist() == [id(thing) for thing in things]
    assert kinds_of(things).tolist() == [id(type(thing)) for thing in things]
    assert types_at(kinds_of(things)) == {id(type(thing)): type(thing) for thing in things}


# Of addresses 2**20 apart many share a place in the table that is looked up first.
@given(st.lists(st.one_of(st.integers(1, 2**47 - 1), st.integers(1, 40).map(lambda n: n << 20)), max_size=200))
def test_distinct_addresses_are_what_a_set_says(addresses):
    assert distinct(np.array(addresses, np.int64)).tolist() == sorted(set(addresses))

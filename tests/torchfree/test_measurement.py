"""A whole measurement without torch: what the rules say of plain functions, run as a check runs them."""

from __future__ import annotations

import gc
import io

import pytest

from leaklab.check.judging import Judgement, judge
from leaklab.measure import gauges
from leaklab.measure.census import FrozenCensus, RefreezingCensus, ScanCensus
from leaklab.measure.checkpoint import heap_objects, take_checkpoint
from leaklab.measure.gauges import Meters
from leaklab.measure.measurement import Measurement, choose_baseline, thawed
from leaklab.model import Outcome
from leaklab.runtime.gc_control import gc_paused

PHASES = (8, 7, 9)


class Thing:
    """What the functions make."""


def check(
    function, *, taker=None, collects=True, frozen_too=False, phases=PHASES, is_short=True
) -> tuple[Measurement, Judgement]:
    taker = FrozenCensus(collects=collects) if taker is None else taker
    measurement = Measurement(sum(phases), taker, collects=collects, frozen_too=frozen_too, is_short=is_short)
    function()
    try:
        for n_runs in phases:
            measurement.open_phase()
            for _ in range(n_runs):
                measurement.start_run()
                function()
                measurement.finish_run(0.001)
            measurement.close_phase()
    finally:
        measurement.abandon()
    return measurement, judge(measurement)


def of_things(judgement: Judgement):
    counted = judgement.kinds.get(id(Thing))
    return ((), None) if counted is None else (counted.series, counted.growth)


def test_things_that_a_list_keeps_are_a_leak_of_one_per_run():
    kept = []
    measurement, judgement = check(lambda: kept.append(Thing()))
    counts, growth = of_things(judgement)
    assert counts == (1,) * 24
    assert (growth.outcome, growth.rate) == (Outcome.LEAK, 1.0)
    (grown,) = [container for container in judgement.containers if container.what == id(kept)]
    assert grown.series == (1, 9, 16, 25)
    assert judgement.at_runs == (0, 8, 15, 24)
    assert judgement.growing
    assert measurement.n_runs == 24


def test_numbers_that_a_list_keeps_leave_no_object_but_a_longer_list():
    kept = []
    _measurement, judgement = check(lambda: kept.append(0.5))
    (grown,) = [container for container in judgement.containers if container.what == id(kept)]
    assert (grown.growth.outcome, grown.growth.rate) == (Outcome.LEAK, 1.0)


def test_a_text_that_is_added_to_is_found_in_its_slot():
    held = ["a" * 2000, []]

    def add() -> None:
        held[0] += "x" * 500

    _measurement, judgement = check(add)
    (found,) = [grown for grown in judgement.slots if grown.what.owner == id(held)]
    assert found.series == (2500, 6500, 10000, 14500)
    assert (found.growth.outcome, found.growth.rate) == (Outcome.LEAK, 500.0)


def test_of_fast_runs_buffers_are_looked_at_from_the_first_phase_on_and_one_look_leaves_the_question_open(monkeypatch):
    levels = iter(range(10**6, 10**7, 600))
    monkeypatch.setattr(gauges, "native_heap_bytes", lambda: next(levels))
    held = ["a" * 2000, []]

    def add() -> None:
        held[0] += "x" * 500

    _measurement, early = check(add, phases=(13,), is_short=False)
    assert (early.slot_runs, early.has_unread_rise, early.growing) == ((13,), True, True)
    measurement, judgement = check(add, phases=(13, 31, 67, 40), is_short=False)
    assert judgement.slot_runs == (13, 44, 111, 151)
    assert not judgement.has_unread_rise
    (found,) = [grown for grown in judgement.slots if grown.what.owner == id(held)]
    assert (found.growth.outcome, found.growth.rate) == (Outcome.LEAK, 500.0)
    first, second, third, _fourth = (checkpoint.slots for checkpoint in measurement.checkpoints if checkpoint.slots)
    assert set(third.owners.tolist()) <= set(second.owners.tolist()) <= set(first.owners.tolist())


def test_a_run_that_keeps_nothing_bears_nothing_that_stays():
    measurement, judgement = check(lambda: [Thing() for _ in range(10)] and None)
    assert of_things(judgement) == ((), None)
    assert sum(measurement.cohorts.sizes()) == 0
    assert [measurement.meters.row(run)["born"] for run in (1, 12, 24)] == [0.0, 0.0, 0.0]


def test_a_value_that_is_replaced_by_every_run_is_no_leak():
    held = [None]

    def replace() -> None:
        held[0] = Thing()

    _measurement, judgement = check(replace)
    counts, growth = of_things(judgement)
    assert counts == (0,) * 23 + (1,)
    assert growth.outcome is Outcome.CLEAN


def make_cycle() -> None:
    thing = Thing()
    thing.itself = thing


def test_garbage_cycles_are_collected_where_the_collector_is_on():
    _measurement, judgement = check(make_cycle)
    assert of_things(judgement) == ((), None)


def test_garbage_cycles_are_a_leak_where_the_collector_is_off():
    with gc_paused():
        _measurement, judgement = check(make_cycle, collects=False)
    counts, growth = of_things(judgement)
    assert counts == (1,) * 24
    assert growth.outcome is Outcome.LEAK
    gc.collect()


def test_a_leak_is_found_beside_objects_that_the_user_froze():
    kept = []
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        _measurement, judgement = check(lambda: kept.append(Thing()), taker=ScanCensus(collects=True), frozen_too=True)
        assert before - 500 < gc.get_freeze_count() <= before
    finally:
        gc.unfreeze()
    assert of_things(judgement)[0] == (1,) * 24
    assert [c.series for c in judgement.containers if c.what == id(kept)] == [(1, 9, 16, 25)]


def test_a_leak_is_found_in_a_cell_that_freezes_in_every_run():
    kept = []

    def keep_and_freeze() -> None:
        kept.append(Thing())
        gc.freeze()

    try:
        _measurement, judgement = check(keep_and_freeze, taker=RefreezingCensus(), collects=False)
        assert gc.get_freeze_count() > 1000
    finally:
        gc.unfreeze()
    assert of_things(judgement)[0] == (1,) * 24


def test_an_abandoned_phase_leaves_nothing_frozen():
    measurement = Measurement(5, FrozenCensus(collects=True), collects=True, frozen_too=False)
    gc.unfreeze()
    measurement.open_phase()
    assert gc.get_freeze_count() > 1000
    measurement.abandon()
    assert gc.get_freeze_count() < 1000
    measurement.abandon()
    measurement.close_phase()
    assert len(measurement.checkpoints) == 1


def test_the_borrowed_heap_is_emptied_and_the_collector_rests_meanwhile():
    measurement = Measurement(5, FrozenCensus(collects=True), collects=True, frozen_too=False)
    mine = Thing()
    inside = []
    with pytest.raises(KeyError), measurement.heap() as objects:
        {}[inside.append((id(mine) in map(id, objects), gc.isenabled()))]
    assert inside == [(True, False)]
    assert objects == []
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("froze", "cell_freezes", "kind"),
    [
        (False, False, FrozenCensus),
        (True, False, ScanCensus),
        (False, True, RefreezingCensus),
        (True, True, RefreezingCensus),
    ],
)
def test_the_cheapest_census_that_sees_everything_is_chosen(froze, cell_freezes, kind):
    taker = choose_baseline(user_froze=froze, cell_freezes=cell_freezes, collects=True)
    assert type(taker) is kind
    measurement = Measurement(5, taker, collects=True, frozen_too=False)
    assert measurement.may_collect is (kind is not RefreezingCensus)


def test_what_a_cell_froze_is_thawed_for_a_moment_only():
    gc.freeze()
    try:
        with thawed(RefreezingCensus()):
            assert gc.get_freeze_count() < 1000
        assert gc.get_freeze_count() > 1000
        with thawed(ScanCensus(collects=True)):
            assert gc.get_freeze_count() > 1000
    finally:
        gc.unfreeze()


def test_the_heap_holds_frozen_objects_that_something_refers_to():
    frozen = Thing()
    frozen.inner = [Thing()]
    gc.freeze()
    try:
        link = [frozen]
        seen = {id(thing) for thing in heap_objects(frozen_too=True)}
        unfrozen = {id(thing) for thing in heap_objects(frozen_too=False)}
    finally:
        gc.unfreeze()
    assert {id(link), id(frozen), id(frozen.inner), id(frozen.inner[0])} <= seen
    assert id(link) in unfrozen
    assert id(frozen) not in unfrozen


def test_a_checkpoint_counts_types_and_knows_everybody():
    things: list[object] = [Thing(), Thing(), [1], io.StringIO()]
    checkpoint, addresses, kinds = take_checkpoint(7, things)
    assert checkpoint.after_run == 7
    assert checkpoint.count_of(id(Thing)) == 2
    assert checkpoint.count_of(id(list)) == 1
    assert checkpoint.count_of(id(set)) == 0
    assert checkpoint.graph_nodes == 0
    assert checkpoint.n_threads >= 1
    assert addresses.tolist() == [*map(id, things)]
    assert kinds.tolist() == [id(type(thing)) for thing in things]


def test_the_figures_of_a_run_are_given_by_name_and_none_where_unknown(monkeypatch):
    monkeypatch.setattr(gauges, "native_heap_bytes", lambda: None)
    monkeypatch.setattr(gauges, "accelerator_bytes", lambda: None)
    figures = Meters(2)
    figures.read(0, 0.0, 0)
    figures.read(1, 0.25, 3)
    assert figures.row(1)["blocks"] is None
    figures.read_blocks(1)
    row = figures.row(1)
    assert (row["seconds"], row["born"], row["heap"], row["accelerator"]) == (0.25, 3.0, None, None)
    assert row["blocks"] > 1000
    assert row["rss"] > 1_000_000
    assert figures.heap(1) is None
    assert figures.accelerator(1) is None
    assert figures.seconds(1) == (0.25,)


def test_what_leaklab_allocates_between_two_phases_is_left_out_of_the_level(monkeypatch):
    levels = iter([1000, 1500, 1400, 8900, 9100])  # 7,500 bytes between the phases are leaklab's own, 100 were freed
    monkeypatch.setattr(gauges, "native_heap_bytes", lambda: next(levels))
    figures = Meters(2)
    figures.read(0, 0.0, 0)
    figures.read(1, 0.0, 0)
    with figures.leaving_out():
        pass
    figures.read(2, 0.0, 0)
    assert figures.heap(2) == (1000.0, 1500.0, 1600.0)


def test_the_records_of_the_runs_are_left_out_of_the_level(monkeypatch):
    levels = iter([1000, 1800])
    monkeypatch.setattr(gauges, "native_heap_bytes", lambda: next(levels))
    figures = Meters(1)
    figures.read(0, 0.0, 0)
    figures.read(1, 0.0, 50, recorded_bytes=800)
    assert figures.heap(1) == (1000.0, 1000.0)


def test_the_native_heap_grows_by_what_is_allocated():
    before = gauges.native_heap_bytes()
    if before is None:
        pytest.skip("this system's C library does not tell")
    kept = bytearray(3_000_000)
    grown = gauges.native_heap_bytes() - before
    assert 3_000_000 <= grown < 3_100_000
    assert len(kept) == 3_000_000


def test_a_c_library_that_does_not_tell_makes_the_heap_unknown(monkeypatch):
    monkeypatch.delattr(gauges.psutil, "heap_info", raising=False)
    assert gauges.native_heap_bytes() is None

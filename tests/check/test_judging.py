"""What was counted, judged: the rules see every kind of growth."""

from __future__ import annotations

import gc

import pytest
import torch

import leaklab
from leaklab.check.judging import Judgement, judge
from leaklab.decide.growth import Growth
from leaklab.measure.measurement import Measurement, choose_baseline
from leaklab.model import Outcome

pytestmark = pytest.mark.untraced  # a tracer makes objects of its own


def measured(run, phases=(4, 4, 4)):
    """Measure *run* in phases of so many runs."""
    for _ in range(2):
        run()
    taker = choose_baseline(user_froze=False, cell_freezes=False, collects=True)
    measurement = Measurement(sum(phases), taker, collects=True, frozen_too=False)
    try:
        for n_runs in phases:
            measurement.open_phase()
            for _ in range(n_runs):
                measurement.start_run()
                run()
                measurement.finish_run(0.0)
            measurement.close_phase()
    finally:
        measurement.abandon()
    return measurement


@pytest.fixture(autouse=True, scope="module")
def numpy_is_warm():
    """Let numpy make its lazy imports: a check has made them before it measures."""
    measured(lambda: None)


def outcome_of(judgement, thing):
    (found,) = [c.growth.outcome for c in judgement.containers if c.what == id(thing)]
    return found


def test_nothing_grows_where_nothing_happens():
    judgement = judge(measured(lambda: None))
    assert not judgement.growing
    assert not judgement.says_anything
    assert not judgement.is_open


def test_survivors_are_judged_by_their_type():
    kept = []
    judgement = judge(measured(lambda: kept.append([1])))
    counted = judgement.kinds[id(list)]
    assert counted.series == (1,) * 12
    assert counted.growth.outcome is Outcome.LEAK
    assert judgement.growing
    assert judgement.says_anything


def test_a_container_of_plain_data_is_judged_by_its_length():
    kept = []
    judgement = judge(measured(lambda: kept.append(1.5)))
    assert judgement.kinds == {}
    assert outcome_of(judgement, kept) is Outcome.LEAK
    assert judgement.at_runs == (0, 4, 8, 12)
    (found,) = [c for c in judgement.containers if c.what == id(kept)]
    assert found.series == (2, 6, 10, 14)


def test_a_string_that_gets_longer_is_judged_by_its_slot():
    state = {"text": ["x" * 5000]}

    def run():
        state["text"][0] += "y" * 1000

    judgement = judge(measured(run))
    assert Outcome.LEAK in {grown.growth.outcome for grown in judgement.slots if grown.what.kind == id(str)}


def test_a_graph_that_gets_longer_is_judged_by_its_nodes():
    state = [torch.zeros(1, requires_grad=True)]

    def run():
        state[0] = state[0] + 1

    judgement = judge(measured(run))
    assert judgement.graph.outcome is Outcome.LEAK
    assert judgement.graph.rate >= 1


def test_objects_that_ever_more_makers_make_anew_are_judged_by_their_number():
    makers, made = [], []

    def run():
        makers.append(1.5)
        made[:] = [{"of": made} for _ in makers]

    judgement = judge(measured(run))
    assert judgement.remade[id(dict)].outcome is Outcome.LEAK
    assert judgement.remade[id(dict)].rate == pytest.approx(1.0)


def test_as_many_objects_made_anew_in_every_run_are_no_growth():
    made = []

    def run():
        made[:] = [{"of": made} for _ in range(10)]

    assert judge(measured(run)).remade == {}


def test_one_phase_leaves_the_question_open():
    kept = []
    judgement = judge(measured(lambda: kept.append(1.5), phases=(8,)))
    assert outcome_of(judgement, kept) is Outcome.INCONCLUSIVE
    assert judgement.is_open


def test_a_window_says_something_but_does_not_grow():
    kept = []

    def run():
        if len(kept) < 8:
            kept.append(1.5)

    judgement = judge(measured(run))
    assert outcome_of(judgement, kept) is Outcome.BOUNDED
    assert judgement.says_anything
    assert not judgement.growing


@pytest.mark.parametrize("name", ["native", "accelerator"])
def test_what_the_system_does_not_tell_is_not_judged(name, monkeypatch):
    measurement = measured(lambda: None)
    monkeypatch.setattr(measurement.meters, "heap", lambda n_runs: None)
    monkeypatch.setattr(measurement.meters, "accelerator", lambda n_runs: None)
    judgement = judge(measurement)
    assert getattr(judgement, name) is None
    assert len(judgement.all_growths()) >= 1


def test_small_changes_of_the_native_heap_are_noise_and_large_ones_are_not(monkeypatch):
    measurement = measured(lambda: None)
    small, large = ([base * step for base in range(13)] for step in (1024, 1024 * 1024))
    outcomes = []
    for levels in (small, large):
        monkeypatch.setattr(measurement.meters, "heap", lambda n_runs, levels=levels: levels)
        outcomes.append(judge(measurement).native.outcome)
    assert outcomes[0] is not Outcome.LEAK
    assert outcomes[1] is Outcome.LEAK


def test_measuring_leaves_nothing_frozen():
    before = gc.get_freeze_count()
    measured(lambda: None)
    assert gc.get_freeze_count() == before


KIND, NOTHING = 7, Growth(Outcome.CLEAN, 0.0, "nothing")


@pytest.mark.parametrize(
    ("in_all", "kept", "n_here", "stands"),
    [
        ((22, 22, 22, 22, 22), (0, 10, 10, 10, 10), 2, True),  # as many all along: what is new took a place
        ((22, 21, 22, 22, 22), (0, 9, 10, 10, 10), 2, True),
        ((20, 21, 21, 22, 22), (0, 1, 1, 2, 2), 2, True),
        ((20, 21, 21, 21, 22), (0, 1, 1, 1, 2), 2, False),  # more than halfway
        ((22, 22, 22, 22, 23), (0, 10, 10, 10, 11), 2, False),
        ((20, 24, 21, 23, 22), (0, 4, 1, 3, 2), 2, True),  # most of them are here, and there were more halfway
        (
            (20, 50, 21, 21, 22),
            (0, 30, 1, 1, 2),
            2,
            False,
        ),  # a peak before hides no late growth
        ((40, 64, 61, 63, 62), (0, 24, 21, 23, 22), 2, False),  # elsewhere they come and go: that hides two
    ],
)
def test_what_takes_places_stands_still(in_all, kept, n_here, stands):
    judgement = Judgement(
        at_runs=(0, 25, 75, 175, 350), kinds={}, remade={}, containers=(), slots=(), graph=NOTHING, native=None,
        accelerator=None, alive={KIND: kept}, in_all={KIND: in_all},
    )  # fmt: skip
    assert judgement.stands_still(KIND, n_here) is stands
    assert not judgement.stands_still(KIND + 1, n_here)


class Trainer:
    best = None


@pytest.mark.parametrize("at", [14, 17])
@pytest.mark.parametrize("where", ["attribute", "variable"])
def test_what_one_late_run_puts_into_a_place_for_one_is_no_open_question(at, where):
    namespace = {"trainer": Trainer(), "runs": [0]}
    put = {"attribute": "trainer.best = {'weights': [1.0] * 9}", "variable": "best = {'weights': [1.0] * 9}"}[where]
    exec(f"def cell():\n    global best\n    runs[0] += 1\n    if runs[0] == {at}:\n        {put}", namespace)  # noqa: S102
    report = leaklab.leakcheck(namespace["cell"], runs=20, namespace=namespace, sites=False, cure=False)
    assert report.verdict.outcome is Outcome.CLEAN


def test_what_a_late_run_puts_under_a_name_with_its_number_may_be_one_of_many():
    trainer, runs = Trainer(), [0]

    def cell():
        runs[0] += 1
        if runs[0] == 17:
            setattr(trainer, f"best_{runs[0]}", {"weights": [1.0] * 9})

    report = leaklab.leakcheck(cell, runs=20, namespace={"trainer": trainer}, sites=False, cure=False)
    assert report.verdict.outcome is Outcome.INCONCLUSIVE


def test_one_attribute_each_of_many_older_objects_may_go_on():
    """As the caches of a dataset's samples fill, in an order that nobody knows."""
    samples, runs, order = [Trainer() for _ in range(50)], [0], (9, 11, 13, 14, 15, 17, 19, 20, 21, 22, 23)

    def cell():
        runs[0] += 1
        if runs[0] in order:
            samples[runs[0]].best = {"weights": torch.ones(100)}

    report = leaklab.leakcheck(cell, runs=24, namespace={"samples": samples}, sites=False, cure=False)
    assert report.verdict.outcome in (Outcome.INCONCLUSIVE, Outcome.LEAK)

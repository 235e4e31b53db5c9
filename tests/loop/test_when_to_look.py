"""When a loop is looked at: soon in a slow one, at doubling steps, further where the answer is open."""

from __future__ import annotations

import gc

import pytest

from leaklab.explain.leaks.groups import LeakAddress
from leaklab.loop.levels import Schedule
from leaklab.loop.stretch import DoublingRuns
from leaklab.measure.level_history import HolderLengths


def first_check(seconds_per_step, *, first_step=None, total_steps=None):
    """Return the step at which the first check of such a loop is due."""
    schedule = Schedule(0.01, first_step)
    schedule.begin(total_steps)
    return next(step for step in range(1, 10_000) if schedule.is_due(step, step * seconds_per_step))


@pytest.mark.parametrize(("seconds", "step"), [(30.0, 10), (0.5, 10), (0.2, 25), (0.05, 100), (0.001, 200)])
def test_the_first_check_begins_after_ten_steps_and_five_seconds_or_two_hundred_steps(seconds, step):
    assert first_check(seconds) == step


def test_a_given_step_and_a_given_length_go_before_the_pace():
    assert first_check(30.0, first_step=70) == 70
    assert first_check(0.001, total_steps=300) == 30
    assert first_check(0.001, first_step=70, total_steps=10_000) == 70


@pytest.mark.parametrize(
    ("step", "seconds", "is_frozen", "steps"),
    [
        (10, 0.001, False, 1),
        (25, 0.001, False, 1),
        (200, 0.001, False, 8),
        (200, 0.001, True, 40),
        (56, 0.09, False, 1),
    ],
)
def test_a_run_of_the_first_check_is_so_long_that_a_few_make_twice_the_steps(step, seconds, is_frozen, steps):
    assert Schedule(0.01, None).steps_per_first_run(step, seconds, (), is_frozen=is_frozen) == steps


def test_a_short_loop_pays_for_one_check_and_a_long_one_a_share():
    schedule = Schedule(0.01, None)
    schedule.begin(None)
    assert schedule.may_check(1.0), "the first is always made"
    schedule.spent_seconds = 1.5
    schedule.end_check(400, 1.5, 800)
    assert not schedule.may_check(60.0)
    assert schedule.may_check(101.0)


def test_a_rise_that_no_check_has_explained_is_worth_another_one():
    schedule = Schedule(0.01, None)
    schedule.begin(None)
    schedule.spent_seconds = 1.5
    schedule.end_check(400, 1.5, None)
    assert not schedule.is_due(700, 60.0)
    schedule.hasten(700)
    assert schedule.is_due(700, 60.0)
    assert schedule.may_check(60.0)
    schedule.spent_seconds = 6.0
    assert not schedule.may_check(60.0), "but no third one"


def phases(runs, *, is_open, is_settled=False):
    """Return after how many runs the heap is looked at."""
    looks, n_runs = [], 0
    while n := runs.next_phase(len(looks), n_runs, is_open=is_open, is_settled=is_settled):
        n_runs += n
        looks.append(n_runs)
    return looks


def test_the_heap_is_looked_at_at_doubling_steps_and_further_while_the_answer_is_open():
    runs = DoublingRuns(HolderLengths(), 25)  # from step 25 on, in runs of one step
    assert phases(runs, is_open=False) == [25, 75, 175]
    assert phases(runs, is_open=True) == [25, 75, 175, 375, 775]
    assert phases(runs, is_open=False, is_settled=True) == [25, 75], "the rest is seen by lengths"
    assert runs.most_runs == 775
    assert [runs.tells_after(n) for n in (1, 2, 3)] == [True, True, False]
    assert [runs.is_early(n) for n in (25, 75)] == [True, False]


class Table:
    """A container that the collector lists."""

    def __init__(self):
        self.rows = [self]


def place_of(table, fingerprint):
    return LeakAddress(fingerprint, (id(table), id(table.rows)), "", grows=True)


def test_what_was_replaced_while_the_loop_went_on_has_not_gone_with_its_end():
    runs, tables = DoublingRuns(HolderLengths(), 25), {"replaced": Table(), "kept to the end": Table()}
    runs.note([place_of(table, name) for name, table in tables.items()], 0.0, {})
    for name in ("replaced", "kept to the end"):
        phases_done = 3 if name == "replaced" else 4
        del tables[name].rows[:]
        del tables[name]
        gc.collect()
        runs.has_ended = phases_done == 4
        runs.end_phase(phases_done)
    assert runs.gone({"replaced", "kept to the end"}) == {"kept to the end"}


def test_a_later_check_makes_as_many_runs_as_any():
    runs = DoublingRuns(HolderLengths(), 0)
    assert runs.next_phase(0, 0, is_open=True, is_settled=True) is None
    assert not runs.tells_after(2)


@pytest.mark.parametrize("seconds_per_step", [1e-4, 1e-3, 0.02, 0.05, 0.4])
def test_a_first_check_is_asked_for_soon_after_it_is_due(seconds_per_step):
    """What the first step took tells nothing: a loop of 110 steps of 0.05 s is over before its 200th."""
    schedule = Schedule(0.01, None)
    schedule.begin(None)
    step, n_asked = 1, 0
    while not schedule.is_due(step, step * seconds_per_step):
        step, n_asked = schedule.next_step(step, step * seconds_per_step), n_asked + 1
    due = min(200, max(10, 5.0 / seconds_per_step))
    assert due <= step <= due + 1
    assert n_asked < 20

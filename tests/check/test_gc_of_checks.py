"""Whatever becomes of a check, the collector is as it was before it."""

from __future__ import annotations

import gc
import itertools

import pytest

from leaklab.check.pipeline import check_steps
from leaklab.model import Settings
from leaklab.runtime.gc_control import GcState, user_has_frozen

pytestmark = pytest.mark.untraced

SETTINGS = Settings(max_runs=6, n_warmups=1)


class InterruptedCheckError(Exception):
    """Thrown into a check."""


def state():
    return GcState.now(), gc.get_freeze_count()


def advance(steps, n_runs: int) -> None:
    next(steps)
    for _ in range(n_runs):
        steps.send((0.001, ""))


@pytest.mark.parametrize("n_runs", [0, 1, 2, 4])
def test_a_check_that_is_closed_in_the_middle_leaves_the_collector_as_it_was(n_runs):
    before = state()
    steps = check_steps(SETTINGS, {})
    advance(steps, n_runs)
    steps.close()
    assert state() == before


@pytest.mark.parametrize(
    ("error", "n_runs"),
    [*itertools.product([InterruptedCheckError, SystemExit], [0, 2]), (KeyboardInterrupt, 0)],
)
def test_an_exception_thrown_into_a_check_comes_out_and_leaves_the_collector_as_it_was(error, n_runs):
    before = state()
    steps = check_steps(SETTINGS, {})
    advance(steps, n_runs)
    with pytest.raises(error):
        steps.throw(error())
    assert state() == before


def test_an_interrupt_of_our_own_work_is_handed_to_who_makes_the_runs_and_leaves_the_collector_as_it_was():
    before = state()
    steps = check_steps(SETTINGS, {})
    advance(steps, 2)
    handed = steps.throw(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt), handed.around:
        pytest.fail("the interrupt was swallowed")
    with pytest.raises(StopIteration) as stop:
        steps.send((0.0, "KeyboardInterrupt"))
    assert stop.value.value.failure.startswith("KeyboardInterrupt in ")
    assert state() == before


def finish(steps, work=lambda: None):
    try:
        next(steps)
        while True:
            work()
            steps.send((0.001, ""))
    except StopIteration as stop:
        return stop.value


def test_a_check_to_its_end_leaves_the_collector_as_it_was():
    before = state()
    check = finish(check_steps(SETTINGS, {}))
    assert check.verdict.n_runs == 6
    assert state() == before


def test_a_check_with_the_collector_off_leaves_it_off():
    gc.disable()
    try:
        before = state()
        check = finish(check_steps(SETTINGS, {}))
        assert state() == before
        assert any("the garbage collector is off" in note for note in check.notes)
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "change", [lambda: gc.set_threshold(9, 9, 9), gc.disable, lambda: gc.set_debug(gc.DEBUG_SAVEALL)]
)
def test_what_the_checked_code_changed_is_put_back(change):
    before = state()
    try:
        check = finish(check_steps(SETTINGS, {}), change)
    finally:
        gc.set_debug(0)
    gc.garbage.clear()
    assert state() == before
    assert any("put back" in note for note in check.notes)


def test_objects_that_the_user_froze_stay_frozen():
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        finish(check_steps(SETTINGS, {}))
        assert user_has_frozen()
        assert before - 500 < gc.get_freeze_count() <= before
    finally:
        gc.unfreeze()


def test_a_check_that_never_started_changes_nothing():
    before = state()
    check_steps(SETTINGS, {}).close()
    assert state() == before

"""Facts about the judgement of levels at checkpoints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaklab.decide.growth import judge_checkpoints
from leaklab.model import Outcome

LEAK, CLEAN, BOUNDED, OPEN = Outcome.LEAK, Outcome.CLEAN, Outcome.BOUNDED, Outcome.INCONCLUSIVE
AT = (0, 8, 15, 24)
LONG = (0, 8, 16, 24, 32, 40)

TABLE = {
    "one entry per run": ([10, 18, 25, 34], AT, LEAK, 1),
    "after a burst": ([10, 90, 97, 106], AT, LEAK, 1),
    "every third run": ([0, 2, 5, 8], AT, LEAK, 1 / 3),
    "getting faster": ([0, 8, 22, 49], AT, LEAK, 2),
    "began late": ([4, 4, 11, 20], AT, LEAK, 1),
    "nothing": ([10, 10, 10, 10], AT, CLEAN, 0),
    "only shrank": ([10, 9, 8, 8], AT, CLEAN, 0),
    "deque of 64 filled": ([0, 64, 64, 64], AT, BOUNDED, 0),
    "stopped before the last phase": ([0, 8, 15, 15], AT, BOUNDED, 0),
    "sawtooth": ([0, 8, 3, 12], AT, BOUNDED, 0),
    "sawtooth that fell at last": ([0, 8, 15, 2], AT, BOUNDED, 0),
    "filling slower and slower": ([0, 80, 120, 140], AT, OPEN, None),
    "grew in the last phase only": ([4, 4, 4, 13], AT, OPEN, None),
    "shrank at first, then grew": ([20, 10, 17, 26], AT, OPEN, None),
    "one phase": ([5, 13], (0, 8), OPEN, 1),
    "one flat phase": ([5, 5], (0, 8), CLEAN, 0),
    "two phases": ([5, 13, 20], (0, 8, 15), LEAK, 1),
    "two phases, slower": ([5, 13, 16], (0, 8, 15), OPEN, 3 / 7),
    "gave back at first, grows in three phases since": ([90, 10, 18, 26, 34, 42], LONG, LEAK, 1),
    "long burst, then settled": ([0, 800, 1200, 1280, 1360, 1440], LONG, LEAK, 10),
    "fades a little in every phase": ([0, 100, 180, 242, 290, 327], LONG, OPEN, None),
    "steps longer than a phase": ([0, 1, 1, 2, 2, 3], LONG, LEAK, 1 / 16),
    "paused, then faded out": ([0, 8, 8, 16, 17, 17], LONG, BOUNDED, 0),
    "steady, then flat": ([0, 8, 16, 24, 34, 34], LONG, BOUNDED, 0),
}


@pytest.mark.parametrize(("levels", "at_runs", "outcome", "rate"), TABLE.values(), ids=TABLE)
def test_each_row_of_the_table_is_told_apart(levels, at_runs, outcome, rate):
    growth = judge_checkpoints(levels, at_runs)
    assert growth.outcome is outcome, growth
    if rate is not None:
        assert growth.rate == pytest.approx(rate)


def test_growth_below_the_floor_is_noise_and_growth_at_the_floor_is_not():
    levels = [0, 800, 1500, 2400]
    assert judge_checkpoints(levels, AT, floor_per_run=100.0).outcome is LEAK
    assert judge_checkpoints(levels, AT, floor_per_run=100.1).outcome is CLEAN


def test_a_fall_below_the_floor_is_noise():
    assert judge_checkpoints([90, 88, 800, 1700], AT, floor_per_run=10.0).outcome is LEAK


def test_the_reason_shows_the_levels():
    assert judge_checkpoints([10, 18, 25, 34], AT).reason == (
        "grew by at least 1 per run in each phase: 10 -> 18 -> 25 -> 34 after 8, 15, 24 runs"
    )


@pytest.mark.parametrize(("levels", "at_runs"), [([1], (0,)), ([1, 2], (0,)), ([1, 2], (8, 8)), ([], ())])
def test_checkpoints_that_do_not_ascend_are_refused(levels, at_runs):
    with pytest.raises(ValueError, match="two or more ascending checkpoints"):
        judge_checkpoints(levels, at_runs)


LEVELS = st.lists(st.integers(0, 1000), min_size=4, max_size=4)


@given(LEVELS, st.integers(0, 10**9))
def test_what_was_there_before_changes_nothing(levels, before):
    moved, still = judge_checkpoints([level + before for level in levels], AT), judge_checkpoints(levels, AT)
    assert (moved.outcome, moved.rate) == (still.outcome, still.rate)


@given(LEVELS, st.integers(2, 1000))
def test_the_unit_changes_nothing_but_the_rate(levels, factor):
    scaled, once = judge_checkpoints([level * factor for level in levels], AT), judge_checkpoints(levels, AT)
    assert scaled.outcome is once.outcome
    assert scaled.rate == pytest.approx(once.rate * factor)


@given(LEVELS)
def test_a_level_that_ends_where_it_was_a_phase_ago_is_never_a_leak(levels):
    assert judge_checkpoints([*levels[:3], levels[2]], AT).outcome is not LEAK


@given(st.integers(1, 50), st.lists(st.integers(0, 500), min_size=2, max_size=2))
def test_a_steady_step_is_a_leak_after_any_first_phase(step, start):
    base, burst = start
    levels = [base, base + burst, base + burst + 7 * step, base + burst + 16 * step]
    growth = judge_checkpoints(levels, AT)
    assert growth.outcome is LEAK
    assert growth.rate == pytest.approx(step)

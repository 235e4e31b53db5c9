"""Whether series go on growing: levels at checkpoints, cells run by hand, times of runs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaklab.decide.growth import judge_checkpoints, judge_habit, judge_slowdown, kendall_tau, mann_kendall_z
from leaklab.model import Outcome
from leaklab.model.heap_diff import Totals


def runs(*tensors: int, each_bytes: int = 4000, n_objects: int = 3) -> list[Totals]:
    return [Totals(n_objects, n, n * each_bytes, 0) for n in tensors]


def test_three_executions_after_the_first_that_leave_a_tensor_are_a_habit():
    habit = judge_habit(runs(1, 1, 1, 1))
    assert habit is not None
    assert habit.n_runs == 3
    assert habit.words == "+1 tensor, +3.91 KiB in tensors"


def test_three_executions_are_too_few():
    assert judge_habit(runs(1, 1, 1)) is None


def test_the_first_execution_may_do_what_it_wants():
    assert judge_habit(runs(50, 0, 0, 0)) is None
    assert judge_habit(runs(0, 2, 2, 2)) is not None


@pytest.mark.parametrize("period", [3, 4, 5])
def test_what_grows_every_few_runs_has_not_stopped_between_two_of_its_times(period):
    """In few runs a pause that is shorter than one before it is no end."""
    for at_runs in ([0, 3, 5, 7, 8], [0, 3, 5, 8, 12], [0, 4, 8, 12, 14], [0, 3, 5, 8, 12, 16]):
        levels = [run // period for run in at_runs]
        grew = [run for run, a, b in zip(at_runs[1:], levels, levels[1:], strict=False) if b > a]
        if len(grew) > 1:
            assert judge_checkpoints(levels, at_runs).outcome is not Outcome.BOUNDED, (levels, at_runs)


def test_a_cell_that_gives_back_has_no_habit():
    assert judge_habit(runs(1, 1, -1, 1, 1)) is None


def test_a_cache_that_fills_has_no_habit():
    assert judge_habit(runs(9, 8, 4, 2, 1)) is None


def test_two_or_three_objects_of_the_notebook_itself_raise_no_alarm():
    assert judge_habit(runs(0, 0, 0, 0, 0, n_objects=3)) is None


def test_many_objects_of_each_execution_do():
    habit = judge_habit(runs(0, 0, 0, 0, n_objects=40))
    assert habit is not None
    assert habit.words == "+40 other objects"


def test_the_heap_counts_from_64_kib_on():
    assert judge_habit([Totals(0, 0, 0, 60_000)] * 5) is None
    habit = judge_habit([Totals(0, 0, 0, 1 << 20)] * 5)
    assert habit is not None
    assert habit.words == "+1.00 MiB of native heap"


def test_totals_subtract_and_an_unknown_heap_counts_as_unchanged():
    assert Totals(5, 3, 100, 900).since(Totals(2, 1, 40, 400)) == Totals(3, 2, 60, 500)
    assert Totals(5, 3, 100, -1).since(Totals(2, 1, 40, 400)).heap_bytes == 0


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
    "fades in each of three phases that double": ([715, 989, 1275, 1623], (0, 25, 75, 175), OPEN, None),
    "the square root of the runs": ([100, 141, 200, 283], (100, 200, 400, 800), OPEN, None),
    "a warm-up in the first of three that double": ([0, 200, 250, 345], (0, 25, 75, 175), LEAK, 0.95),
    "a poorer phase after a richer one": ([0, 20, 75, 155], (0, 25, 75, 175), LEAK, 0.8),
    "steps longer than a phase": ([0, 1, 1, 2, 2, 3], LONG, LEAK, 1 / 16),
    "paused, then faded out": ([0, 8, 8, 16, 17, 17], LONG, BOUNDED, 0),
    "one entry per run, few runs": ([0, 3, 5], (0, 3, 5), LEAK, 1),
    "two points of a saw, few runs": ([1, 2, 3], (0, 3, 6), OPEN, None),
    "a pause of two runs": ([1, 3, 3], (0, 3, 5), OPEN, None),
    "once, and as long ago as it took to come": ([4, 4, 5, 5], (0, 4, 8, 12), OPEN, 1 / 12),
    "once, at first": ([4, 5, 5, 5], (0, 4, 8, 12), BOUNDED, 0),
    "once, in many runs": ([4, 4, 5, 5], (0, 8, 16, 24), BOUNDED, 0),
    "every fifth run, and one run more": ([68, 69, 71, 72, 76, 82, 82], (0, 8, 15, 24, 40, 71, 72), LEAK, 14 / 71),
    "one in three, at random": ([0, 2, 4, 8, 11], (0, 8, 15, 24, 33), LEAK, 1 / 3),
    "now and then, and a pause as long as many": ([0, 3, 5, 5], (0, 12, 24, 32), OPEN, 5 / 32),
    "now and then, and a pause that is too long": ([0, 3, 5, 5], (0, 12, 24, 42), BOUNDED, 0),
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
        "grew by at least 1 per run in each phase: 10 -> 18 -> 25 -> 34 after 0, 8, 15, 24 runs"
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


def test_a_run_that_takes_longer_every_time_is_told_with_its_ratio():
    assert judge_slowdown([1.0 + 0.1 * run for run in range(12)]) == pytest.approx(1.95 / 1.15)


@pytest.mark.parametrize(
    "seconds",
    [
        [],
        [1.0 + run for run in range(11)],
        [1.0] * 24,
        [0.0] * 24,
        [2.0 - 0.05 * run for run in range(24)],
        [1.0 + 0.005 * run for run in range(24)],
        [1.0] * 12 + [2.0] * 12,
        [1.0] * 23 + [9.0],
        [1.0, 9.0] * 12,
        [5.0] + [1.0] * 23,
    ],
    ids=[
        "none",
        "11 runs",
        "constant",
        "zero",
        "faster",
        "12 % slower",
        "one jump",
        "last spike",
        "alternating",
        "cold",
    ],
)
def test_what_is_not_a_steady_rise_is_not_told(seconds):
    assert judge_slowdown(seconds) is None


def test_a_spike_hides_no_rise():
    seconds = [1.0 + 0.1 * run for run in range(24)]
    seconds[3] = 30.0
    assert judge_slowdown(seconds) == pytest.approx(2.95 / 1.45)


def test_random_noise_is_told_as_a_slowdown_less_than_once_in_200_series():
    told = 0
    for seed in range(2000):
        rng = random.Random(seed)
        told += judge_slowdown([rng.lognormvariate(-3, 0.15) for _ in range(rng.choice((12, 18, 24, 40)))]) is not None
    assert told < 10


def test_a_doubling_of_the_time_is_found_in_noise():
    found = 0
    for seed in range(200):
        rng = random.Random(seed)
        found += judge_slowdown([(1 + run / 24) * rng.lognormvariate(-3, 0.15) for run in range(24)]) is not None
    assert found > 170


def test_rank_statistics_have_the_values_of_their_definition():
    assert kendall_tau([1, 2, 3]) == 1.0
    assert kendall_tau([3, 1, 2]) == pytest.approx(-1 / 3)
    assert kendall_tau([5]) == 0.0
    assert mann_kendall_z([7, 7, 7, 7]) == 0.0
    assert mann_kendall_z([1, 2, 3, 4]) == pytest.approx((6 - 1) / (4 * 3 * 13 / 18) ** 0.5)
    assert mann_kendall_z([1, 1, 0, 0]) == pytest.approx((-4 + 1) / ((4 * 3 * 13 - 2 * 2 * 1 * 9) / 18) ** 0.5)
    assert mann_kendall_z([1, 1, 1], [2, 2, 2]) == 0.0


def under_load(rng, n_runs):
    """Wall time on a machine that is busy at times: three times as long then, for no more work."""
    is_busy, walls, cpus = rng.random() < 0.5, [], []
    for _ in range(n_runs):
        is_busy ^= rng.random() > 0.97
        cpus.append(rng.lognormvariate(-3, 0.1))
        walls.append(cpus[-1] * (3.0 if is_busy else 1.0) * rng.lognormvariate(0, 0.1))
    return walls, cpus


def test_a_machine_that_gets_busy_is_no_slowdown():
    told = by_wall = 0
    for seed in range(1000):
        walls, cpus = under_load(random.Random(seed), 69)
        told += judge_slowdown(walls, cpus) is not None
        by_wall += judge_slowdown(walls) is not None
    assert by_wall > 8  # what the processor's clock is asked for
    assert told <= 1


def test_work_that_grows_is_a_slowdown_by_both_clocks():
    work = [1.0 + 0.1 * run for run in range(12)]
    assert judge_slowdown([2 * one + 1 for one in work], work) == pytest.approx(4.9 / 3.3)
    assert judge_slowdown(work, [1.0] * 12) is None

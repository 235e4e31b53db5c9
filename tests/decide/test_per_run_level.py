"""Facts about the judgement of a noisy level read after every run."""

import math
import random
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaklab.decide.per_run_level import judge_per_run_bytes
from leaklab.model import Outcome

LEAK, CLEAN, BOUNDED, OPEN = Outcome.LEAK, Outcome.CLEAN, Outcome.BOUNDED, Outcome.INCONCLUSIVE
KIB = 1024
FLOOR = 4 * KIB
N_RUNS = 24
NOISE_SD = 2 * KIB


def grown(step, n_runs=N_RUNS):
    """Levels before run 1 and after each run, *step(run)* bytes more each time."""
    return [0, *accumulate(step(run) for run in range(1, n_runs + 1))]


def dict_bytes(entries):
    return next(size for limit, size in ((5, 232), (10, 352), (21, 640), (42, 1176)) if entries <= limit)


# sizes of a list with 0..24 entries: room for 4, 8, 16, 24, 32
LIST_BYTES = [0] + [32] * 4 + [64] * 4 + [128] * 8 + [192] * 8

ROWS = {
    "flat": (grown(lambda _: 0), {CLEAN}),
    "steady 4 KiB": (grown(lambda _: 4 * KIB), {LEAK}),
    "steady 256 KiB": (grown(lambda _: 256 * KIB), {LEAK}),
    "every third run": (grown(lambda run: 64 * KIB * (run % 3 == 0)), {LEAK}),
    "every third run, at the floor": (grown(lambda run: 12 * KIB * (run % 3 == 0)), {LEAK}),
    "leak after a warm-up": (grown(lambda run: 16 * KIB + 1024 * KIB * (run <= 3)), {LEAK}),
    "list over-allocation": ([size * KIB for size in LIST_BYTES], {LEAK, OPEN}),
    "dict doubling": ([dict_bytes(run) * KIB for run in range(N_RUNS + 1)], {LEAK}),
    "leak under a saw": ([(run % 5) * 32 * KIB + run * 16 * KIB for run in range(N_RUNS + 1)], {LEAK, OPEN}),
    "leak under a high saw": ([(run % 5) * 200 * KIB + run * 16 * KIB for run in range(N_RUNS + 1)], {LEAK, OPEN}),
    "warm-up of 5 runs": (grown(lambda run: 256 * KIB * (run <= 5)), {BOUNDED, OPEN}),
    "cache filling": ([4096 * KIB * (1 - math.exp(-run / 5)) for run in range(N_RUNS + 1)], {BOUNDED, OPEN}),
    "window of 8": (grown(lambda run: 64 * KIB * (run <= 8)), {BOUNDED, OPEN}),
    "stops at 60 %": (grown(lambda run: 64 * KIB * (run <= 14)), {BOUNDED, OPEN}),
    "small leak stops at 60 %": (grown(lambda run: 8 * KIB * (run <= 14)), {BOUNDED, OPEN}),
    "gc saw, 7 runs": ([(run % 7) * 64 * KIB for run in range(N_RUNS + 1)], {BOUNDED}),
    "gc saw, 10 runs": ([(run % 10) * 64 * KIB for run in range(N_RUNS + 1)], {BOUNDED}),
    "gc saw, 15 runs": ([(run % 15) * 64 * KIB for run in range(N_RUNS + 1)], {BOUNDED}),
    "last reading jumps": ([0] * N_RUNS + [2048 * KIB], {CLEAN}),
    "one late spike": ([2048 * KIB * (run == 19) for run in range(N_RUNS + 1)], {CLEAN}),
    "one late step": ([2048 * KIB * (run >= 19) for run in range(N_RUNS + 1)], {BOUNDED, OPEN}),
    "one step at half": ([2048 * KIB * (run >= 12) for run in range(N_RUNS + 1)], {BOUNDED, OPEN}),
    "far below the floor": (grown(lambda run: 300), {CLEAN}),
}


@pytest.mark.parametrize(("levels", "allowed"), ROWS.values(), ids=ROWS)
def test_each_row_is_told_apart_without_noise(levels, allowed):
    growth = judge_per_run_bytes(levels, floor_per_run=FLOOR)
    assert growth.outcome in allowed, growth


@pytest.mark.parametrize(("levels", "allowed"), ROWS.values(), ids=ROWS)
def test_each_row_is_told_apart_in_98_of_100_draws_of_noise(levels, allowed):
    n_right = 0
    for seed in range(100):
        rng = random.Random(seed)
        noisy = [level + rng.gauss(0, NOISE_SD) for level in levels]
        n_right += judge_per_run_bytes(noisy, floor_per_run=FLOOR).outcome in allowed
    assert n_right >= 98


@pytest.mark.parametrize("name", ["list over-allocation", "dict doubling", "leak under a saw"])
def test_exact_staircases_are_leaks(name):
    assert judge_per_run_bytes(ROWS[name][0], floor_per_run=FLOOR).outcome is LEAK


@pytest.mark.parametrize(
    ("name", "rate"),
    [("steady 4 KiB", 4), ("steady 256 KiB", 256), ("every third run", 64 / 3), ("leak after a warm-up", 16)],
)
def test_the_rate_is_that_of_the_settled_part(name, rate):
    assert judge_per_run_bytes(ROWS[name][0], floor_per_run=FLOOR).rate == pytest.approx(rate * KIB)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("stops at 60 %", "grew by 896 KiB in the first 14 of 24 runs, then stopped"),
        ("warm-up of 5 runs", "grew by 1.25 MiB in the first 5 of 24 runs, then stopped"),
        ("one late step", "1 step of 2.00 MiB in all, flat for the last 3 runs"),
        ("gc saw, 10 runs", "rises and falls back, by up to 576 KiB"),
    ],
)
def test_what_is_bounded_is_told_with_its_figures(name, reason):
    growth = judge_per_run_bytes(ROWS[name][0], floor_per_run=FLOOR)
    assert (growth.outcome, growth.rate, growth.reason) == (BOUNDED, 0.0, reason)


def test_steps_that_get_rarer_stay_open_while_the_second_half_is_flat():
    levels = [dict_bytes(run) * KIB for run in range(41)]
    growth = judge_per_run_bytes(levels, floor_per_run=FLOOR)
    assert growth.outcome is OPEN
    assert growth.reason.endswith("no steady growth")


def test_constant_noise_is_never_a_leak():
    for seed in range(1000):
        rng = random.Random(seed)
        levels = [rng.gauss(10**8, NOISE_SD) for _ in range(rng.randint(6, 41))]
        assert judge_per_run_bytes(levels, floor_per_run=FLOOR).outcome is not LEAK
        assert judge_per_run_bytes(levels, floor_per_run=64).outcome is not LEAK


def test_random_leaks_are_found_and_never_denied():
    outcomes = []
    for seed in range(300):
        rng = random.Random(seed)
        levels = grown(lambda _, rng=rng: rng.uniform(0, 128 * KIB))
        outcomes.append(
            judge_per_run_bytes([level + rng.gauss(0, NOISE_SD) for level in levels], floor_per_run=FLOOR).outcome
        )
    assert outcomes.count(LEAK) > 0.93 * len(outcomes)
    assert not {CLEAN, BOUNDED} & set(outcomes)


def test_few_runs_are_a_leak_only_if_each_of_them_grew():
    assert judge_per_run_bytes(grown(lambda _: 64 * KIB, 6), floor_per_run=FLOOR).outcome is OPEN
    assert judge_per_run_bytes(grown(lambda _: 64 * KIB, 8), floor_per_run=FLOOR).outcome is LEAK
    assert judge_per_run_bytes(grown(lambda run: 64 * KIB * (run % 3 != 0), 10), floor_per_run=FLOOR).outcome is OPEN
    assert judge_per_run_bytes([], floor_per_run=FLOOR).reason == "0 runs are too few for a noisy level"


@pytest.mark.parametrize(("step", "rises"), [(FLOOR, True), (FLOOR / 2, True), (FLOOR / 4, False)])
def test_a_level_that_rose_in_each_of_few_runs_is_a_doubt_from_half_the_floor_on(step, rises):
    growth = judge_per_run_bytes([step * run for run in range(7)], floor_per_run=FLOOR)
    assert growth.outcome is Outcome.INCONCLUSIVE
    assert (growth.rate == step) is rises
    assert ("in each run but the first" in growth.reason) is rises


def test_growth_that_begins_late_stays_open():
    growth = judge_per_run_bytes(grown(lambda run: 64 * KIB * (run > 12)), floor_per_run=FLOOR)
    assert growth.outcome is OPEN
    assert growth.reason == "flat for 11 runs, growing since"


def test_a_saw_whose_falls_end_higher_stays_open():
    growth = judge_per_run_bytes(ROWS["leak under a high saw"][0], floor_per_run=FLOOR)
    assert growth.outcome is OPEN
    assert growth.reason.endswith("each low is higher than the one before")


def test_bursts_stay_open():
    growth = judge_per_run_bytes(grown(lambda run: 64 * KIB * (run < 6 or run > 17)), floor_per_run=FLOOR)
    assert growth.outcome is OPEN
    assert "bursts" in growth.reason


LEVELS = st.lists(st.integers(0, 10**6), min_size=8, max_size=41)


@given(LEVELS, st.integers(0, 10**9))
def test_what_was_allocated_before_changes_nothing(levels, before):
    assert judge_per_run_bytes([level + before for level in levels], floor_per_run=FLOOR) == judge_per_run_bytes(
        levels, floor_per_run=FLOOR
    )


@given(LEVELS)
def test_a_level_that_returns_to_its_start_is_never_a_leak(levels):
    assert judge_per_run_bytes([*levels, levels[0], levels[0], levels[0]], floor_per_run=FLOOR).outcome is not LEAK


@given(LEVELS)
def test_a_level_that_stays_where_it_was_at_half_is_never_a_leak(levels):
    stays = [*levels, *[max(levels)] * (len(levels) + 3)]
    assert judge_per_run_bytes(stays, floor_per_run=FLOOR).outcome is not LEAK


@given(st.integers(FLOOR, 10**9), st.lists(st.integers(0, 10**9), max_size=3), st.integers(16, 60))
def test_steady_growth_is_a_leak_after_any_warm_up(step, warm_up, n_runs):
    levels = list(accumulate([0, *warm_up, *[step] * n_runs]))
    growth = judge_per_run_bytes(levels, floor_per_run=FLOOR)
    assert growth.outcome is LEAK
    assert growth.rate == pytest.approx(step)


@pytest.mark.parametrize(("step", "expected"), [(2 * KIB + 100, 2 * KIB + 100), (16 * KIB, 16 * KIB), (100, 0.0)])
def test_what_was_taken_once_is_no_part_of_the_rate(step, expected):
    levels = grown(lambda run: step + 900 * KIB * (run == 46), 65)
    growth = judge_per_run_bytes(levels, floor_per_run=FLOOR)
    assert growth.rate == pytest.approx(expected, rel=0.05)
    if expected:
        assert growth.outcome is LEAK
        assert growth.reason.endswith("KiB once, in run 46")
    else:
        assert growth.outcome is not LEAK

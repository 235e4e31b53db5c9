"""Facts about the judgement of time per run, and about the rank statistics behind it."""

import random

import pytest

from leaklab.decide.growth import judge_slowdown, kendall_tau, mann_kendall_z


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

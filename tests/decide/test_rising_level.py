"""The rule on the level of a long loop: a leak rises at one pace to the end, all else rests or is given back."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaklab.decide.rising_level import find_periods, find_rise, next_look, run_length

STEPS = np.arange(0, 50_000, 200.0)
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def simulation():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("level_rule")


def test_a_steady_rise_is_told_with_its_pace_and_its_beginning():
    rise = find_rise(STEPS, 1_000 + 3 * STEPS)
    assert rise.since_step == 0
    assert rise.per_step == pytest.approx(3)
    assert rise.risen > 100_000


def test_a_rise_that_begins_late_begins_where_the_level_left_its_rest():
    rise = find_rise(STEPS, 500 + np.maximum(STEPS - 30_000, 0))
    assert rise.since_step == pytest.approx(30_000, abs=1_000)
    assert rise.per_step == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize(
    "levels",
    [
        np.full_like(STEPS, 7),
        np.minimum(STEPS, 30_000),  # a buffer that is full
        np.sqrt(STEPS),
        np.log1p(STEPS),
        STEPS % 9_000,
        np.where(STEPS < 42_000, 0, 5_000),  # one step, late
        -STEPS,
        np.where(STEPS % 2_000 == 0, STEPS, 0.0),  # spikes that grow and are given back
        2 * STEPS * (STEPS < 25_000) + STEPS * (STEPS >= 25_000),  # a rise that was as high as what was given back
    ],
)
def test_what_rests_slows_down_or_is_given_back_is_no_rise(levels):
    assert find_rise(STEPS, levels) is None


def test_a_filling_buffer_is_told_as_rising_and_taken_back_soon_after_it_is_full():
    levels = np.minimum(STEPS, 30_000)
    told = {step: find_rise(STEPS[:n], levels[:n]) is not None for n, step in enumerate(STEPS) if n}
    assert told[29_000]
    assert not told[38_000]


def test_a_few_samples_tell_nothing():
    assert find_rise([], []) is None
    assert find_rise(STEPS[:19], STEPS[:19]) is None


@given(st.integers(-(10**9), 10**9), st.sampled_from([0.001, 1.0, 1e6]), st.sampled_from([0.05, 1.0, 40.0]))
def test_neither_the_level_before_nor_the_units_change_the_answer(before, unit, of_steps):
    for levels in (STEPS + 300 * np.sin(STEPS), np.minimum(STEPS, 20_000)):
        plain = find_rise(STEPS, levels)
        moved = find_rise(STEPS * of_steps, unit * (levels + before))
        assert (plain is None) == (moved is None)


def test_looks_come_at_steps_that_grow_by_a_factor_and_more_often_while_an_alarm_stands():
    looks, step = [], 0
    while step < 100_000:
        step = next_look(step, is_rising=False)
        looks.append(step)
    assert len(looks) < 20
    assert next_look(50_000, is_rising=True) < next_look(50_000, is_rising=False)


def test_one_of_each_kind_of_the_simulation_is_judged_right(simulation):
    wrong = [
        make.__name__
        for makers in (simulation.HARMLESS, simulation.LEAKS)
        for number, make in enumerate(makers)
        if simulation.watched(*simulation.sampled(random := np.random.default_rng([77, number]), make(random))).stands
        != (makers is simulation.LEAKS)
    ]
    assert wrong == []


def step_times(random, n, *, hiccups=0.02):
    """Seconds of *n* steps on a shared machine: unequal, some of them much too long."""
    times = 0.05 * random.lognormal(0, 0.08, n)
    return times * np.where(random.random(n) < hiccups, random.uniform(1.5, 6, n), 1)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("period", [20, 137, 500])
def test_a_validation_at_a_fixed_distance_is_found_to_the_step(seed, period):
    random = np.random.default_rng([seed, period])
    steps = np.arange(4_000)
    times = step_times(random, len(steps)) + np.where(steps % period == 7, 0.5, 0)
    assert find_periods(steps, times) == (period,)


@pytest.mark.parametrize("seed", range(8))
def test_a_checkpoint_beside_the_validation_is_a_period_of_its_own(seed):
    random = np.random.default_rng(seed)
    steps = np.arange(4_000)
    times = step_times(random, len(steps), hiccups=0) + np.where(steps % 100 == 0, 0.5, 0)
    assert find_periods(steps, times + np.where(steps % 500 == 0, 3.0, 0)) == (100, 500)


@pytest.mark.parametrize("seed", range(30))
def test_hiccups_have_no_period(seed):
    random = np.random.default_rng([7, seed])
    assert find_periods(np.arange(4_000), step_times(random, 4_000, hiccups=random.uniform(0, 0.1))) == ()


@pytest.mark.parametrize("seed", range(8))
def test_a_long_epoch_is_found_in_coarse_samples_on_a_rising_level(seed):
    random = np.random.default_rng(seed)
    steps = np.cumsum(random.integers(350, 450, 240)).astype(float)
    epoch = 5_000
    level = 0.5 * steps + random.normal(0, 3, 240)
    level += np.where(np.floor(steps / epoch) > np.floor((steps - 400) / epoch), 500, 0)
    (period,) = find_periods(steps, level)
    assert period == pytest.approx(epoch, rel=0.05)


@pytest.mark.parametrize("level", [np.zeros(300), np.arange(300.0), np.sin(np.arange(300) / 20), np.zeros(3)])
def test_a_level_without_spikes_has_none(level):
    assert find_periods(np.arange(len(level)), level) == ()


def test_a_list_that_is_dropped_after_every_epoch_tells_the_epoch():
    assert find_periods(np.arange(300), np.arange(300) % 50) == (50,)


def test_a_run_is_one_epoch_where_that_is_short_and_whole_epochs_where_it_is_shorter():
    assert run_length(25, ()) == 25
    assert run_length(25, (10,)) == 30
    assert run_length(25, (60,)) == 60
    assert run_length(25, (10, 50)) == 50


@given(st.integers(1, 100), st.integers(1, 5_000))
def test_a_run_is_no_part_of_a_period_that_is_too_long_for_it(wanted, period):
    n = run_length(wanted, (period,))
    assert wanted <= n <= max(2 * wanted, 4 * wanted)
    runs = period / n
    assert n % period == 0 or abs(runs - round(runs)) > 0.1 or runs > 2 * wanted


@given(
    st.lists(st.tuples(st.integers(1, 60), st.floats(0, 1e3)), min_size=2, max_size=120),
    st.integers(1, 4_000),
)
def test_however_unevenly_samples_lie_an_answer_comes_and_no_period_is_shorter_than_what_can_be_seen(samples, n_wanted):
    steps = np.cumsum([gap for gap, _value in samples])
    periods = find_periods(steps, [value for _gap, value in samples])
    widest = int(np.diff(steps).max())
    assert list(periods) == sorted(set(periods))
    assert all(period >= (max(1, widest)) for period in periods)
    assert n_wanted <= run_length(n_wanted, periods) or not periods


def test_spikes_closer_than_samples_may_lie_do_not_hold_the_search():
    steps = np.array([*range(40), 200, *range(201, 240)])
    values = np.where(np.arange(len(steps)) % 5 == 0, 9.0, 1.0)
    assert all(period > 0 for period in find_periods(steps, values))

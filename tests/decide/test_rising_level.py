"""The rule on the level of a long loop: a leak rises at one pace to the end, all else rests or is given back."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaklab.decide.rising_level import find_rise, next_look

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
    assert rise.deepest_fall == 0
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

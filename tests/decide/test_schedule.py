"""How many runs a check makes: enough phases to compare, never more than the user allows."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaklab.decide.growth import judge_checkpoints
from leaklab.decide.verdict import next_phase, run_limit
from leaklab.model import Outcome


def phases(max_runs=None, *, seconds_per_run=0.001, max_seconds=60.0, growing=True, is_open=True, is_sure=False):
    """Play a check in which every run takes as long, and the answers stay the same."""
    lengths = []
    while True:
        done = sum(lengths)
        n_runs = next_phase(
            phases_done=len(lengths),
            runs_done=done,
            max_runs=max_runs,
            seconds_per_run=seconds_per_run,
            seconds_left=max_seconds - done * seconds_per_run,
            growing=growing,
            is_open=is_open,
            is_sure=is_sure,
        )
        if not n_runs:
            return lengths
        lengths.append(n_runs)


def test_a_cell_of_a_millisecond_is_run_a_thousand_times_while_a_question_is_open():
    assert phases() == [42, 69, 440, 449]


def test_a_leak_that_is_certain_is_followed_as_long_as_most_caches_take_to_fill():
    assert phases(is_open=False) == [42, 69, 440]


def test_a_fast_clean_cell_gets_a_hundred_runs_and_two_looks_at_the_heap():
    assert phases(growing=False, is_open=False) == [42, 69]


def test_a_leak_that_stops_to_grow_before_the_last_look_is_not_followed():
    lengths = [42, 69, 440]
    assert next_phase(
        phases_done=3, runs_done=sum(lengths), max_runs=None, seconds_per_run=0.001, seconds_left=60.0,
        growing=False, is_open=False,
    ) == 0  # fmt: skip


def test_the_cost_of_a_run_limits_how_far_growth_is_followed():
    assert phases(is_open=False, seconds_per_run=0.02) == [8, 7, 9, 16, 31, 29]
    assert phases(is_open=False, seconds_per_run=0.1) == [8, 7, 9]
    assert phases(is_open=False, seconds_per_run=2.0) == [3, 2, 3]


def test_a_limit_above_forty_is_what_somebody_wants_growth_to_be_followed_to():
    assert sum(phases(300, is_open=False, seconds_per_run=0.02)) == 300
    assert sum(phases(40, is_open=False, seconds_per_run=0.1)) == 24


def test_a_cell_of_some_hundredths_of_a_second_gets_three_phases_that_find_rare_leaks():
    assert phases(40) == [8, 7, 9, 16]
    assert phases(growing=False, is_open=False, seconds_per_run=0.05) == [8, 7, 9]


def test_a_clean_cell_that_costs_seconds_gets_two_phases():
    assert phases(growing=False, is_open=False, seconds_per_run=0.5) == [8, 7]


def test_a_slow_cell_gets_shorter_phases_and_forty_runs_at_most():
    assert phases(seconds_per_run=1.0) == [3, 2, 3, 8, 8, 8, 8]


def test_counts_that_agree_with_the_code_end_the_check_after_two_phases_of_a_slow_cell_and_three_of_a_quick_one():
    assert phases(is_open=True, is_sure=True, seconds_per_run=1.0) == [3, 2]
    assert phases(is_open=True, is_sure=True, seconds_per_run=0.02) == [8, 7, 9]
    assert phases(24, is_sure=True, seconds_per_run=1.0) == [3, 2]


def test_as_long_as_a_question_is_open_phases_follow_up_to_the_limit():
    assert phases(100) == [8, 7, 9, 16, 31, 29]


@pytest.mark.parametrize(("seconds_per_run", "expected"), [(1e-6, 1000), (0.0, 1000), (0.01, 200), (0.2, 40), (9, 40)])
def test_without_a_limit_of_the_user_the_cost_of_a_run_decides(seconds_per_run, expected):
    assert run_limit(None, seconds_per_run) == expected
    assert run_limit(77, seconds_per_run) == 77


def test_no_phase_begins_that_the_time_limit_does_not_allow():
    assert phases(seconds_per_run=1.0, max_seconds=4.0) == [3, 1]


def test_one_run_is_made_however_short_the_time_is():
    assert phases(seconds_per_run=5.0, max_seconds=1.0) == [1]


def test_without_time_left_there_is_no_run():
    assert next_phase(
        phases_done=0, runs_done=0, max_runs=40, seconds_per_run=0.0, seconds_left=0.0, growing=True, is_open=True
    ) == 0  # fmt: skip


def test_the_cost_of_the_first_run_may_be_unknown():
    assert next_phase(
        phases_done=0, runs_done=0, max_runs=None, seconds_per_run=0.0, seconds_left=60.0, growing=True, is_open=True
    ) == 8  # fmt: skip


@pytest.mark.parametrize(
    ("max_runs", "expected"),
    [
        (5, [3, 2]),
        (8, [4, 4]),
        (12, [4, 4, 4]),
        (15, [5, 5, 5]),
        (24, [8, 7, 9]),
        (30, [8, 7, 9, 6]),
    ],
)
def test_few_runs_are_split_into_phases_that_can_be_compared(max_runs, expected):
    assert phases(max_runs) == expected


@pytest.mark.parametrize("period", range(2, 112))
def test_a_list_that_is_flushed_from_time_to_time_is_no_leak(period):
    at_runs = [0, *accumulate(phases(is_open=False))]
    outcomes = {
        judge_checkpoints([(run + start) % period for run in at_runs], at_runs).outcome for start in range(period)
    }
    assert Outcome.LEAK not in outcomes


@given(st.integers(5, 200), st.floats(0.0001, 20.0), st.booleans(), st.booleans())
def test_phases_never_exceed_the_limit_and_are_at_least_two(max_runs, seconds_per_run, growing, is_open):
    lengths = phases(
        max_runs, seconds_per_run=seconds_per_run, max_seconds=1e9, growing=growing, is_open=is_open
    )  # fmt: skip
    assert sum(lengths) <= max_runs
    assert len(lengths) >= 2
    assert min(lengths) >= 1


@given(st.integers(5, 40), st.floats(0.01, 20.0), st.floats(0.5, 60.0))
def test_at_most_one_run_goes_beyond_the_time_limit(max_runs, seconds_per_run, max_seconds):
    lengths = phases(max_runs, seconds_per_run=seconds_per_run, max_seconds=max_seconds)
    assert sum(lengths) * seconds_per_run < max_seconds + seconds_per_run * 1.001


@given(st.integers(5, 40))
def test_the_second_phase_is_made_even_if_nothing_seems_to_grow(max_runs):
    assert len(phases(max_runs, growing=False, is_open=False, seconds_per_run=10.0, max_seconds=1e9)) == 2

"""How many runs a check makes: enough phases to compare, never more than the user allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaklab.decide import next_phase


def phases(max_runs=40, *, seconds_per_run=0.001, max_seconds=60.0, growing=True, is_open=True):
    """Play a check in which every run takes as long, and the answers stay the same."""
    lengths = []
    while True:
        done = sum(lengths)
        n_runs = next_phase(
            phases_done=len(lengths),
            runs_left=max_runs - done,
            seconds_per_run=seconds_per_run,
            seconds_left=max_seconds - done * seconds_per_run,
            growing=growing,
            is_open=is_open,
        )
        if not n_runs:
            return lengths
        lengths.append(n_runs)


def test_a_fast_cell_with_open_questions_gets_all_four_phases():
    assert phases() == [8, 7, 9, 16]


def test_a_leak_that_is_certain_after_three_phases_gets_no_fourth():
    assert phases(is_open=False) == [8, 7, 9]


def test_a_fast_clean_cell_gets_a_third_phase_that_finds_rare_leaks():
    assert phases(growing=False, is_open=False) == [8, 7, 9]


def test_a_clean_cell_that_costs_seconds_gets_two_phases():
    assert phases(growing=False, is_open=False, seconds_per_run=0.5) == [8, 7]


def test_a_slow_cell_gets_shorter_phases():
    assert phases(seconds_per_run=1.0) == [4, 3, 5, 8, 8, 8, 4]


def test_as_long_as_a_question_is_open_phases_of_the_last_length_follow_up_to_the_limit():
    assert phases(100) == [8, 7, 9, 16, 16, 16, 16, 12]


def test_no_phase_begins_that_the_time_limit_does_not_allow():
    assert phases(seconds_per_run=1.0, max_seconds=6.0) == [4, 2]


def test_one_run_is_made_however_short_the_time_is():
    assert phases(seconds_per_run=5.0, max_seconds=1.0) == [1]


def test_without_time_left_there_is_no_run():
    assert next_phase(
        phases_done=0, runs_left=40, seconds_per_run=0.0, seconds_left=0.0, growing=True, is_open=True
    ) == 0  # fmt: skip


def test_the_cost_of_the_first_run_may_be_unknown():
    assert next_phase(
        phases_done=0, runs_left=40, seconds_per_run=0.0, seconds_left=60.0, growing=True, is_open=True
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

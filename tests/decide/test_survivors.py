"""Facts about the judgement of survivors per cohort."""

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaklab.decide.survivors import judge_backlog, judge_survivors
from leaklab.model import Outcome

LEAK, CLEAN, BOUNDED, OPEN = Outcome.LEAK, Outcome.CLEAN, Outcome.BOUNDED, Outcome.INCONCLUSIVE

TABLE = {
    "nothing": ("0 0 0 0 0 0 0 0 0 0 0 0", CLEAN, 0),
    "newest value only": ("0 0 0 0 0 0 0 0 0 0 0 7", CLEAN, 0),
    "warm-up, then the current value": ("4 0 0 0 0 0 0 0 0 0 0 5", CLEAN, 0),
    "newest two values": ("0 0 0 0 0 0 0 0 0 0 3 3", CLEAN, 0),
    "newest two values, few runs": ("0 0 0 0 3 3", OPEN, None),
    "every run": ("1 1 1 1 1 1 1 1 1 1 1 1", LEAK, 1),
    "every run, shortest check": ("2 2 2 2 2", LEAK, 2),
    "every third run": ("0 0 1 0 0 1 0 0 1 0 0 1", LEAK, 1 / 3),
    "every fourth run": ("0 1 0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 1 0 0", LEAK, 1 / 4),
    "every second run, two each": ("0 2 0 2 0 2 0 2 0 2 0 2 0", LEAK, 1),
    "every fifth run": ("0 0 0 0 1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1 0 0 0 0", LEAK, 1 / 5),
    "random sizes": ("3 9 1 4 1 5 9 2 6 5 3 5", LEAK, 5),
    "random runs": ("0 1 0 0 1 1 0 0 0 1 0 1 0 0 1 0 0 0 1 1 0 0 1 0", LEAK, 4 / 11),
    "leak after a warm-up": ("16 8 4 2 1 1 1 1 1 1 1 1", LEAK, 1),
    "every third run after a warm-up": ("50 20 1 0 0 1 0 0 1 0 0 1 0 0 1 0 0 1", LEAK, 1 / 3),
    "one late spike on a leak": ("1 1 1 1 1 1 1 1 1 500 1 1 1", LEAK, 1),
    "ids counted with the run before": ("1 1 2 0 1 1 1 2 0 1 1 1 1", LEAK, 1),
    "cache filled at once": ("5 1 1 0 0 0 0 0 0 0 0 1", BOUNDED, 0),
    "cache filling slower and slower": ("9 7 5 4 3 2 1 1 0 1 0 0 0", BOUNDED, 0),
    "window of five": ("0 0 0 0 0 0 0 1 1 1 1 1", BOUNDED, 0),
    "window after a warm-up": ("3 1 0 0 0 0 0 0 0 0 0 1 1 1 1 1 1", BOUNDED, 0),
    "sawtooth emptied in run 16": ("0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 1 1 1 1 1 1 1", BOUNDED, 0),
    "stops at 60 %": ("1 1 1 1 1 1 1 1 1 1 1 1 1 1 0 0 0 0 0 0 0 0 0 0", BOUNDED, 0),
    "every third run stops at half": ("0 0 1 0 0 1 0 0 1 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1", BOUNDED, 0),
    "one spike in the middle": ("0 0 0 0 0 7 0 0 0 0 0 1", OPEN, None),
    "one early spike": ("0 0 0 0 7 0 0 0 0 0 0 1", CLEAN, 0),
    "one late spike": ("0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 7 0 0 0 0 1", CLEAN, 0),
    "two early one-offs": ("0 0 0 1 0 0 4 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1", CLEAN, 0),
    "two spikes far apart": ("0 0 0 0 1 0 0 0 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0 1", OPEN, None),
    "three one-offs": ("0 0 0 1 0 0 0 0 0 0 1 0 0 0 0 0 0 0 0 1 0 0 0 1", OPEN, None),
    "three one-offs, early": ("0 1 0 0 1 0 0 0 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 1", OPEN, None),
    "stopped two runs ago": ("1 1 1 1 1 1 1 1 1 1 0 0 1", OPEN, None),
    "stopped one run ago, few runs": ("1 1 1 1 1 1 1 0 1", OPEN, None),
    "window or late start": ("0 0 0 0 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", OPEN, None),
    "still filling": ("100 80 64 51 41 33 26 21 17 13 11 9", OPEN, None),
    "two bursts": ("0 0 1 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 1 1 1 1 1 1", OPEN, None),
    "a cache that evicts at random": ("0 0 0 1 0 0 0 0 0 1 0 0 1 0 1 1 0 1 1 1 1 1 1 1", OPEN, None),
    "too few runs": ("1 1 1 1", OPEN, None),
    "no runs": ("", OPEN, None),
    "few runs, one silent": ("1 0 1 1 1", OPEN, None),
    "few runs, filled": ("5 1 1 0 0 0 1", OPEN, None),
    "few runs, one survivor": ("0 0 1 0 0 1", OPEN, None),
    "seven runs, two survivors at last": ("0 0 0 0 0 0 1 1 1", BOUNDED, 0),
}


@pytest.mark.parametrize(("series", "outcome", "rate"), TABLE.values(), ids=TABLE)
def test_each_series_of_the_table_is_told_apart(series, outcome, rate):
    growth = judge_survivors([int(count) for count in series.split()])
    assert growth.outcome is outcome, growth
    if rate is not None:
        assert growth.rate == pytest.approx(rate)


@pytest.mark.parametrize(
    ("series", "reason"),
    [
        ("2 2 2 2 3 2 9", "each of 6 runs left at least 2 behind"),
        ("1 1 2 0 1 1 1", "each of 6 runs left at least 1 behind (1 of them counted with the run before)"),
        ("0 0 1 0 0 1 0 0 1 0 0 1", "one left behind every 3 runs, 3 times in 11 runs"),
        ("0 2 0 2 0 2 0 2 0 2 0 2 0", "2 left behind every 2 runs, 6 times in 12 runs"),
        ("0 2 0 1 0 2 0 2 0 2 0 2 0", "something left behind every 2 runs, 6 times in 12 runs"),
        ("0 0 0 0 0 0 0 1 1 1 1 1", "it keeps only what the last 5 runs made"),
        ("1 1 1 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0", "grew in the first 6 of 24 runs, then stopped"),
        ("0 0 0 0 0 0 0 0 0 0 0 7", "nothing piled up in 12 runs: only the latest run's objects are alive"),
        ("1 1 1 1", "4 runs are too few to tell a leak from a warm-up"),
    ],
)
def test_the_reason_names_the_figure(series, reason):
    assert judge_survivors([int(count) for count in series.split()]).reason == reason


KEPT = st.lists(st.integers(0, 9), min_size=5, max_size=60)


@given(KEPT, st.integers(2, 1000))
def test_scaling_the_counts_scales_the_rate_and_keeps_the_outcome(kept, factor):
    once, scaled = judge_survivors(kept), judge_survivors([count * factor for count in kept])
    assert scaled.outcome is once.outcome
    assert scaled.rate == pytest.approx(once.rate * factor)


@given(KEPT, st.integers(0, 10**6))
def test_the_newest_values_never_count(kept, newest):
    assert judge_survivors([*kept[:-1], newest]) == judge_survivors(kept)


@given(KEPT)
def test_a_long_silence_at_the_end_is_never_a_leak(kept):
    assert judge_survivors([*kept, *[0] * len(kept), 1]).outcome is not LEAK


@given(KEPT)
def test_what_left_nothing_in_the_second_half_is_never_a_leak(kept):
    half = (len(kept) - 1) // 2
    assert judge_survivors([*kept[:half], *[0] * (len(kept) - 1 - half), 5]).outcome is not LEAK


@given(st.lists(st.integers(1, 9), min_size=5, max_size=60))
def test_what_each_run_leaves_behind_is_a_leak_unless_it_falls_to_the_end(kept):
    growth = judge_survivors(kept)
    assert growth.rate >= 1
    assert growth.outcome is LEAK or (growth.outcome is OPEN and "less and less" in growth.reason)
    settled = [*kept[:-1], *[min(kept)] * len(kept), 0]
    assert judge_survivors(settled).outcome is LEAK


@pytest.mark.parametrize(("last", "rate"), [(7, 8), (8, 8), (9, pytest.approx(8.05, abs=0.01))])
def test_what_each_run_leaves_exactly_is_not_less_for_an_object_in_use_at_the_end(last, rate):
    assert judge_survivors([*[8] * 41, last, 0]).rate == rate


@given(st.lists(st.integers(0, 50), max_size=3), st.integers(2, 5), st.integers(16, 60))
def test_a_regular_leak_is_found_after_any_warm_up(warm_up, period, length):
    beat = [int(i % period == period - 1) for i in range(max(length, 5 * period))]
    growth = judge_survivors([*sorted(warm_up, reverse=True), *beat])
    assert growth.outcome is LEAK
    assert growth.rate == pytest.approx(1 / period)


@given(st.integers(1, 30), st.data())
def test_a_window_of_at_most_half_of_the_runs_is_bounded(size, data):
    n_runs = data.draw(st.integers(max(2 * size + 1, 12), 61))
    expected = CLEAN if size <= 2 else BOUNDED
    assert judge_survivors([0] * (n_runs - size) + [1] * size).outcome is expected


def test_every_short_series_of_zeros_and_ones_keeps_the_rules_of_the_contract():
    n_leaks = 0
    for length in range(1, 12):
        for kept in product((0, 1), repeat=length):
            growth = judge_survivors([*kept, 1])
            n_hits = sum(kept)
            assert growth.reason
            assert growth.rate >= 0
            if growth.outcome is LEAK:
                n_leaks += 1
                assert n_hits >= 3
                assert any(kept[length // 2 :])
                assert any(kept[: length // 2])
                assert growth.rate > 0
            if growth.outcome in {CLEAN, BOUNDED}:
                assert growth.rate == 0
                assert n_hits < length or length < 4
    assert n_leaks > 100


def _share(outcome, make, n_draws=400):
    rngs = [random.Random(seed) for seed in range(n_draws)]
    drawn = [judge_survivors(make(rng)).outcome for rng in rngs]
    return sum(1 for each in drawn if each is outcome) / n_draws


def _filling_cache(rng, size, n_draws, n_runs):
    seen, kept = set(), []
    for _ in range(n_runs):
        new = {rng.randrange(size) for _ in range(n_draws)} - seen
        seen |= new
        kept.append(len(new))
    return kept


def test_random_leaks_are_found_and_hardly_ever_denied():
    def random_third(rng):
        return [int(rng.random() < 1 / 3) for _ in range(40)]

    def random_size(rng):
        return [rng.randint(1, 9) for _ in range(24)]

    assert _share(LEAK, random_third) > 0.85
    assert _share(CLEAN, random_third) + _share(BOUNDED, random_third) < 0.04
    assert _share(LEAK, random_size) == 1


def test_caches_that_fill_at_random_and_one_offs_are_hardly_ever_accused():
    def one_offs(rng):
        return [int(rng.random() < 1 / 24) for _ in range(24)]

    assert _share(LEAK, lambda rng: _filling_cache(rng, 30, 10, 24)) < 0.06
    assert _share(LEAK, lambda rng: _filling_cache(rng, 16, 3, 40)) < 0.03
    assert _share(LEAK, one_offs) < 0.02


def levels_of(n_runs, alive_after):
    """Levels of a process whose objects take 1,000 bytes each, *alive_after(run)* of them after each run."""
    return [1_000_000 + 1_000 * alive_after(run) for run in range(n_runs + 1)]


@pytest.mark.parametrize("served", [1, 2, 4, 6, 7])
def test_a_queue_that_gains_faster_than_it_is_emptied_is_a_leak(served):
    n_runs, n_gone = 40, 40 * served // 8
    kept = [0] * (n_gone) + [8] * (n_runs - n_gone)
    growth = judge_backlog(kept, levels_of(n_runs, lambda run: run * (8 - served)), 1_000 * sum(kept))
    assert growth.outcome is LEAK
    assert growth.rate == sum(kept) / n_runs


@given(st.integers(24, 200), st.floats(0.1, 0.85), st.integers(0, 20))
def test_a_window_of_fixed_size_is_no_backlog(n_runs, share, noise):
    size = int(n_runs * share)
    kept = [0] * (n_runs - size) + [1] * size
    levels = [level + noise * (place % 3) for place, level in enumerate(levels_of(n_runs, lambda run: min(run, size)))]
    assert judge_backlog(kept, levels, 1_000 * size) is None


@given(st.integers(24, 200), st.floats(0.15, 0.9))
def test_what_starts_late_is_no_backlog(n_runs, share):
    start = int(n_runs * share)
    kept = [0] * start + [1] * (n_runs - start)
    assert judge_backlog(kept, levels_of(n_runs, lambda run: max(0, run - start)), 1_000 * sum(kept)) is None


def test_a_backlog_needs_levels_that_are_its_own():
    kept = [0] * 20 + [2] * 20
    assert judge_backlog(kept, levels_of(40, lambda run: run), 40_000) is not None
    assert judge_backlog(kept, levels_of(40, lambda run: 10 * run), 40_000) is None  # somebody else's
    assert judge_backlog(kept, [5] * 41, 40_000) is None
    assert judge_backlog(kept, [], 40_000) is None
    assert judge_backlog([2] * 40, levels_of(40, lambda run: run), 40_000) is None  # nothing is gone


def test_batches_that_are_let_go_are_no_backlog_though_the_first_one_takes_something_once():
    """A graph over sixteen runs: its first backward pass makes what torch keeps for all that follow."""
    kept = [0] * 14 + [3] + [6] * 8 + [9]
    before, batch = [20_000 * run for run in range(15)], [20_000 * run for run in range(10)]
    levels = [*before, *(100_000 + level for level in batch)]
    assert len(levels) == len(kept) + 1
    assert judge_backlog(kept, levels, 4_000 * sum(kept)) is None


def test_a_backlog_may_be_served_in_batches():
    """Ten come in every run; thirty go in every fifth, so four more are there after each run."""
    waiting, levels, size = [], [0], 1_000
    for run in range(40):
        waiting += [run] * 10
        if run % 5 == 4:
            del waiting[:30]
        levels.append(len(waiting) * size)
    kept = [waiting.count(run) for run in range(40)]
    growth = judge_backlog(kept, levels, size * sum(kept))
    assert growth is not None
    assert growth.outcome is LEAK

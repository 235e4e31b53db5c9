"""Facts about the verdict that sums up a check."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaklab.decide.growth import judge_checkpoints
from leaklab.decide.verdict import conclude, next_phase, run_limit
from leaklab.model import Leak, Outcome, RootPath

TENSOR = Leak(
    what="torch.Tensor (128, 100) float32 cpu",
    path=RootPath("notebook variable", ()),
    holder="trainer.epoch_outputs",
    cause="tensor-kept",
    advice="",
    bytes_per_run=160_768.0,
    count_per_run=3.0,
    unit="objects",
    kept=(3, 3, 3, 3, 3),
    fingerprint="abc",
    reason="each of 23 runs left at least 3 behind",
)


SMALL = replace(TENSOR, what="Batch", holder="log", bytes_per_run=0.0)


def reason_of(*leaks, **options):
    return conclude(leaks, (), (), 24, options.get("free_bytes"), options.get("failure", "")).reason


def test_a_leak_is_told_with_number_place_and_projection():
    verdict = conclude([TENSOR], [], [], 24, 16 * 2**30)
    assert verdict.outcome is Outcome.LEAK
    assert verdict.reason == (
        "`trainer.epoch_outputs` grows by 3 tensors (157 KiB) every run; 1,000 runs would keep 153 MiB"
    )
    assert verdict.n_runs == 24
    assert verdict.bytes_per_run == 160_768.0
    assert verdict.full_after_runs == 106_861  # 17,179,869,184 / 160,768 = 106,861.2


def test_bytes_of_several_leaks_are_summed():
    verdict = conclude(
        [TENSOR, replace(TENSOR, bytes_per_run=1000.0), replace(TENSOR, bytes_per_run=0.0)], [], [], 24, None
    )
    assert verdict.bytes_per_run == 161_768.0
    assert verdict.full_after_runs is None
    assert "every run (and 2 more leaks); 1,000 runs would keep 154 MiB" in verdict.reason


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"count_per_run": 1 / 3, "bytes_per_run": 100.0}, "`log` grows by 1 Batch object (300 B) every 3rd run;"),
        ({"count_per_run": 1 / 2}, "`log` grows by 1 Batch object every 2nd run;"),
        ({"count_per_run": 1 / 11}, "`log` grows by 1 Batch object every 11th run;"),
        ({"count_per_run": 0.7}, "`log` grows by 0.7 Batch objects every run;"),
        ({"unit": "entries", "count_per_run": 1.0, "bytes_per_run": 9.0}, "`log` grows by 1 entry (9 B) every run;"),
        ({"unit": "graph nodes", "count_per_run": 4.0}, "the autograd graph of `log` grows by 4 graph nodes every"),
        (
            {"unit": "bytes", "count_per_run": 2048.0, "bytes_per_run": 2048.0},
            "`log` grows by 2.00 KiB every run;",
        ),
        (
            {"count_per_run": 0.0, "bytes_per_run": 2048.0, "what": "native memory", "holder": ""},
            "native memory grows by 2.00 KiB every run;",
        ),
    ],
)  # fmt: skip
def test_the_sentence_speaks_in_the_unit_of_the_leak(changes, sentence):
    assert reason_of(replace(SMALL, **changes)).startswith(sentence)


def test_a_leak_without_known_bytes_is_projected_in_its_unit():
    reason = reason_of(replace(TENSOR, bytes_per_run=0.0))
    assert reason.endswith("; 1,000 runs would keep 3,000 objects")


def test_a_leak_stands_although_the_check_ended_early():
    verdict = conclude([TENSOR], [], ["open"], 9, None, "ValueError in run 10")
    assert verdict.outcome is Outcome.LEAK
    assert verdict.reason.endswith("(the check ended early: ValueError in run 10)")


def test_no_free_memory_is_full_after_no_run():
    assert conclude([TENSOR], [], [], 24, 0).full_after_runs == 0
    assert conclude([replace(TENSOR, bytes_per_run=0.0)], [], [], 24, 10).full_after_runs is None


def test_nothing_found_is_clean():
    verdict = conclude([], [], [], 24, 10)
    assert str(verdict) == "clean: nothing piled up in 24 runs: only the latest run's objects are alive"
    assert (verdict.bytes_per_run, verdict.full_after_runs) == (0.0, None)


LOG = replace(SMALL, what="list entries: float", holder="losses", unit="entries", count_per_run=3.0, bytes_per_run=96.0)
SECOND = replace(LOG, what="dict entries: tuple", count_per_run=0.5)
MESSAGES = replace(LOG, what="list entries: str", count_per_run=1.0, bytes_per_run=83.0)
BUFFER = replace(LOG, unit="bytes", count_per_run=8.0, bytes_per_run=8.0)


@pytest.mark.parametrize(
    ("logs", "n_aside", "reason"),
    [
        ([LOG], 0, "nothing leaks; `losses` is a log: 3 numbers (96 B) every run"),
        ([LOG, LOG], 0, "nothing leaks; `losses` is a log: 3 numbers (96 B) every run (and 1 more log)"),
        ([SECOND], 0, "nothing leaks; `losses` is a log: 1 record (192 B) every 2nd run"),
        ([MESSAGES], 0, "nothing leaks; `losses` is a log: 1 message (83 B) every run"),
        ([BUFFER], 0, "nothing leaks; `losses` is a log: 8 B every run"),
        (
            [BUFFER],
            1,
            "nothing leaks; `losses` is a log: 8 B every run; in addition, 1 small place grows (see the notes)",
        ),
        ([replace(LOG, n_places=2)], 0, "nothing leaks; 2 places like `losses` are logs: 3 numbers (96 B) every run"),
        ([], 2, "nothing of yours piled up in 24 runs: 2 small places grow (see the notes)"),
    ],
)
def test_what_piled_up_without_leaking_is_in_the_sentence(logs, n_aside, reason):
    verdict = conclude([], [], [], 24, None, n_aside=n_aside, logs=logs)
    assert (verdict.outcome, verdict.reason) == (Outcome.CLEAN, reason)


ASIDE = "left aside, smaller than --min-bytes 1.00 KiB (see the notes)"


@pytest.mark.parametrize(
    ("found", "n_small", "reason"),
    [
        ({}, 1, f"nothing leaks 1.00 KiB or more per run in 24 runs; 1 leak is {ASIDE}"),
        ({"leaks": [SMALL]}, 2, f"1,000 runs would keep 3,000 objects; 2 leaks are {ASIDE}"),
        ({"open_questions": ["list in log grows"]}, 1, f"list in log grows; 1 leak is {ASIDE}"),
        ({"failure": "OSError in run 9"}, 1, f"cannot exclude one; 1 leak is {ASIDE}"),
        ({"bounded": [replace(SMALL, reason="full")]}, 1, f"grew to a limit: full; 1 leak is {ASIDE}"),
    ],
)
def test_every_verdict_says_how_many_small_leaks_were_left_aside(found, n_small, reason):
    empty = {"leaks": [], "bounded": [], "open_questions": []}
    verdict = conclude(**{**empty, **found}, n_runs=24, free_bytes=None, small=(n_small, 1024))
    assert verdict.reason.endswith(reason)


def test_a_little_is_projected_to_a_million_runs():
    assert reason_of(replace(SMALL, bytes_per_run=100.0)).endswith("; 1,000,000 runs would keep 95.4 MiB")


def test_bounded_growth_names_the_place_and_the_limit():
    cache = replace(TENSOR, what="dict", holder="cache", reason="full after 6 runs")
    verdict = conclude([], [cache, TENSOR], [], 24, 10)
    assert str(verdict) == ("bounded: `cache` grew to a limit: full after 6 runs (and 1 more bounded place)")


def test_what_has_no_expression_is_named_by_what_it_is():
    cache = replace(TENSOR, what="native memory", holder="nothing that Python can see", reason="a cache of oneDNN")
    assert conclude([], [cache], [], 24, 10).reason == (
        "native memory (held by nothing that Python can see) grew to a limit: a cache of oneDNN"
    )


def test_open_questions_outweigh_what_is_bounded():
    verdict = conclude([], [TENSOR], ["list in log grows, but more and more slowly", "b", "c"], 24, 10)
    assert str(verdict) == "inconclusive: list in log grows, but more and more slowly (and 2 more open questions)"


@pytest.mark.parametrize(
    ("n_runs", "failure", "reason"),
    [
        (1, "", "1 run is too few to tell a leak from a warm-up; at least 5 are needed"),
        (4, "", "4 runs are too few to tell a leak from a warm-up; at least 5 are needed"),
        (
            2,
            "KeyError in run 3",
            "the check ended early (KeyError in run 3): 2 runs showed no leak, but cannot exclude one",
        ),
    ],
)
def test_too_few_runs_are_inconclusive(n_runs, failure, reason):
    verdict = conclude([], [], [], n_runs, None, failure)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.reason == reason


def test_a_check_that_ended_early_says_what_it_leaves_open():
    question = "1 tensor more every run, and it is open what keeps it"
    verdict = conclude([], [], [question], 8, None, "KeyboardInterrupt in the search for holders")
    assert str(verdict) == (
        "inconclusive: the check ended early (KeyboardInterrupt in the search for holders): 8 runs are too few "
        "to decide; 1 tensor more every run, and it is open what keeps it"
    )


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
    assert phases() == [15, 9, 34, 53, 440, 449]


def test_a_leak_that_is_certain_is_followed_as_long_as_most_caches_take_to_fill():
    assert phases(is_open=False) == [15, 9, 34, 53, 440]


def test_a_fast_clean_cell_gets_a_hundred_runs_and_two_looks_at_the_heap():
    assert phases(growing=False, is_open=False) == [15, 96]


def test_a_leak_that_stops_to_grow_before_the_last_look_is_not_followed():
    lengths = [15, 9, 34, 53, 440]
    assert next_phase(
        phases_done=5, runs_done=sum(lengths), max_runs=None, seconds_per_run=0.001, seconds_left=60.0,
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


def test_counts_that_agree_with_the_code_end_the_check_after_five_runs_of_a_slow_cell_and_24_of_a_quick_one():
    assert phases(is_sure=True) == [15, 9]
    assert phases(is_open=True, is_sure=True, seconds_per_run=1.0) == [3, 2]
    assert phases(is_open=True, is_sure=True, seconds_per_run=0.02) == [8, 7, 9]
    assert phases(24, is_sure=True, seconds_per_run=1.0) == [3, 2]


def test_as_long_as_a_question_is_open_phases_follow_up_to_the_limit():
    assert phases(100) == [8, 7, 9, 16, 31, 29]


@pytest.mark.parametrize(
    ("seconds_per_run", "expected"), [(1e-6, 1000), (0.0, 1000), (0.01, 200), (0.1, 65), (0.2, 50), (0.3, 40), (9, 40)]
)
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


def outcome_of_a_saw(period, start, first):
    """Judge a list that is flushed every *period* runs, looked at after *first* runs and when the check looks then."""
    at_runs = [0, first]
    while True:
        outcome = judge_checkpoints([(run + start) % period for run in at_runs], at_runs).outcome
        growing = outcome in (Outcome.LEAK, Outcome.INCONCLUSIVE)
        n_runs = next_phase(
            phases_done=len(at_runs) - 1, runs_done=at_runs[-1], max_runs=None, seconds_per_run=0.001,
            seconds_left=60.0, growing=growing, is_open=False,
        )  # fmt: skip
        if not n_runs:
            return outcome
        at_runs.append(at_runs[-1] + n_runs)


@pytest.mark.parametrize("period", range(2, 112))
def test_a_list_that_is_flushed_from_time_to_time_is_no_leak(period):
    first_runs = {8, 15}  # where the first run was slow, and where it was not
    outcomes = {outcome_of_a_saw(period, start, first) for start in range(period) for first in first_runs}
    assert Outcome.LEAK not in outcomes


@pytest.mark.parametrize(
    ("runs_done", "seconds_per_run", "expected"), [(8, 0.001, 24), (15, 0.02, 24), (24, 0.02, 40), (24, 0.001, 58)]
)
def test_where_the_first_runs_took_another_time_than_the_rest_the_totals_are_the_same(
    runs_done, seconds_per_run, expected
):
    n_runs = next_phase(
        phases_done=1, runs_done=runs_done, max_runs=None, seconds_per_run=seconds_per_run, seconds_left=60.0,
        growing=True, is_open=True,
    )  # fmt: skip
    assert runs_done + n_runs == expected


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

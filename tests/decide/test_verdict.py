"""Facts about the verdict that sums up a check."""

from dataclasses import replace

import pytest

from leaklab.decide.verdict import conclude
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
        ([BUFFER], 1, "nothing leaks; `losses` is a log: 8 B every run; beside it 1 small place grows (see the notes)"),
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
    verdict = conclude([], [TENSOR], ["list in log grows, but slower and slower", "b", "c"], 24, 10)
    assert str(verdict) == "inconclusive: list in log grows, but slower and slower (and 2 more open questions)"


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

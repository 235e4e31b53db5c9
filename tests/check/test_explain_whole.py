"""The whole way from a leaking function to its explanation; the text of one report against a golden file."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch

import leaklab
from leaklab.check.explaining import explain_growth
from leaklab.check.judging import judge
from leaklab.check.session import CheckSession
from leaklab.measure.measurement import Measurement, choose_baseline
from leaklab.model import Outcome, Settings

pytestmark = pytest.mark.untraced

GOLDEN = Path(__file__).with_name("whole_report.txt")


class Record:
    """What a run leaves behind."""

    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number


def leaky(n_each=1):
    history = []

    def run():
        history.extend(Record([n_each]) for _ in range(n_each))

    return run, {"history": history}


def masked(text):
    """Blank out what another machine or another day measures differently."""
    text = re.sub(r"\d[\d.,]* (ns|us|ms|s|min)\b", "<time>", text)
    text = re.sub(r"(?m)^leaklab .*$", "leaklab <versions>", text)
    return re.sub(r"[\d.]+ (B|KiB|MiB|GiB)\b", "<bytes>", text)


def test_the_report_of_a_small_leak_reads_like_the_golden_one():
    run, namespace = leaky()
    report = leaklab.leakcheck(run, runs=12, namespace=namespace, name="records", cure=False)
    if os.environ.get("LEAKLAB_WRITE_GOLDEN"):
        GOLDEN.write_text(masked(str(report)))
    assert masked(str(report)) == GOLDEN.read_text()


def test_the_fingerprint_is_the_same_in_the_next_check():
    prints = set()
    for runs in (6, 12, 24):
        run, namespace = leaky()
        (leak,) = leaklab.leakcheck(run, runs=runs, namespace=namespace, cure=False).leaks
        prints.add(leak.fingerprint)
    assert len(prints) == 1


def test_rows_of_the_tables_are_sorted_and_judged_one_by_one():
    history, window = [], []

    def run():
        history.append([Record(0), torch.zeros(100)])
        if len(window) < 6:
            window.append({1: [len(window)]})

    check = leaklab.leakcheck(run, namespace={"history": history, "window": window}, sites=False).check
    rows = {row.kind: row for row in check.objects}
    assert rows["torch.Tensor"].outcome is Outcome.LEAK
    assert rows["torch.Tensor"].kept[:-1] == (1,) * (len(check.runs) - 1)
    assert rows["torch.Tensor"].bytes_per_run > 400
    assert rows["dict"].outcome is Outcome.BOUNDED
    assert [row.outcome for row in check.objects] == sorted(
        (row.outcome for row in check.objects),
        key=[Outcome.LEAK, Outcome.INCONCLUSIVE, Outcome.BOUNDED, Outcome.CLEAN].index,
    )
    assert check.objects[0].kind == "torch.Tensor"  # the most bytes
    (tensors,) = check.tensors
    assert (tensors.shape, tensors.dtype, tensors.device, tensors.has_graph) == ((100,), "float32", "cpu", False)
    assert tensors.bytes_kept == 400 * sum(tensors.kept)
    assert tensors.bytes_per_run == pytest.approx(400)
    assert rows["torch.Tensor"].n_after - rows["torch.Tensor"].n_before == sum(tensors.kept)


def test_kept_tensors_are_counted_by_run():
    history = []
    keep = lambda: history.append(torch.zeros(100))  # noqa: E731
    check = leaklab.leakcheck(keep, namespace={"history": history}, runs=16, sites=False).check
    assert [run.n_tensors_kept for run in check.runs] == [1] * len(check.runs)
    assert [run.tensor_bytes_kept for run in check.runs] == [400] * len(check.runs)


def test_a_window_is_bounded_by_the_limit_of_its_holder():
    from collections import deque

    window = deque(maxlen=1000)
    add = lambda: window.append(Record([0]))  # noqa: E731
    check = leaklab.leakcheck(add, namespace={"window": window}, sites=False).check
    assert check.verdict.outcome is Outcome.BOUNDED
    (place,) = check.bounded
    assert "collections.deque(maxlen=1000)" in place.reason


def test_a_steady_leak_of_many_objects_in_a_big_heap_is_explained_in_the_time_of_a_few_collections():
    import gc
    import time

    ballast = [[i] for i in range(300_000)]
    run, namespace = leaky(n_each=500)
    measurement = Measurement(12, choose_baseline(user_froze=False, cell_freezes=False, collects=True),
                              collects=True, frozen_too=False)  # fmt: skip
    for _ in range(2):
        measurement.open_phase()
        for _ in range(6):
            measurement.start_run()
            run()
            measurement.finish_run(0.0)
        measurement.close_phase()
    session, judgement = CheckSession(Settings(), namespace), judge(measurement)
    session.measurement = measurement
    started = time.process_time()
    gc.collect()
    collection = time.process_time() - started
    started = time.process_time()
    explained = explain_growth(session, judgement)
    spent = time.process_time() - started
    assert len(explained.leaks) == 1
    assert spent < 40 * collection  # a guard against quadratic work; it takes about ten
    assert len(ballast) == 300_000

"""What other threads do while code is checked is told apart from what the code does."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pytest

import leaklab
from leaklab.check.session import ThreadClocks, thread_words

FILLED: list[bytearray] = []


def fill(stop: threading.Event) -> None:
    while not stop.wait(0.003):
        FILLED.append(bytearray(5_000))


def work(stop: threading.Event) -> None:
    while not stop.wait(0.0005):
        sum(range(5_000))


def wait(stop: threading.Event) -> None:
    stop.wait()


@contextmanager
def thread(target, name):
    stop = threading.Event()
    runs = threading.Thread(target=target, args=(stop,), name=name, daemon=True)
    runs.start()
    try:
        yield
    finally:
        stop.set()
        runs.join()
        FILLED.clear()


def test_a_thread_that_works_is_named_and_one_that_waits_is_not():
    with thread(work, "works"), thread(wait, "waits"):
        clocks = ThreadClocks()
        time.sleep(0.3)
        busy = clocks.busy()
    assert "works" in busy
    assert "waits" not in busy


def test_a_thread_that_began_later_is_not_among_those_that_were_there():
    clocks = ThreadClocks()
    with thread(work, "later"):
        time.sleep(0.1)
        assert "later" not in clocks.busy()


def test_few_threads_are_named_and_the_others_counted():
    assert thread_words(["a"]) == "thread 'a'"
    assert thread_words(["a", "b", "c", "d", "e"]) == "threads 'a', 'b', 'c' and 2 more"


@pytest.mark.untraced
def test_growth_by_another_thread_is_said_to_be_its_own():
    with thread(fill, "filler"):
        # Long runs: the thread goes on while the heap is looked at, and that has no pace by the run.
        report = leaklab.leakcheck(lambda: time.sleep(0.2), runs=12, namespace=globals())
    notes = " ".join(report.check.notes)
    assert "thread 'filler' ran during the check" in notes
    assert "FILLED also grows between runs: thread 'filler' adds to it" in notes
    (site,) = next(leak for leak in report.leaks if leak.holder == "FILLED").sites
    assert "FILLED.append(bytearray(5_000))  # makes it, in thread 'filler'" in site


@pytest.mark.untraced
def test_a_thread_that_only_works_takes_no_line_from_the_code():
    kept = []
    with thread(work, "works"):
        report = leaklab.leakcheck(lambda: kept.append(bytearray(5_000)), runs=16)
    assert "kept.append(bytearray(5_000))" in report.leaks[0].sites[0]
    assert "keeps it" in report.leaks[0].sites[0]
    assert not any("also grows between runs" in note for note in report.check.notes)

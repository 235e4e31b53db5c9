"""Leaks with parts that Python cannot see: each is one leak, held by what a person would name, with its true size."""

from __future__ import annotations

import ctypes
import functools
import importlib
import io
import itertools
import logging
import queue
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import torch

import leaklab
from leaklab.model import Outcome

pytestmark = pytest.mark.untraced


class Record:
    """An object that is kept."""


def check(cell, *, runs=24, **namespace):
    return leaklab.leakcheck(cell, namespace=namespace, sites=False, cure=False, runs=runs)


def the_leak(report):
    assert report.verdict.outcome is Outcome.LEAK
    assert len(report.leaks) == 1, [leak.holder for leak in report.leaks]
    return report.leaks[0]


@pytest.mark.parametrize(
    ("make", "n_bytes"),
    [
        (lambda: np.ones(50_000)[10:20], 400_000),
        (lambda: np.arange(50_000).reshape(500, 100).T, 400_000),
        (lambda: np.frombuffer(bytearray(200_000), dtype=np.uint8)[:5], 200_000),
        (lambda: torch.ones(100, 500).numpy()[0], 200_000),
        (lambda: (np.ones((400, 50))[:, 0], "column"), 160_000),
    ],
    ids=["slice", "reshaped", "of a buffer", "of a tensor", "in a tuple"],
)
def test_a_kept_view_is_a_leak_of_its_list_with_the_memory_that_it_shows(make, n_bytes):
    kept = []
    leak = the_leak(check(lambda: kept.append(make()), kept=kept))
    assert leak.holder == "kept"
    assert leak.count_per_run == pytest.approx(1)
    assert n_bytes <= leak.bytes_per_run < 1.05 * n_bytes + 1_000


SEEN: list[torch.Tensor] = []


def aliases():
    SEEN.append(SEEN[0].view(-1))


def remade_by_key():
    newest = torch.ones(60_000)
    SEEN[:] = [newest.detach() for _ in range(len(SEEN) + 1)]


def rows_of_one():
    SEEN[:] = torch.cat([torch.stack(SEEN), torch.ones(1, 1_000)])


def parts_of_each():
    SEEN.extend(torch.ones(10_000).chunk(5))


@pytest.mark.parametrize(
    ("cell", "first", "n_bytes"),
    [
        (aliases, [torch.ones(60_000)], (100, 700)),
        (remade_by_key, [], (100, 700)),
        (rows_of_one, [torch.zeros(1_000)], (4_000, 4_600)),
        (parts_of_each, [], (40_000, 44_000)),
    ],
)
def test_one_view_more_of_a_storage_takes_what_no_other_shows_of_it(cell, first, n_bytes):
    SEEN[:] = first
    try:
        leak = the_leak(check(cell, SEEN=SEEN))
    finally:
        SEEN.clear()
    assert leak.holder == "SEEN"
    assert n_bytes[0] < leak.bytes_per_run < n_bytes[1]


def test_views_of_an_array_that_the_user_has_anyway_are_as_small_as_they_are():
    table, kept = np.zeros((10_000, 20)), []
    leak = the_leak(check(lambda: kept.append(table[len(kept)]), kept=kept, table=table))
    assert leak.holder == "kept"
    assert 50 < leak.bytes_per_run < 500


def test_arrays_of_objects_that_are_kept_are_held_by_their_dict():
    kept = {}
    leak = the_leak(check(lambda: kept.update({len(kept): np.array([Record(), Record()], dtype=object)}), kept=kept))
    assert leak.holder == "kept"
    assert leak.count_per_run == pytest.approx(1)


def test_an_array_of_objects_cannot_get_longer():
    grid, at = np.empty(2_000, dtype=object), iter(range(10_000))

    def fill():
        grid[next(at) % 2_000] = Record()

    report = check(fill, grid=grid)
    assert report.verdict.outcome is Outcome.BOUNDED
    assert "numpy.ndarray(size=2000)" in report.record.bounded[0].reason


def test_a_thread_that_waits_is_one_leak_with_what_c_code_keeps_for_it():
    stop, kept = threading.Event(), []

    def start():
        kept.append(threading.Thread(target=stop.wait, daemon=True))
        kept[-1].start()

    try:
        leak = the_leak(check(start, kept=kept, stop=stop))
    finally:
        stop.set()
        for thread in kept:
            thread.join()
    assert (leak.holder, leak.what) == ("kept", "threading.Thread")


def test_threads_that_nobody_keeps_are_counted_as_threads_each_in_a_place_of_its_own():
    stop = threading.Event()
    started = []

    class Worker:
        def __init__(self):
            self.pause = threading.Condition()
            threading.Thread(target=self.loop, daemon=True).start()

        def loop(self):
            started.append(threading.get_ident())
            while not stop.is_set():
                with self.pause:
                    self.pause.wait(0.2)

    try:
        leak = the_leak(check(Worker))
        assert leak.what == "threading.Thread"
        assert leak.count_per_run == pytest.approx(1)
        assert leak.n_places <= len(started)
    finally:
        stop.set()


def test_a_text_stream_is_one_leak_with_its_text():
    kept = []

    def write():
        stream = io.StringIO()
        stream.write("x" * 50_000)
        kept.append(stream)

    leak = the_leak(check(write, kept=kept))
    assert leak.holder == "kept"
    assert 50_000 <= leak.bytes_per_run < 51_000


def test_handlers_of_the_root_logger_are_a_leak_although_they_are_small_and_in_a_librarys_list():
    before = list(logging.root.handlers)
    try:
        leak = the_leak(check(lambda: logging.getLogger().addHandler(logging.StreamHandler(io.StringIO()))))
    finally:
        logging.root.handlers[:] = before
    assert leak.holder == "logging.root.handlers"


def test_loggers_with_a_new_name_in_every_run_are_a_leak():
    names = (f"leaklab.test.run{number}" for number in range(10_000))
    leak = the_leak(check(lambda: logging.getLogger(next(names))))
    assert leak.holder.endswith(".manager.loggerDict")
    assert leak.what == "logging.Logger"


def test_a_full_cache_whose_entries_get_larger_explains_the_memory_that_it_takes():
    @functools.lru_cache(maxsize=16)
    def grid(size):
        return torch.ones(size, size)

    sizes = itertools.count(50, 4)
    report = check(lambda: grid(next(sizes)).sum(), runs=60, grid=grid)
    assert report.verdict.outcome is Outcome.BOUNDED, str(report)
    assert not report.leaks


def test_finalizers_of_objects_that_a_list_keeps_are_the_lists():
    kept = []

    def keep():
        record = Record()
        record.finalizer = weakref.finalize(record, print, "gone", "x" * 200)
        record.finalizer.atexit = False
        kept.append(record)

    leak = the_leak(check(keep, kept=kept))
    assert leak.holder == "kept"
    assert leak.what.endswith("Record")


def test_an_object_that_its_own_finalizer_keeps_is_a_leak_of_the_registry():
    def leave():
        record = Record()
        weakref.finalize(record, record.__repr__).atexit = False

    leak = the_leak(check(leave))
    assert leak.what.endswith("Record") or "Record" in str(leak.others), leak
    assert "finalize" in f"{leak.path}"


class Net:
    """Some hundred objects, two megabytes."""

    def __init__(self):
        self.parts = [torch.randn(5_000) for _ in range(100)]

    @functools.lru_cache(maxsize=32)  # noqa: B019 - the leak
    def anchors(self, size):
        return torch.ones(size)


def test_a_cache_that_keeps_whole_objects_is_judged_by_what_it_would_hold():
    """One entry for each object, not one for each tensor in it: 32 of these are 64 MB."""
    report = check(lambda: Net().anchors(4), runs=8)
    Net.anchors.cache_clear()
    assert report.verdict.outcome is Outcome.LEAK, report.verdict
    assert "lru_cache(maxsize=32), would keep 6" in report.leaks[0].reason


CACHING = """\
import functools
class Model:
    def __init__(self):
        self.weights = bytearray(60_000)
    @functools.lru_cache(maxsize=32)
    def anchors(self, size):
        return [size]
def use():
    Model().anchors(4)
"""
RECENT = """\
import collections
recent = collections.deque(maxlen=32)
def use():
    recent.append(str(len(recent)) * 9_000)
"""


@pytest.mark.parametrize(
    ("text", "limit"), [(CACHING, "lru_cache(maxsize=32)"), (RECENT, "collections.deque(maxlen=32)")]
)
def test_what_fills_up_in_a_library_is_not_called_clean(tmp_path, monkeypatch, text, limit):
    """It is nobody's variable, and most of what the runs leave: that nothing piled up would be wrong."""
    package = tmp_path / "site-packages"
    package.mkdir()
    (package / "filling_up.py").write_text(text)
    monkeypatch.syspath_prepend(str(package))
    module = importlib.import_module("filling_up")
    report = check(module.use, runs=8)
    del sys.modules["filling_up"]
    assert report.verdict.outcome is Outcome.BOUNDED, report.verdict
    assert limit in str(report)


@pytest.mark.parametrize("runs", [8, 24, 120])
def test_what_waits_to_be_written_to_a_file_is_no_leak(tmp_path, runs):
    """A text file has a list of what was written since the last flush, which no variable names."""
    with (tmp_path / "words.txt").open("w", encoding="utf-8") as file:
        report = check(lambda: file.write(f"word {id(object())} "), runs=runs)
    assert report.verdict.outcome in (Outcome.CLEAN, Outcome.BOUNDED), report.verdict


def test_a_table_of_lines_beside_a_file_is_a_leak(tmp_path):
    lines = []
    with (tmp_path / "words.txt").open("w", encoding="utf-8") as file:

        def write():
            lines.append(bytearray(300))
            file.write("word ")

        report = check(write, runs=24)
    assert the_leak(report).holder.startswith("lines in "), report


def rows():
    block = torch.zeros(50_000)
    for number in range(100):
        yield block[number : number + 5].clone()


def three_letters():
    for number in range(5):
        yield [bytes([number] * 50) for _ in range(10)]


@pytest.mark.parametrize(
    ("make", "n_bytes"),
    [
        (lambda: enumerate(rows()), 200_000),
        (lambda: [torch.zeros(5_000) for _ in range(20)], 400_000),
        (lambda: zip(map(str, range(100)), rows(), strict=False), 200_000),
        (lambda: (inner for outer in three_letters() for inner in outer), 100),
    ],
    ids=["enumerated generator", "list", "zip", "loop in a loop"],
)
def test_what_the_loop_of_a_thread_goes_through_is_part_of_the_thread(make, n_bytes):
    queues: list[queue.Queue[object]] = []

    def epoch() -> None:
        batches: queue.Queue[object] = queue.Queue(maxsize=2)
        queues.append(batches)

        def fill() -> None:
            for item in make():
                batches.put(item)

        threading.Thread(target=fill, daemon=True).start()
        assert [batches.get() for _ in range(3)]
        while not batches.not_full._waiters:  # the thread waits in its loop, and no longer in what it goes through
            time.sleep(0.001)
        queues.clear()

    leak = the_leak(check(epoch, runs=8))
    assert leak.holder.startswith("a frame in thread 'Thread-")
    assert n_bytes <= leak.bytes_per_run < 1.1 * n_bytes + 12_000


def test_a_generator_that_c_code_keeps_is_a_leak_beside_threads_in_loops():
    def epoch() -> None:
        batches: queue.Queue[int] = queue.Queue(maxsize=2)

        def fill() -> None:
            for number in range(10):
                batches.put(number)

        threading.Thread(target=fill, daemon=True).start()
        batches.get()
        while not batches.not_full._waiters:
            time.sleep(0.001)
        kept = rows()
        next(kept)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))

    report = check(epoch, runs=8)
    assert sorted(leak.path.root[:6] for leak in report.leaks) == ["held b", "thread"]

"""Tell within a few runs, and by counting alone, that a test leaves nothing behind.

Nothing is imported for it that a suite does not have: what a library brings along may change what later tests see.
"""

from __future__ import annotations

import gc
import math
import time
from array import array
from collections.abc import Callable

from leaklab.measure.cheap_counts import count_children, count_descriptors, native_heap_bytes, python_blocks
from leaklab.runtime.gc_control import collect_quietly, user_has_frozen, user_lets_collect
from leaklab.testing.bounded_caches import BoundedCaches

_BATCHES = (3, 3, 6, 12, 24, 48, 96, 192, 192)
"""Runs between two counts. What leaks in every third run grows in the first batch already."""
_QUICK_SECONDS, _MOST_QUICK_RUNS = 0.03, 9
"""A short batch has more runs while they take no longer: what leaks in half of the runs, at random, shows."""
_CLEAR = 3
"""So many batches may tell that a test leaks: further ones are for what becomes less, and for what is small.
No further one is made where each run leaves a child process: hundreds of them would fill the machine."""
_CHEAP_SECONDS = 1.0
"""A batch that takes less is made in any case: a whole check takes ten times as long to tell a cache from a leak."""
_MOST_DEAR = 6
"""So many batches are made where they take longer."""
_LAST = len(_BATCHES) - 1
"""The last batch is for a cache that was full in the midst of the one before: what grows on needs no more."""
_STEADY = 0.8
"""What grows by at least this share of what it grew by in the batch before does not come to an end."""
_FEW_RUNS = 12
_BATCHES_TO_SETTLE = 2
"""After a look at the caches the second batch may tell that nothing grows."""
_BLOCK_BYTES = 128
"""A block of Python's memory has no more, but for few."""
_OBJECTS, _BLOCKS, _NATIVE, _DESCRIPTORS, _CHILDREN = range(5)
_NOISE = {_OBJECTS: 0.1, _BLOCKS: 0.25, _NATIVE: 1024.0, _DESCRIPTORS: 0.1, _CHILDREN: 0.1}
"""So much per run is nothing in a batch of many runs: tables of the interpreter fill up slowly."""
_CLEARLY = {_OBJECTS: 1 / 3, _BLOCKS: 4.0, _NATIVE: 8192.0, _DESCRIPTORS: 1 / 3, _CHILDREN: 1 / 3}
"""So much per run is a leak, if it is steady."""


def leaves_something(run: Callable[[], object], seconds: float = math.inf, caches: BoundedCaches | None = None) -> bool:
    """Run in growing batches; return False as soon as nothing has grown in one of them.

    What is counted: the objects that the collector lists, blocks of Python's memory (they show arrays of numpy, numbers
    and texts), bytes of malloc, open file descriptors, child processes.

    Args:
        run: Called without arguments.
        seconds: No batch begins that would probably take longer. What grows until then counts as left.
        caches: Finds those that *run* fills, and shall empty; None where they must stay as they are.
    """
    collects = user_lets_collect()
    end = time.perf_counter() + seconds
    froze_before = user_has_frozen()
    if not froze_before:
        # Older garbage is frozen with all else: to collect it would take longer than the runs of most tests.
        gc.freeze()
    try:
        return _grows(run, collects=collects, end=end, caches=None if froze_before else caches)
    finally:
        if not froze_before:
            gc.unfreeze()


def _grows(run: Callable[[], object], *, collects: bool, end: float, caches: BoundedCaches | None) -> bool:
    # Made beforehand, and without objects of their own: these would be counted.
    levels, before, rates = (array("d", bytes(8 * len(_NOISE))) for _ in range(3))
    took = array("d", [0.0])
    is_clear = leaves_children = False
    unsettled = 0
    batches = enumerate(_BATCHES)
    _read(levels, 0, collects=collects)  # what reading makes for the first time stays
    run()
    frozen = gc.get_freeze_count()  # it walks through them all, as often as it is asked
    _read(levels, frozen, collects=collects)
    for number, most in batches:
        n_runs = min(most, _FEW_RUNS) if unsettled else most
        is_cheap = n_runs * took[0] < _CHEAP_SECONDS
        is_enough = number >= _MOST_DEAR or (number >= _CLEAR and is_clear)
        if (
            (is_enough and not is_cheap)
            or leaves_children
            or (number == _LAST and is_clear)
            or time.perf_counter() + n_runs * took[0] > end
        ):
            return True
        before[:] = levels
        done = _run_batch(run, n_runs, _QUICK_SECONDS, took)
        _read(levels, frozen, collects=collects)
        rises = any(_rises(count, levels, before, done) for count in _NOISE)
        if rises:
            levels[_OBJECTS] -= frozen
            frozen = gc.get_freeze_count()
            levels[_OBJECTS] += frozen  # what takes the place of an old object is no more than that one
            rises = any(_rises(count, levels, before, done) for count in _NOISE)
        unsettled = max(unsettled - 1, 0)
        if not rises and unsettled:  # what was let go of since the caches were looked at may hide as much that stays
            continue
        if not rises:
            return False
        is_clear = any(_rises_clearly(count, levels, before, done, rates) for count in _NOISE)
        leaves_children = number + 1 >= _CLEAR and _rises_clearly(_CHILDREN, levels, before, done, rates)
        for count in _NOISE:
            rates[count] = (levels[count] - before[count]) / done
        if caches is not None and number in {_CLEAR - 1, _CLEAR}:
            if number < _CLEAR:
                caches.look()
            elif caches.look_again(done, _bytes_between(before, levels)):
                is_clear = False
            unsettled = _BATCHES_TO_SETTLE
            run()
            frozen = gc.get_freeze_count()
            _read(levels, frozen, collects=collects)
    return True


def _bytes_between(before: array[float], levels: array[float]) -> float:
    blocks, native = (max(levels[count] - before[count], 0.0) for count in (_BLOCKS, _NATIVE))
    return blocks * _BLOCK_BYTES + native


def _run_batch(run: Callable[[], object], least: int, quick_seconds: float, took: array[float]) -> int:
    """Run *least* times, or more while that is quick; return how often, and put into *took* what a run takes."""
    started = time.perf_counter()
    done = 0
    while done < least or (done < _MOST_QUICK_RUNS and time.perf_counter() - started < quick_seconds):
        run()
        done += 1
    took[0] = (time.perf_counter() - started) / done
    return done


def _rises(count: int, levels: array[float], before: array[float], n_runs: int) -> bool:
    noise = _NOISE[count] if n_runs >= _FEW_RUNS or count == _NATIVE else 0.0
    return levels[count] - before[count] > noise * n_runs


def _rises_clearly(count: int, levels: array[float], before: array[float], n_runs: int, rates: array[float]) -> bool:
    rate = (levels[count] - before[count]) / n_runs
    return rate >= _CLEARLY[count] and rate >= _STEADY * rates[count] > 0.0


def _read(levels: array[float], frozen: int, *, collects: bool) -> None:
    if collects:
        collect_quietly()
    levels[_OBJECTS] = len(gc.get_objects()) + frozen
    levels[_BLOCKS] = python_blocks()
    levels[_NATIVE] = native_heap_bytes() or 0
    levels[_DESCRIPTORS] = count_descriptors()
    levels[_CHILDREN] = count_children()

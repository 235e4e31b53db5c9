"""Tell within milliseconds whether a test leaves objects behind: what does not needs no whole check."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from itertools import pairwise

from leaklab.collect.census import DisturbedError
from leaklab.collect.measurement import Cohorts, choose_baseline
from leaklab.runtime.gc_control import collect_quietly, user_has_frozen, user_lets_collect

_N_WARMUPS, _N_RUNS = 2, 4


def leaves_something(run: Callable[[], object]) -> bool:
    """Run a few times; return whether each of the last but one left objects that live at the end.

    True also where that cannot be told, as where the test freezes the collector's objects, and where each run leaves
    more blocks of Python's memory in use: arrays of numpy, numbers and texts are not listed by the collector.
    """
    collects = user_lets_collect()
    taker = choose_baseline(user_froze=user_has_frozen(), cell_freezes=False, collects=collects)
    cohorts = Cohorts(_N_WARMUPS + _N_RUNS)
    cohorts.start_phase()
    # Older garbage is frozen with all else: to collect it would take longer than the runs of most tests.
    taker.begin()
    try:
        for _ in range(_N_WARMUPS + _N_RUNS):
            taker.mark()
            run()
            census = taker.take()
            cohorts.add(census)
        cohorts.keep_alive_ones(census.addresses, census.kinds)
        return all(cohorts.sizes()[_N_WARMUPS:-1]) or _takes_blocks(run, collects=collects)
    except DisturbedError:
        return True
    finally:
        taker.end()


def _takes_blocks(run: Callable[[], object], *, collects: bool) -> bool:
    """Run a few times more; return whether each run leaves more blocks of Python's memory in use."""
    levels = array("q", bytes(8 * (_N_RUNS + 1)))  # made beforehand: a list would take blocks of its own
    for number in range(_N_RUNS + 1):
        if number:
            run()
        if collects:
            collect_quietly()
        levels[number] = sys.getallocatedblocks()
    return all(after > before for before, after in pairwise(levels))

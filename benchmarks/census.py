"""Measure what counting costs: the census of one run on heaps of three sizes, and the passes over the whole heap.

Usage: ``python benchmarks/census.py``. Prints one line per requirement, with its bar and ``ok`` or ``MISSED``; the exit
status is the number of bars missed. Everything is process CPU time: wall time on a shared machine says nothing. What
is compared is measured in turns, and the median of the turns is shown.
"""

from __future__ import annotations

import gc
import io
import statistics
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import objgraph
from heap_index import fill
from measuring import Bars, cpu_seconds

from leaklab.heap.index import build_index
from leaklab.measure.census import FrozenCensus
from leaklab.measure.checkpoint import container_lengths, take_checkpoint
from leaklab.measure.measurement import Measurement
from leaklab.runtime.addresses import KindTable, addresses_of, kinds_of
from leaklab.runtime.gc_control import gc_paused

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_RATIO_OF_HEAPS = 1.5
"""Counting one run must cost the same on every heap; the rest is caches of the processor."""
MIN_TIMES_CHEAPER = 100
MAX_CONTAINER_PASS = 0.8
MAX_INDEX = 3.0

_N_PHASES, _N_RUNS = 6, 16
_N_KEPT = 50  # objects that every run of the benchmark leaves behind


def seconds_per_run() -> float:
    """Return the median cost of counting one run: mark, take, cohort, meters. Phases are as long as in a check."""
    measurement = Measurement(_N_PHASES * _N_RUNS, FrozenCensus(collects=True), collects=True, frozen_too=False)
    kept: list[list[list[int]]] = []
    costs = []
    for _ in range(_N_PHASES):
        measurement.open_phase()
        for _ in range(_N_RUNS):
            marking = cpu_seconds(measurement.start_run)
            kept.append([[] for _ in range(_N_KEPT)])
            costs.append(marking + cpu_seconds(lambda: measurement.finish_run(0.0)))
        measurement.close_phase()
    assert min(measurement.cohorts.sizes()) >= _N_KEPT, "the census did not see what the runs made"
    return statistics.median(costs)


def naive_census() -> Counter[type]:
    """Count the heap by type, without any tool."""
    gc.collect()
    return Counter(map(type, gc.get_objects()))


def objgraph_growth() -> None:
    """Ask objgraph what grew since the last call."""
    objgraph.growth()


def medians(n_turns: int, *functions: Callable[[], float]) -> list[float]:
    """Return the median of each function's figure; they are called in turns."""
    turns = [[function() for function in functions] for _ in range(n_turns)]
    return [statistics.median(column) for column in zip(*turns, strict=True)]


def whole_heap(work: Callable[[list[object]], object]) -> float:
    """Return the cost of *work* on the list of all objects; making and emptying the list is not timed."""
    with gc_paused():
        objects = gc.get_objects()
        try:
            return cpu_seconds(lambda: work(objects))
        finally:
            objects.clear()


def container_pass(objects: list[object]) -> object:
    """Measure all containers, the addresses and types that this needs included."""
    return container_lengths(objects, addresses_of(objects), KindTable(kinds_of(objects)))


def compare_heaps(bars: Bars, records: list[Any]) -> float:
    """Fill the heap step by step; return what counting one run costs on the heap with 1 million more objects."""
    bare = seconds_per_run()
    print(f"counting one run of {_N_KEPT} new objects, bare heap of {len(gc.get_objects()):,}: {bare * 1e6:,.0f} us")
    records.append(fill(1))
    million = compare_heap(bars, bare, "1 million")
    compare_with_others(bars, million)
    compare_passes(bars)
    records.append(fill(2))
    compare_heap(bars, bare, "3 million")
    return million


def compare_heap(bars: Bars, bare: float, name: str) -> float:
    """Print what counting one run costs now, beside the *bare* heap."""
    seconds = seconds_per_run()
    print(f"with {name} more objects ({len(gc.get_objects()):,}): {seconds * 1e6:,.0f} us")
    bars.at_most(f"times the cost on the bare heap, {name} more", seconds / bare, MAX_RATIO_OF_HEAPS)
    return seconds


def compare_with_others(bars: Bars, ours: float) -> None:
    """Print what the same question costs when the whole heap is counted."""
    objgraph_growth()
    growth, naive = medians(5, lambda: cpu_seconds(objgraph_growth), lambda: cpu_seconds(naive_census))
    print(f"what grew since the last run: objgraph.growth {growth:.3f} s, Counter of get_objects {naive:.3f} s")
    bars.at_least("objgraph.growth() / leaklab's count of a run", growth / ours, MIN_TIMES_CHEAPER)
    bars.at_least("collect + Counter(get_objects()) / leaklab's count of a run", naive / ours, MIN_TIMES_CHEAPER)


def compare_passes(bars: Bars) -> None:
    """Print what the passes over the whole heap cost, beside a collection."""
    collect, containers, checkpoint, index = medians(
        7,
        lambda: cpu_seconds(gc.collect),
        lambda: whole_heap(container_pass),
        lambda: whole_heap(lambda objects: take_checkpoint(1, objects)),
        lambda: whole_heap(build_index),
    )
    print(
        f"passes over the whole heap: gc.collect {collect:.3f} s, containers {containers:.3f} s, "
        f"checkpoint {checkpoint:.3f} s, index {index:.3f} s"
    )
    bars.at_most("addresses + types + container lengths / gc.collect", containers / collect, MAX_CONTAINER_PASS)
    bars.at_most("build_index / gc.collect", index / collect, MAX_INDEX)
    print(f"  for information: a whole checkpoint / gc.collect {checkpoint / collect:.2f}")


def main() -> int:
    """Run all comparisons; return how many bars were missed."""
    bars = Bars()
    records: list[Any] = [io.StringIO(), np.zeros(1)]
    compare_heaps(bars, records)
    print("all bars hold" if not bars.n_missed else f"{bars.n_missed} MISSED")
    return bars.n_missed


if __name__ == "__main__":
    sys.exit(main())

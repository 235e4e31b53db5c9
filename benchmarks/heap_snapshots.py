"""Measure what a heap snapshot costs, beside objgraph's growth, pympler's summary and tracemalloc.

Usage: ``python benchmarks/heap_snapshots.py``. Fills the heap with 1,000,000 objects and prints one line per measure,
all of them in one run and in turns; the exit status is the number of bars missed. Everything is process CPU time,
because wall time on a shared machine says nothing. pympler is measured if it is installed.
"""

from __future__ import annotations

import gc
import importlib.util
import statistics
import sys
import tracemalloc
from typing import TYPE_CHECKING

import objgraph
from heap_index import fill
from measuring import cpu_seconds

from leaklab.ask.heap_diff import Stretch, compare_now
from leaklab.measure.heap_snapshot import notebook_context
from leaklab.measure.snapshot_sizes import take_totals

if TYPE_CHECKING:
    from collections.abc import Callable

N_OBJECTS = 1_000_000
_N_TURNS = 3
MAX_TIMES_COLLECT = 6.0
"""A snapshot begins with a full collection; everything else may cost five times as much again."""
MAX_TIMES_GROWTH = 4.0
MAX_BYTES_PER_OBJECT = 32.0


def one_stretch() -> None:
    """Do what ``%%memdiff`` does around a cell that makes one list."""
    made: list[list[int]] = []
    stretch = Stretch(notebook_context({"made": made}))
    stretch.start("before")
    made.append([1])
    stretch.finish("after")


def main() -> int:
    """Measure, print, and return how many bars were missed."""
    heap = fill(N_OBJECTS / 1_000_000)
    around = notebook_context({})
    peaks: dict[str, int] = {}
    jobs: dict[str, Callable[[], object]] = {
        "gc.collect()": gc.collect,
        "heap snapshot": lambda: around.take("m"),
        "totals of %leakwatch": lambda: take_totals(()),
        "%%memdiff over one cell": one_stretch,
        "objgraph.growth()": lambda: objgraph.growth(limit=10, peak_stats=peaks),
    }
    if importlib.util.find_spec("pympler") is not None:
        from pympler import muppy, summary

        jobs["pympler summary"] = lambda: summary.summarize(muppy.get_objects())
    first, second = around.take("a"), around.take("b")
    jobs["comparison without holders"] = lambda: compare_now(first, second, around)
    turns: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(_N_TURNS):
        for name, job in jobs.items():
            turns[name].append(cpu_seconds(job))
    medians = {name: statistics.median(costs) for name, costs in turns.items()}
    print(f"heap: {len(gc.get_objects()):,} objects, of which {first.n_objects:,} are in a snapshot")
    for name, seconds in medians.items():
        print(f"{name:28} {seconds * 1e3:9.1f} ms   {seconds / medians['gc.collect()']:6.2f} x gc.collect()")
    print(f"{'tracemalloc':28} {traced_ratio():9.2f} x the time of a loop that makes small lists, while it runs")
    bars = (
        ("snapshot / gc.collect()", medians["heap snapshot"] / medians["gc.collect()"], MAX_TIMES_COLLECT),
        ("snapshot / objgraph.growth()", medians["heap snapshot"] / medians["objgraph.growth()"], MAX_TIMES_GROWTH),
        ("bytes kept per object", first.n_bytes / first.n_objects, MAX_BYTES_PER_OBJECT),
    )
    for name, value, bar in bars:
        print(f"{name:28} {value:9.2f}      at most {bar:g}: {'ok' if value <= bar else 'MISSED'}")
    del heap
    return sum(value > bar for _name, value, bar in bars)


def traced_ratio() -> float:
    """Return how much longer code that makes objects takes under tracemalloc; a heap snapshot does not slow it."""

    def work() -> list[list[int]]:
        return [[number] for number in range(200_000)]

    plain = statistics.median(cpu_seconds(work) for _ in range(_N_TURNS))
    tracemalloc.start()
    try:
        traced = statistics.median(cpu_seconds(work) for _ in range(_N_TURNS))
    finally:
        tracemalloc.stop()
    return traced / plain


if __name__ == "__main__":
    sys.exit(main())

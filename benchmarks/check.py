"""Measure what a whole check of a trivial cell costs, on heaps of three sizes, in units of one ``gc.collect()``.

Usage: ``python benchmarks/check.py [--large]``; ``--large`` adds a heap of ten million objects, which takes 3 GB and
some minutes. Prints one line per requirement, with its bar and ``ok`` or ``MISSED``; the exit status is the number of
bars missed. Everything is process CPU time of one process whose heap gets larger.
"""

from __future__ import annotations

import contextlib
import gc
import io
import statistics
import sys
from typing import TYPE_CHECKING

import objgraph
import psutil
import torch
from heap_index import fill
from measuring import Bars, cpu_seconds

import leaklab

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_CLEAN, MAX_LEAKING = 8.0, 14.0
MAX_MEGABYTES = 150.0
"""Of resident memory for every million objects, beyond what the process had before its first check."""
MIN_RUNS = 100

_KEPT: list[torch.Tensor] = []


def clean() -> None:
    """Leave nothing behind."""
    [1].copy()


def leaking() -> None:
    """Leave a tensor behind."""
    _KEPT.append(torch.zeros(4))


def growth_twice() -> None:
    """Ask objgraph what grew, before and after a run of the cell."""
    with contextlib.redirect_stdout(io.StringIO()):
        objgraph.show_growth()
        clean()
        objgraph.show_growth()


def measure(bars: Bars) -> None:
    """Print the figures for the heap as it is now."""
    gc.collect()
    n_millions = len(gc.get_objects()) / 1e6
    unit = statistics.median(cpu_seconds(gc.collect) for _ in range(5))
    print(f"{n_millions:.1f} million objects; one gc.collect() takes {unit * 1000:.0f} ms")
    before = psutil.Process().memory_info().rss
    runs: list[int] = []

    def check(cell: Callable[[], object], *, sites: bool, cure: bool = False) -> float:
        _KEPT.clear()
        return cpu_seconds(lambda: runs.append(len(leaklab.leakcheck(cell, sites=sites, cure=cure).runs))) / unit

    cost_of_clean = statistics.median(check(clean, sites=False) for _ in range(3))
    cost_of_leaking = statistics.median(check(leaking, sites=True) for _ in range(3))
    bars.at_most("a clean check, in gc.collect()", cost_of_clean, MAX_CLEAN)
    bars.at_most("a leaking check with its lines", cost_of_leaking, MAX_LEAKING)
    print(f"  the same with trials of its cures: {check(leaking, sites=True, cure=True):.1f}")
    bars.at_least("runs of the clean check", runs[0], MIN_RUNS)
    megabytes = (psutil.Process().memory_info().rss - before) / 1e6 / n_millions
    bars.at_most("MB of resident memory per million objects", megabytes, MAX_MEGABYTES)
    print(f"  objgraph.show_growth() twice: {cpu_seconds(growth_twice) / unit:.1f}")


def main() -> int:
    """Measure heaps of 0.2, 1.2 and with ``--large`` 10 million objects; return how many bars were missed."""
    bars, extra = Bars(), []
    leaklab.leakcheck(clean, sites=False)
    leaklab.leakcheck(leaking)
    for n_millions in (0.0, 1.0, *([9.0] if "--large" in sys.argv[1:] else [])):
        extra.append(fill(n_millions))
        measure(bars)
    return bars.n_missed


if __name__ == "__main__":
    sys.exit(main())

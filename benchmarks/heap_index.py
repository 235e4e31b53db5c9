"""Measure what the graph of the heap costs, beside one ``gc.collect()`` of the same process.

Usage: ``python benchmarks/heap_index.py [MILLIONS ...]``, by default ``0 1``: objects added to the bare heap. Each size
has a process of its own. Prints medians of CPU seconds and the highest memory beyond what the process had before.
"""

from __future__ import annotations

import ctypes
import gc
import random
import resource
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import psutil
import torch

from leaklab.heap.hidden_references import hidden_edges
from leaklab.heap.index import ReferencePass
from leaklab.heap.roots import find_roots
from leaklab.heap.shortest_paths import search

if TYPE_CHECKING:
    from collections.abc import Callable

REPEATS = 5
PARTS = ("gc.collect", "table", "pass", "finish", "reverse", "roots", "search")


class Record:
    """An instance with a list, and a dict that holds a list."""

    def __init__(self, number: int, earlier: list[Record]) -> None:
        inner = [float(number)]
        self.values = [inner]
        self.fields = {"number": number, "pair": [number, inner]}
        if earlier and random.random() < 0.3:  # noqa: S311 - a heap, not a secret
            self.back = random.choice(earlier)  # noqa: S311
        self.slotted = Slotted(self, inner) if number % 2 else None


class Slotted:
    """Holds its two referents in slots."""

    __slots__ = ("inner", "record")

    def __init__(self, record: Record, inner: list[float]) -> None:
        self.record = record
        self.inner = inner


def fill(millions: float) -> list[Record]:
    """Make about that many million tracked objects: five or six per record."""
    random.seed(7)
    records: list[Record] = []
    for number in range(int(millions * 1_000_000 / 5.5)):
        records.append(Record(number, records))
    return records


def timed(seconds: dict[str, list[float]], part: str, function: Callable[[], Any]) -> Any:
    """Return what *function* returns, its CPU seconds noted under *part*."""
    start = time.process_time()
    result = function()
    seconds[part].append(time.process_time() - start)
    return result


def once(namespace: dict[str, Any], seconds: dict[str, list[float]]) -> tuple[int, int]:
    """Do the whole job once; return the number of objects and of references."""
    timed(seconds, "gc.collect", gc.collect)
    objects = gc.get_objects()
    references = timed(seconds, "table", lambda: ReferencePass(objects))
    found = timed(seconds, "pass", lambda: hidden_edges(objects, references))
    index = timed(seconds, "finish", lambda: references.finish(found.extra_objects, found.edges))
    timed(seconds, "reverse", lambda: index.reverse)
    roots = timed(seconds, "roots", lambda: find_roots(namespace))
    starts = [(int(index.vertex_of(root.address)), root.rank) for root in roots]
    price = np.full(index.n_vertices, 2)
    timed(seconds, "search", lambda: search(index, starts, vertex_cost=price))
    objects.clear()
    return index.n_vertices, index.n_edges


def measure(millions: float) -> None:
    """Print one line of the table."""
    namespace = {"records": fill(millions), "frame": pd.DataFrame({"a": [1.0]}), "weight": torch.ones(2)}
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before_bytes = psutil.Process().memory_info().rss
    with open("/proc/self/clear_refs", "w") as switch:  # noqa: PTH123 - sets the highest mark back to now
        switch.write("5")
    seconds: dict[str, list[float]] = {part: [] for part in PARTS}
    for _ in range(REPEATS):
        n_objects, n_references = once(namespace, seconds)
    peak_mb = (resource_peak_bytes() - before_bytes) / 1e6
    medians = {part: statistics.median(values) for part, values in seconds.items()}
    built = medians["table"] + medians["pass"] + medians["finish"]
    ratio = built / medians["gc.collect"]
    print(
        f"{n_objects / 1e6:6.2f} M {n_references / 1e6:6.2f} M",
        *(f"{medians[part]:10.3f}" for part in PARTS),
        f"{ratio:6.2f} {peak_mb:7.0f} {peak_mb / n_objects * 1e6:9.0f}",
    )


def resource_peak_bytes() -> int:
    """Return the highest resident set since the mark was set back."""
    with open("/proc/self/status") as status:  # noqa: PTH123
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Measure every size in a process of its own."""
    if sys.argv[1:2] == ["--one"]:
        measure(float(sys.argv[2]))
        return
    print(" objects   edges  ", *(f"{part:>10}" for part in PARTS), " ratio      MB  MB per M", flush=True)
    for millions in sys.argv[1:] or ["0", "1"]:
        subprocess.run([sys.executable, __file__, "--one", millions], check=True)


if __name__ == "__main__":
    main()

"""Measure what explaining costs: paths, dominators, retained sizes; beside objgraph, guppy3 and ``gc.collect()``.

Usage: ``python benchmarks/explain.py [--five-million] [--without-guppy]``. Makes a heap of 1 million extra objects and
asks three questions of it: who holds one tensor 6 references deep, who holds 20 leaked tensors, who holds one behind
a list of 2,000 dicts. Prints one line per requirement, with its bar and ``ok`` or ``MISSED``; the exit status is the
number of bars missed. Everything is process CPU time, compared within this process. objgraph takes most of the minutes.

``--five-million`` asks leaklab the same questions of a heap of 5 million extra objects, in a process of its own, and
prints the figures.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import io
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

import numpy as np
import objgraph
import psutil
import torch
from heap_index import fill, resource_peak_bytes
from measuring import Bars, cpu_seconds

from leaklab.explain.alive.retained import retained, retained_sizes
from leaklab.explain.alive.smallest_cut import freed_without, independent_paths, smallest_cut
from leaklab.heap.borrow import heap_view, view_for_path
from leaklab.heap.hidden_references import hidden_edges
from leaklab.heap.index import ReferencePass
from leaklab.heap.view import Births, HeapView

if TYPE_CHECKING:
    from collections.abc import Iterator

MIN_TIMES_ON_TWENTY = 15
MIN_TIMES_ON_FAN_IN = 30
MIN_TIMES_ON_ONE = 1.5
MAX_GRAPH, MAX_GRAPH_MB_PER_MILLION = 2.2, 200
MAX_RETAINED = 1.8

_N_LEAKED, _N_DICTS = 20, 2000
_NO_BIRTHS = np.zeros(0, np.int64)


class Trainer:
    """Holds tensors by a few references in a row."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.state = {"history": [{"step": [tensor]}]}


class Heap:
    """The questions: what is leaked in each of the three ways."""

    def __init__(self) -> None:
        self.one = [torch.ones(10)]
        self.twenty = [torch.ones(10) for _ in range(_N_LEAKED)]
        self.behind = [torch.ones(10)]


@contextmanager
def whole_view(variables: dict[str, Any]) -> Iterator[HeapView]:
    """Borrow the heap of this process, as a check does."""
    objects = gc.get_objects()
    births = Births(_NO_BIRTHS, _NO_BIRTHS, 1)
    try:
        with heap_view(objects, births, variables, [objects]) as view:
            yield view
    finally:
        objects.clear()


def explain(variables: dict[str, Any], targets: list[torch.Tensor]) -> list[str]:
    """Let leaklab find the path to each of *targets*."""
    if len(targets) == 1:
        return [explain_one(variables, id(targets[0]))]
    addresses = [id(target) for target in targets]
    with whole_view(variables) as view:
        return [str(view.describe(view.index.vertex_of(address)).path) for address in addresses]


def explain_one(variables: dict[str, Any], address: int) -> str:
    """Find the path to the one object at *address*, as ``%whyalive --path`` does."""
    objects = gc.get_objects()
    try:
        with view_for_path(objects, address, variables, [objects]) as view:
            return str(view.describe(view.index.vertex_of(address)).path)
    finally:
        objects.clear()


def explain_fully(variables: dict[str, Any], targets: list[torch.Tensor]) -> tuple[int, int, int]:
    """Let leaklab find all independent paths, the smallest cut, what it frees, and the retained bytes."""
    addresses = [id(target) for target in targets]
    with whole_view(variables) as view:
        n_paths = n_bytes = n_freed = 0
        for address in addresses:
            vertex = view.index.vertex_of(address)
            view.describe(vertex)
            n_paths += len(independent_paths(view, vertex))
            n_freed += len(freed_without(view, smallest_cut(view, [vertex]).references))
            n_bytes += retained(view, [vertex]).exclusive_bytes
    return n_paths, n_freed, n_bytes


def with_objgraph(targets: list[torch.Tensor]) -> int:
    """Let objgraph find a chain to each of *targets*; return how many it found."""
    return sum(len(objgraph.find_backref_chain(target, objgraph.is_proper_module)) > 1 for target in targets)


def with_guppy(targets: list[torch.Tensor]) -> bool:
    """Let guppy3 write the shortest paths to each of *targets*; return whether it could."""
    heapy = importlib.import_module("guppy").hpy()
    with redirect_stdout(io.StringIO()):
        for target in targets:
            print(heapy.iso(target).shpaths)
    return True


def has_guppy() -> bool:
    """Return whether guppy3 is there and wanted."""
    if "--without-guppy" in sys.argv:
        return False
    try:
        importlib.import_module("guppy")
    except ImportError:
        print("guppy3 is not installed: its column is left out (pip install guppy3)")
        return False
    return True


def compare(bars: Bars, name: str, variables: dict[str, Any], targets: list[torch.Tensor], at_least: float) -> None:
    """Print what one question costs leaklab and the others."""
    gc.collect()
    ours = statistics.median(cpu_seconds(lambda: explain(variables, targets)) for _ in range(3))
    fully = cpu_seconds(lambda: explain_fully(variables, targets))
    theirs = cpu_seconds(lambda: with_objgraph(targets))
    figures = [f"leaklab {ours:.2f} s (with cuts and retained sizes {fully:.2f} s)", f"objgraph {theirs:.2f} s"]
    if has_guppy():
        figures.append(f"guppy3 {cpu_seconds(lambda: with_guppy(targets)):.2f} s")
    print(f"{name}: {', '.join(figures)}")
    if len(targets) == 1:
        with whole_view(variables) as view:
            path = str(view.describe(view.index.vertex_of(id(targets[0]))).path)
        print(f"  {'the path is that of the whole heap' if explain(variables, targets) == [path] else 'ANOTHER PATH'}")
    bars.at_least("objgraph.find_backref_chain / leaklab", theirs / ours, at_least)


def heap_graph() -> int:
    """Build the graph of the heap, with hidden references; return the number of objects."""
    objects = gc.get_objects()
    references = ReferencePass(objects)
    found = hidden_edges(objects, references)
    index = references.finish(found.extra_objects, found.edges)
    objects.clear()
    found.edges.clear()
    found.extra_objects.clear()
    return index.n_vertices


def peak_mb_of_graph() -> float:
    """Return how far building the graph lifts the resident set at most."""
    ctypes.CDLL(None).malloc_trim(0)
    before_bytes = psutil.Process().memory_info().rss
    with open("/proc/self/clear_refs", "w") as switch:  # noqa: PTH123 - sets the highest mark back to now
        switch.write("5")
    heap_graph()
    return (resource_peak_bytes() - before_bytes) / 1e6


def graph_costs(bars: Bars | None, variables: dict[str, Any]) -> None:
    """Print what the graph of the heap costs, beside one collection, and what all retained sizes cost on top of it."""
    collect, graph, view_seconds, sizes = ([] for _ in range(4))
    n_objects = heap_graph()
    per_million = peak_mb_of_graph() / n_objects * 1e6
    for _ in range(5):
        collect.append(cpu_seconds(gc.collect))
        graph.append(cpu_seconds(heap_graph))
        started = time.process_time()
        with whole_view(variables) as view:
            view_seconds.append(time.process_time() - started)
            sizes.append(cpu_seconds(lambda view=view: retained_sizes(view)))
    pause, built, sized = statistics.median(collect), statistics.median(graph), statistics.median(sizes)
    print(
        f"{n_objects:,} objects: gc.collect {pause:.3f} s, heap graph {built:.3f} s, with roots and all paths "
        f"{statistics.median(view_seconds):.3f} s, dominators and all retained sizes {sized:.3f} s"
    )
    if bars is None:
        print(
            f"  for information: graph / gc.collect {built / pause:.2f}, {per_million:.0f} MB per million objects, "
            f"retained sizes / gc.collect {sized / pause:.2f}"
        )
        return
    bars.at_most("heap graph / gc.collect", built / pause, MAX_GRAPH)
    bars.at_most("heap graph: highest MB per million objects", per_million, MAX_GRAPH_MB_PER_MILLION)
    bars.at_most("dominators and retained sizes of everything / gc.collect", sized / pause, MAX_RETAINED)


def make(millions: float) -> tuple[dict[str, Any], Heap]:
    """Fill the heap, and hang the leaked tensors into this module's variables."""
    heap = Heap()
    variables = globals()
    variables["records"] = fill(millions)
    variables["trainer"] = Trainer(heap.one[0])
    variables["trainers"] = [Trainer(tensor) for tensor in heap.twenty]
    variables["rows"] = [{"row": [number], "value": heap.behind[0]} for number in range(_N_DICTS)]
    return variables, heap


def main() -> int:
    """Run all comparisons; return how many bars were missed."""
    bars = Bars()
    millions = 5 if "--five" in sys.argv else 1
    variables, heap = make(millions)
    questions = {name: list(getattr(heap, name)) for name in ("one", "twenty", "behind")}
    del heap
    graph_costs(bars if millions == 1 else None, variables)
    if millions > 1:
        for name, targets in questions.items():
            print(f"{name}: leaklab, everything: {cpu_seconds(lambda: explain_fully(variables, targets)):.2f} s")  # noqa: B023 - called at once
        return 0
    compare(bars, "one tensor, 6 references deep", variables, questions["one"], MIN_TIMES_ON_ONE)
    compare(bars, "20 leaked tensors", variables, questions["twenty"], MIN_TIMES_ON_TWENTY)
    compare(bars, "one behind a list of 2,000 dicts", variables, questions["behind"], MIN_TIMES_ON_FAN_IN)
    if "--five-million" in sys.argv:
        print("5 million extra objects, for information:", flush=True)
        subprocess.run([sys.executable, __file__, "--five"], check=True)
    print("all bars hold" if not bars.n_missed else f"{bars.n_missed} MISSED")
    return bars.n_missed


if __name__ == "__main__":
    sys.exit(main())

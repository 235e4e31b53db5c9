"""Where the path to what a run has left leaves what has a reason to live: the entries that leaks are grouped by."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from leaklab.heap.view import HeapView

_NOWHERE = -1
_OF_TWO_RUNS = 2


def entries_of(view: HeapView, reached: npt.NDArray[np.int64]) -> dict[int, int]:
    """Return for each leaked vertex where its path leaves what has a reason to live.

    That is the first leaked object on it: whatever comes after hangs on that one. Where nodes of an autograd graph lead
    to it, it is the first of them: the nodes of one long graph are one place, not many holders.
    """
    parent, leaked, in_graph = view.tree.parent, view.leaked, view.in_graph
    entry_of: dict[int, int] = {_NOWHERE: _NOWHERE}
    graph_of: dict[int, int] = {_NOWHERE: _NOWHERE}  # the first of the nodes that lead here without interruption
    for vertex in reached.tolist():
        chain = [vertex]
        while chain[-1] not in entry_of:
            chain.append(int(parent[chain[-1]]))
        before = chain.pop()
        for place in reversed(chain):
            first = graph_of[before] if graph_of[before] >= 0 else place
            graph_of[place] = first if in_graph[place] else _NOWHERE
            entry_of[place] = first if leaked[place] else _NOWHERE
            if entry_of[before] >= 0:
                entry_of[place] = entry_of[before]
            before = place
    return _below_replaced(view, {vertex: entry_of[vertex] for vertex in reached.tolist()})


def _below_replaced(view: HeapView, entry_of: dict[int, int]) -> dict[int, int]:
    """Return *entry_of* with the entries below a variable that is replaced, where a chain hangs on its value.

    ``old = node; node = Node(old)``: what `old` has is of the run before the last, by design; the runs before hang on
    that by its own reference, and their path does not lead through `node`, which is one step further.
    """
    parent, run = view.tree.parent, view.blamed_run
    hanging: dict[int, list[int]] = defaultdict(list)
    for vertex, entry in entry_of.items():
        hanging[entry].append(vertex)
    found = dict(entry_of)
    for entry, vertices in hanging.items():
        runs = {int(run[vertex]) for vertex in vertices}
        is_variable = parent[entry] == _NOWHERE and view.starts[int(view.tree.root_of[entry])].is_variable
        if not is_variable or len(runs) <= _OF_TWO_RUNS or run[entry] != max(runs):
            continue
        below = {_next_of_another_run(view, entry, vertex) for vertex in vertices} - {_NOWHERE}
        if len(below) == 1:
            (lower,) = below
            found |= {vertex: lower for vertex in vertices if run[vertex] != run[entry]}
            for vertex in vertices:  # the next run replaces them
                if run[vertex] == run[entry]:
                    del found[vertex]
    return found


def _next_of_another_run(view: HeapView, entry: int, vertex: int) -> int:
    """Return the first leaked object below *entry* on the path to *vertex* that another run has made, -1 for none."""
    found = _NOWHERE
    while vertex != entry:
        if view.leaked[vertex] and view.blamed_run[vertex] != view.blamed_run[entry]:
            found = vertex
        vertex = int(view.tree.parent[vertex])
    return found

"""Find the tensor whose autograd graph is the longest."""

from __future__ import annotations

from collections import deque

import numpy as np

from leaklab.explain.view import HeapView

_MAX_STEPS = 500_000
"""About a second; of many long graphs those of the tensors that are easiest to reach are measured."""


def graph_size(view: HeapView, vertex: int) -> int:
    """Return how many nodes of the graph of the tensor at *vertex* the view knows."""
    seen: set[int] = set()
    queue = deque([vertex])
    while queue:
        for after in view.index.referents(queue.popleft()).tolist():
            if view.in_graph[after] and after not in seen:
                seen.add(after)
                queue.append(after)
    return len(seen)


def largest_graph(view: HeapView) -> int | None:
    """Return the reached tensor with the longest graph; among equals the one with the cheapest path."""
    best, n_steps = (0, 0, -1), 0
    for vertex in sorted(_heads(view), key=lambda vertex: int(view.tree.cost[vertex])):
        size = graph_size(view, vertex)
        best = min(best, (-size, int(view.tree.cost[vertex]), vertex))
        n_steps += size
        if n_steps > _MAX_STEPS:
            break
    return best[2] if best[0] else None


def _heads(view: HeapView) -> list[int]:
    """Return the tensors with a graph that is not part of another's: of a chain of results only the last."""
    is_inner = np.zeros(view.index.n_vertices, bool)
    for node in np.flatnonzero(view.in_graph & ~view.is_tensor).tolist():
        is_inner[view.index.referents(node)] = True
    heads = []
    for vertex in view.tensors:
        if view.is_reached(vertex) and not view.leaked[vertex]:
            parts = view.index.referents(vertex)
            parts = parts[view.in_graph[parts]]
            if len(parts) and not is_inner[parts].all():
                heads.append(vertex)
    return heads

"""Find the tensor whose autograd graph is the longest."""

from __future__ import annotations

from collections import deque

from leaklab.explain.view import HeapView


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
    candidates = []
    for vertex in view.tensors:
        if view.is_reached(vertex) and not view.leaked[vertex]:
            size = graph_size(view, vertex)
            if size:
                candidates.append((-size, int(view.tree.cost[vertex]), vertex))
    return min(candidates)[2] if candidates else None

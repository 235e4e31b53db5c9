"""Find the autograd graphs that hold an object, as what, and which tensors carry them."""

from __future__ import annotations

from collections import deque

import numpy as np

from leaklab.explain.references import name_references
from leaklab.explain.view import HeapView
from leaklab.graph_walk import is_node_type
from leaklab.model.alive import AutogradHolder
from leaklab.objects import summary, type_name

MAX_HOLDERS = 20
_MAX_STEPS = 20_000
"""Of the way from a node up to the tensor that carries its graph."""


def autograd_holders(view: HeapView, vertex: int) -> tuple[tuple[AutogradHolder, ...], int]:
    """Return the nodes that hold the object at *vertex*, with who carries their graph, and how many nodes there are."""
    nodes = [u for u in np.unique(view.index.referrers(vertex)).tolist() if is_node_type(type(view.objects[u]))]
    rows = []
    for node in nodes[:MAX_HOLDERS]:
        names = name_references(view.objects[node], view.objects[vertex])
        role = ", ".join(name.text for name in names) or "unnamed"
        carrier = _carrier(view, node)
        words, kind = ("", "") if carrier is None else _tensor_words(view, carrier, vertex)
        rows.append(AutogradHolder(type_name(type(view.objects[node])), role, words, kind))
    return tuple(rows), len(nodes)


def _carrier(view: HeapView, node: int) -> int | None:
    """Return the nearest tensor above *node* that something else than a graph holds; None if none was found."""
    seen, queue = {node}, deque([node])
    while queue and len(seen) < _MAX_STEPS:
        for above in view.index.referrers(queue.popleft()).tolist():
            if above in seen:
                continue
            seen.add(above)
            if view.is_tensor[above] and not view.in_graph[above]:
                return int(above)
            if view.in_graph[above]:
                queue.append(above)
    return None


def _tensor_words(view: HeapView, carrier: int, vertex: int) -> tuple[str, str]:
    thing = view.objects[carrier]
    kind = f"{type_name(type(thing))} {summary(thing) if view.summaries else ''}".strip()
    if carrier == vertex:
        return "the object itself", kind
    if not view.is_reached(carrier):
        return "a tensor that no variable reaches", kind
    described = view.describe(carrier)
    return described.expressions[-1] or str(described.path.steps[-1].reference), kind

"""Draw what leads to one object as nodes and references: independent paths, and all holders of the nodes opened."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from leaklab.explain.alive.alive_holders import is_reached_without
from leaklab.explain.alive.alive_paths import walk_path
from leaklab.explain.freeing.cuts import independent_paths
from leaklab.explain.references import best_reference
from leaklab.model import Status
from leaklab.model.live import LiveGraph, LiveLink, LiveNode
from leaklab.objects import summary, type_name

if TYPE_CHECKING:
    from leaklab.explain.alive.alive_paths import WalkedPath
    from leaklab.explain.view import HeapView

MAX_HOLDERS = 12
"""So many holders of an opened node are shown one by one."""
_GLOBALS = "globals()"
_VARIABLES = "notebook variable"


def live_graph(
    view: HeapView, vertex: int, *, asked: str = "", opened: Collection[int] = (), max_paths: int = 4
) -> LiveGraph:
    """Return the graph of what leads to the object at *vertex*.

    Args:
        view: The heap; what is to be ignored as a holder was left out when it was built.
        vertex: The object.
        asked: What to call it.
        opened: Addresses of nodes whose direct holders are to be shown too; those not in the graph are left alone.
        max_paths: How many independent paths to look for.
    """
    drawing = _Drawing(view, vertex)
    paths = independent_paths(view, vertex, max_paths) if view.is_reached(vertex) else []
    for path in paths:
        drawing.add_path(walk_path(view, path))
    drawing.add(vertex)
    wanted = set(opened)
    for known in [node for node in drawing.vertices if int(view.index.ids[node]) in wanted]:
        drawing.open(known)
    nodes = sorted(drawing.nodes.values(), key=lambda node: node.role != "root")
    return LiveGraph(asked, tuple(nodes), tuple(drawing.links), len(paths), tuple(view.notes))


class _Drawing:
    """Nodes and references as they are added; borrowed for the length of one look."""

    def __init__(self, view: HeapView, asked: int) -> None:
        self._view = view
        self._asked = asked
        self.nodes: dict[str, LiveNode] = {}
        self.links: dict[LiveLink, None] = {}
        self.vertices: dict[int, None] = {}

    def add_path(self, walked: WalkedPath) -> None:
        """Add the nodes and the references of one path."""
        path = walked.described.path
        before = self._root(path.root)
        steps = zip(path.steps, walked.step_vertices, walked.described.expressions, strict=True)
        for step, vertex, expression in steps:
            key = self.add(vertex, expression or "", step.status, step.note)
            self._link(before, key, step.reference)
            before = key

    def add(self, vertex: int, expression: str = "", status: Status = Status.UNKNOWN, note: str = "") -> str:
        """Add the object at *vertex*, and return the key of its node."""
        view = self._view
        address = int(view.index.ids[vertex])
        key = f"object {address}"
        if key not in self.nodes:
            thing = view.objects[vertex]
            self.vertices[vertex] = None
            self.nodes[key] = LiveNode(
                key,
                "asked" if vertex == self._asked else "object",
                type_name(type(thing)),
                summary(thing) if view.summaries else "",
                status,
                note,
                expression,
                address,
                len(np.unique(view.index.referrers(vertex))),
            )
        return key

    def open(self, vertex: int) -> None:
        """Add the direct holders of the object at *vertex*, those first that a root reaches without it."""
        view = self._view
        holders = np.unique(view.index.referrers(vertex)).tolist()
        ranked = sorted(
            (not is_reached_without(view, holder, vertex), int(view.tree.cost[holder]), holder) for holder in holders
        )
        held = self.add(vertex)
        for is_lost, _cost, holder in ranked[:MAX_HOLDERS]:
            if is_lost:
                reference = best_reference(view.objects[holder], view.objects[vertex]).text
                key = self.add(holder, note="no variable reaches it otherwise")
                self._link(key, held, reference)
            else:
                self._add_holder(holder, vertex, held)
        if len(ranked) > MAX_HOLDERS:
            key = f"more {held}"
            words = f"and {len(ranked) - MAX_HOLDERS:,} more holders"
            self.nodes[key] = LiveNode(key, "more", words, "", Status.UNKNOWN, "", "")
            self._link(key, held, "")

    def _add_holder(self, holder: int, vertex: int, held: str) -> None:
        """Add the cheapest path that ends with the reference from *holder*, as readers know it: without inner dicts."""
        view = self._view
        described = view.describe_child(holder, view.objects[vertex])
        vertices = [] if holder == view.namespace else view.path(holder)
        before = self._root(described.path.root)
        *steps, last = zip(described.path.steps, described.positions, described.expressions, strict=True)
        for step, position, expression in steps:
            key = self.add(vertices[position], expression or "", step.status)
            self._link(before, key, step.reference)
            before = key
        self._link(before, held, last[0].reference)

    def _root(self, words: str) -> str:
        key = f"root {words}"
        if key not in self.nodes:
            expression = _GLOBALS if words == _VARIABLES else ""
            self.nodes[key] = LiveNode(key, "root", words, "", Status.EXPECTED, "", expression)
        return key

    def _link(self, holder: str, held: str, reference: str) -> None:
        if holder != held:
            self.links.setdefault(LiveLink(holder, held, reference))

"""Draw what leads to one object as nodes and references; say what keeps most of the heap alive."""

from __future__ import annotations

import types
from collections import defaultdict
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from leaklab.explain.alive.counts import is_reached_without
from leaklab.explain.alive.explain import walk_path
from leaklab.explain.alive.retained import retained_sizes
from leaklab.explain.alive.smallest_cut import independent_paths
from leaklab.heap.names import best_reference
from leaklab.model import Status
from leaklab.model.alive import HeapOverview, LiveGraph, LiveLink, LiveNode, LiveTensorKind, Retainer
from leaklab.runtime.objects import is_kind_of, summary, tensor_words, type_name
from leaklab.runtime.ours import is_own_kind

if TYPE_CHECKING:
    from leaklab.explain.alive.explain import WalkedPath
    from leaklab.heap.view import HeapView
    from leaklab.runtime.addresses import Ints

MAX_HOLDERS = 12
"""So many holders of an opened node are shown one by one."""
_GLOBALS = "globals()"
_VARIABLES = "notebook variable"
_N_PATHS = 4
"""So many independent paths are looked for."""
MAX_VARIABLES = 200
MAX_RETAINERS = 200
MAX_KINDS = 200
_NAMESPACE, _MODULE = ".__dict__", "module "
_LOOKED_AT = 3000
"""So many of the largest are described to find those worth showing."""


def live_graph(view: HeapView, vertex: int, *, asked: str = "", opened: Collection[int] = ()) -> LiveGraph:
    """Return the graph of what leads to the object at *vertex*.

    What is to be ignored as a holder was left out when *view* was built. *asked* is what to call the object,
    *opened* has addresses of nodes whose direct holders are to be shown too; those not in the graph are left alone.
    """
    drawing = _GraphBuilder(view, vertex)
    paths = independent_paths(view, vertex, _N_PATHS) if view.is_reached(vertex) else []
    for path in paths:
        drawing.add_path(walk_path(view, path))
    drawing.add(vertex)
    wanted = set(opened)
    for known in [node for node in drawing.vertices if int(view.index.ids[node]) in wanted]:
        drawing.open(known)
    nodes = sorted(drawing.nodes.values(), key=lambda node: node.role != "root")
    return LiveGraph(asked, tuple(nodes), tuple(drawing.links), len(paths), tuple(view.notes))


class _GraphBuilder:
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
            n_more = len(ranked) - MAX_HOLDERS
            words = f"and {n_more:,} more holder{'' if n_more == 1 else 's'}"
            self.nodes[key] = LiveNode(key, "more", words, "", Status.UNKNOWN, "", "")
            self._link(key, held, "")

    def _add_holder(self, holder: int, vertex: int, held: str) -> None:
        """Add the cheapest path that ends with the reference from *holder*, without inner dicts."""
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


def overview(view: HeapView) -> HeapOverview:
    """Return the whole heap at a glance.

    An object counts with what it alone keeps alive; strings and arrays that the collector does not track are not in
    these sizes.
    """
    sizes = retained_sizes(view)
    variables = _variables(view, sizes)
    return HeapOverview(
        tuple(variables[:MAX_VARIABLES]),
        tuple(_retainers(view, sizes, {row.address for row in variables})),
        tuple(_tensor_kinds(view)[:MAX_KINDS]),
        view.n_heap,
        tuple(view.notes),
    )


def _variables(view: HeapView, sizes: Ints) -> list[Retainer]:
    """Return the user's variables but the notebook's own, what retains most first."""
    rows = {}
    for start in view.starts:
        is_users = start.is_variable and not start.is_history and not start.is_shells
        vertex = view.index.vertex_of(start.address) if is_users else -1
        if vertex >= 0 and not _is_fixture(view.objects[vertex]) and start.address not in rows:
            rows[start.address] = _row(view, sizes, vertex, start.expression, start.words)
    return sorted(rows.values(), key=lambda row: -row.retained_bytes)


def _retainers(view: HeapView, sizes: Ints, known: set[int]) -> list[Retainer]:
    """Return other objects that retain much, the largest first."""
    rows: list[Retainer] = []
    for vertex in np.argsort(-sizes, kind="stable")[:_LOOKED_AT].tolist():
        if len(rows) == MAX_RETAINERS:
            break
        address = int(view.index.ids[vertex])
        if address in known or _is_fixture(view.objects[vertex]) or vertex == view.namespace:
            continue
        if not view.is_reached(vertex):
            rows.append(_row(view, sizes, vertex, "", "no variable reaches it"))
            continue
        described = view.describe(vertex)
        expression = described.expressions[-1] or ""
        if not (expression.endswith(_NAMESPACE) and described.path.root.startswith(_MODULE)):  # the module itself
            rows.append(_row(view, sizes, vertex, expression, described.path.root))
    return rows


def _row(view: HeapView, sizes: Ints, vertex: int, expression: str, place: str) -> Retainer:
    thing = view.objects[vertex]
    words = summary(thing) if view.summaries else ""
    address = int(view.index.ids[vertex])
    return Retainer(expression, place, type_name(type(thing)), words, int(sizes[vertex]), address)


def _is_fixture(thing: object) -> bool:
    """Return whether *thing* belongs to the program rather than to its data: nobody deletes a module or a class.

    Nor of what leaklab shows with.
    """
    if is_own_kind(type(thing)):
        return True
    return any(is_kind_of(thing, kind) for kind in (types.ModuleType, type, types.FrameType))


def _tensor_kinds(view: HeapView) -> list[LiveTensorKind]:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    sizes: dict[tuple[str, str], int] = defaultdict(int)
    seen: set[int] = set()
    for vertex in view.tensors:
        thing = view.objects[vertex]
        kind = (type_name(type(thing)), tensor_words(thing) if view.summaries else "")
        counts[kind] += 1
        fresh = set(view.storages.keys_of.get(vertex, ())) - seen
        seen |= fresh
        sizes[kind] += sum(view.storages.by_key[key].n_bytes for key in fresh)
    rows = [LiveTensorKind(*kind, count, sizes[kind]) for kind, count in counts.items()]
    return sorted(rows, key=lambda row: (-row.n_bytes, -row.count))

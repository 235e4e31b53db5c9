"""Find the cheapest path from a root to every object of the heap, and where it begins.

Each vertex has a price for being on a path, so that paths a reader understands (user's variables, containers) win over
those through the inside of libraries. Paths to all vertices are found at once, cheapest vertices first.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from leaklab.heap.index import ranges
from leaklab.runtime.sparse_graphs import breadth_first_order, csr_array

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaklab.heap.index import HeapIndex
    from leaklab.runtime.addresses import Ints


NOT_REACHED = -1
_FAR = np.iinfo(np.int64).max
_FEW_EDGES = 64  # up to so many a plain loop beats the fixed cost of a dozen numpy calls: deep chains live there
ROOT = -1
"""The holder of what the roots are: the interpreter. Before a vertex in a tree it says that the vertex is a root."""
UNREACHED = -2
"""Before a vertex in a tree it says that no root reaches the vertex."""
_THIN = 64  # up to so many vertices a plain loop beats the fixed cost of a few numpy calls


@dataclass(frozen=True, slots=True, eq=False)
class PathTree:
    """The cheapest path to each vertex, as a tree.

    Attributes:
        parent: The vertex before, -1 for a root and for what no root reaches.
        root_of: Position in the list of roots of the root the path begins at, -1 where unreached.
        cost: Start cost of that root plus the costs of all vertices after it, -1 where unreached.
    """

    parent: Ints
    root_of: Ints
    cost: Ints


def search(
    index: HeapIndex,
    roots: Sequence[tuple[int, int]],
    *,
    vertex_cost: Ints,
    blocked_into: Ints | None = None,
    own_dicts: Ints | None = None,
) -> PathTree:
    """Find the cheapest path from any root to every vertex.

    Among paths of the same cost the one wins whose root comes first in *roots*, then the one whose last vertex but one
    comes first in the index: nothing depends on addresses. (Where vertices cost nothing, fewer of them come first.)

    Args:
        index: The heap.
        roots: ``(vertex, start_cost)``; a vertex of -1 is skipped.
        vertex_cost: What it costs to come to each vertex, whole numbers, 0 or more. A root costs its start cost only.
        blocked_into: True for each vertex that a path may begin at but not come through.
        own_dicts: For each vertex that of its ``__dict__``, or -1. What lies in it is as near as if the vertex itself
            referred to it: the step between costs nothing, so that no path depends on whether there is such a dict.

    Raises:
        ValueError: if a cost is negative or the arrays do not fit the index.
    """
    if len(vertex_cost) != index.n_vertices or (blocked_into is not None and len(blocked_into) != index.n_vertices):
        msg = f"one cost and one block per vertex are needed: the index has {index.n_vertices:,} vertices"
        raise ValueError(msg)
    if min((cost for _, cost in roots), default=0) < 0 or vertex_cost.min(initial=0) < 0:
        msg = "costs must be 0 or more"
        raise ValueError(msg)
    walk = _Walk(index, vertex_cost, blocked_into, own_dicts)
    walk.start(roots)
    walk.run()
    return PathTree(walk.parent, walk.root_of, np.where(walk.cost == _FAR, NOT_REACHED, walk.cost))


def hops_to(tree: PathTree) -> Ints:
    """Return how many references lead from its root to each vertex: 0 for roots, and for what none reaches.

    By pointer jumping: in each round every vertex looks twice as far up (Hillis and Steele, 1986).
    """
    up = tree.parent.astype(np.int64)
    hops = (up >= 0).astype(np.int64)
    while len(below := np.flatnonzero(up >= 0)):
        above = up[below]
        hops[below] += hops[above]
        up[below] = up[above]
    return hops


def path_to(tree: PathTree, vertex: int) -> list[int]:
    """Return the vertices from the root to *vertex*, root first; empty if no root reaches it."""
    if tree.root_of[vertex] == NOT_REACHED:
        return []
    path = [vertex]
    while (before := int(tree.parent[path[-1]])) != NOT_REACHED:
        path.append(before)
    path.reverse()
    return path


class _Walk:
    """Dijkstra's search with one bucket of vertices per cost.

    What a vertex costs does not depend on the reference it is entered by, so whoever enters it first enters it
    cheapest; only a root may be found again, cheaper than it began, and the dict of an instance, together with it.
    """

    def __init__(self, index: HeapIndex, vertex_cost: Ints, blocked_into: Ints | None, own_dicts: Ints | None) -> None:
        n_vertices = index.n_vertices
        self.parent = np.full(n_vertices, NOT_REACHED, dtype=np.int32)
        self.root_of = np.full(n_vertices, NOT_REACHED, dtype=np.int32)
        self.cost = np.full(n_vertices, _FAR, dtype=np.int64)
        self._offsets, self._targets = index.forward_offsets, index.forward_targets
        self._price: Ints = np.array(vertex_cost, dtype=np.int64)
        self._closed: Ints = np.zeros(n_vertices, bool) if blocked_into is None else np.array(blocked_into, bool)
        self._own: Ints = np.full(n_vertices, -1, np.int32) if own_dicts is None else np.array(own_dicts, np.int32)
        self._winner = np.zeros(n_vertices, dtype=np.int64)
        self._buckets: dict[int, tuple[list[int], list[Ints]]] = {}  # vertices one by one, and many at a time
        self._queue: list[int] = []  # a heap of the keys
        # Items of a view are read and written three times faster than items of an array.
        costs = (self._price, self._closed, self.cost)
        arrays = (self._offsets, self._targets, *costs, self.parent, self.root_of, self._own)
        self._views: tuple[Any, ...] = tuple(array.data for array in arrays)

    def start(self, roots: Sequence[tuple[int, int]]) -> None:
        """Put the roots into their buckets."""
        for number, (vertex, cost) in enumerate(roots):
            if vertex >= 0 and cost < self.cost[vertex]:
                self.cost[vertex] = cost
                self.root_of[vertex] = number
                self._bucket(cost)[0].append(vertex)

    def run(self) -> None:
        """Empty the buckets, cheapest first."""
        while self._queue:
            cost = heapq.heappop(self._queue)
            singles, blocks = self._buckets.pop(cost)
            if blocks or not self._expand_few(singles, cost):
                self._expand_many(np.concatenate([np.array(singles, dtype=np.int64), *blocks]), cost)

    def _bucket(self, cost: int) -> tuple[list[int], list[Ints]]:
        bucket = self._buckets.get(cost)
        if bucket is None:
            bucket = self._buckets[cost] = ([], [])
            heapq.heappush(self._queue, cost)
        return bucket

    def _expand_few(self, vertices: list[int], cost: int) -> bool:
        """Enter what *vertices* refer to, one reference at a time; False, and nothing done, if they are too many."""
        offsets, targets, price, closed, costs, parent, root_of, own_dicts = self._views
        n_edges = 0
        for vertex in vertices:
            own = own_dicts[vertex]
            n_edges += offsets[vertex + 1] - offsets[vertex] + (offsets[own + 1] - offsets[own] if own >= 0 else 0)
            if n_edges > _FEW_EDGES:
                return False
        if len(vertices) > 1:
            vertices.sort(key=lambda vertex: (root_of[vertex], vertex))
        sources = []
        for vertex in vertices:
            if costs[vertex] != cost:  # a root that was entered from a cheaper one
                continue
            sources.append(vertex)
            own = own_dicts[vertex]
            if own >= 0 and costs[own] > cost and not closed[own]:
                costs[own], parent[own], root_of[own] = cost, vertex, root_of[vertex]
                sources.append(own)
        for source in sources:
            for edge in range(offsets[source], offsets[source + 1]):
                target = targets[edge]
                new_cost = cost + price[target]
                if new_cost < costs[target] and not closed[target]:
                    costs[target] = new_cost
                    parent[target] = source
                    root_of[target] = root_of[source]
                    self._bucket(new_cost)[0].append(target)
        return True

    def _expand_many(self, vertices: Ints, cost: int) -> None:
        """Enter what *vertices* refer to, all at once, to the same effect."""
        vertices = vertices[self.cost[vertices] == cost]
        vertices = self._with_own_dicts(vertices[np.lexsort((vertices, self.root_of[vertices]))], cost)
        sources, targets = self._edges_of(vertices)
        better = (cost + self._price[targets] < self.cost[targets]) & ~self._closed[targets]
        sources, targets = sources[better], targets[better]
        numbers = np.arange(len(targets))
        self._winner[targets[::-1]] = numbers[::-1]  # the first of several sources is written last, and stays
        first = self._winner[targets] == numbers
        sources, targets = sources[first], targets[first]
        self.parent[targets] = sources
        self.root_of[targets] = self.root_of[sources]
        new_costs = cost + self._price[targets]
        self.cost[targets] = new_costs
        for new_cost in np.unique(new_costs).tolist():
            entered = targets[new_costs == new_cost]
            if len(entered) <= _FEW_EDGES:
                self._bucket(new_cost)[0].extend(entered.tolist())
            else:
                self._bucket(new_cost)[1].append(entered.astype(np.int64))

    def _with_own_dicts(self, vertices: Ints, cost: int) -> Ints:
        """Enter the dicts of *vertices*, and return both, each dict behind its owner."""
        places = np.flatnonzero(self._own[vertices] >= 0)
        own = self._own[vertices[places]]
        further = (self.cost[own] > cost) & ~self._closed[own]
        own, first = np.unique(own[further], return_index=True)  # instances may share one
        places = places[further][first]
        if not len(own):
            return vertices
        self.cost[own] = cost
        self.parent[own] = vertices[places]
        self.root_of[own] = self.root_of[vertices[places]]
        order = np.argsort(places)
        return np.insert(vertices, places[order] + 1, own[order])

    def _edges_of(self, vertices: Ints) -> tuple[Ints, Ints]:
        """Return sources and targets of all references of *vertices*, in their order."""
        starts, ends = self._offsets[vertices], self._offsets[vertices + 1]
        return np.repeat(vertices, ends - starts), self._targets[ranges(starts, ends)]


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """What the roots reach, as a tree of shortest paths.

    Its vertices are numbered in the order in which they are found, from 1; 0 is above all roots. A parent has a smaller
    number than its children: one pass over the numbers, upwards or downwards, visits the whole tree.

    Attributes:
        bfs_index: For each vertex its number, -1 for what no root reaches.
        vertex: For each number its vertex, `ROOT` for 0.
        parent: For each number that of the vertex before it on the path; 0 for 0.
    """

    bfs_index: Ints
    vertex: Ints
    parent: Ints

    @property
    def is_reached(self) -> Ints:
        """For each vertex whether a root reaches it."""
        mask: Ints = self.bfs_index >= 0
        return mask

    def parents(self) -> Ints:
        """Return for each vertex the one before it, `ROOT` for a root, `UNREACHED` for what none reaches."""
        return self.as_parents(self.parent)

    def as_parents(self, parent: Ints) -> Ints:
        """Return a tree that is written in numbers, like *parent*, in vertices."""
        parents = np.full(len(self.bfs_index), UNREACHED, np.int32)
        parents[self.vertex[1:]] = self.vertex[parent[1:]]
        return parents


def reach(index: HeapIndex, roots: Ints) -> Reach:
    """Find the shortest path from *roots* to every vertex.

    Args:
        index: The heap.
        roots: Vertices, each once.
    """
    n_vertices = index.n_vertices
    offsets = np.append(index.forward_offsets, len(index.forward_targets) + len(roots))
    targets = np.concatenate([index.forward_targets, np.asarray(roots, np.int32)])
    kind = np.int32 if len(targets) < np.iinfo(np.int32).max else np.int64
    # scipy computes in float64 and would copy anything else.
    parts = (np.ones(len(targets)), targets.astype(kind, copy=False), offsets.astype(kind, copy=False))
    graph = csr_array(parts, shape=(n_vertices + 1, n_vertices + 1))
    order, previous = breadth_first_order(graph, n_vertices)  # the last vertex stands for number 0
    bfs_index = np.full(n_vertices + 1, -1, np.int32)
    bfs_index[order] = np.arange(len(order), dtype=np.int32)
    parent = np.zeros(len(order), np.int32)
    parent[1:] = bfs_index[previous[order[1:]]]
    vertex = order.astype(np.int32)
    vertex[0] = ROOT
    return Reach(bfs_index[:-1], vertex, parent)


def levels(parent: Ints) -> Iterator[tuple[int, int, bool]]:
    """Yield ranges of numbers that cover a tree from its top, for a pass over all of it.

    Args:
        parent: A breadth-first tree, as `Reach` has it; 0 is left out.

    Yields:
        ``(start, stop, is_level)``: one whole level, which can be computed at once; or, where levels are thin, several
        of them, to be computed one by one.
    """
    parents = parent.data
    n_reached = len(parents)
    start, stop = 1, bisect_left(parents, 1, 1)
    thin_from = start
    while start < n_reached:
        if stop - start > _THIN:
            if thin_from < start:
                yield thin_from, start, False
            yield start, stop, True
            thin_from = stop
        start, stop = stop, bisect_left(parents, stop, stop)
    if thin_from < n_reached:
        yield thin_from, n_reached, False


@dataclass(frozen=True, slots=True)
class Start:
    """Where paths begin.

    Attributes:
        address: The object that the search begins at.
        words: What it is.
        expression: Python for the first object of a path (for a module: the module); empty where there is none.
        cost: What beginning here costs.
        is_variable: Whether it is the value of one of the user's variables.
        is_library: Whether it belongs to a library.
        is_place: Whether it is a module, its namespace, or a running function: paths begin there and pass nowhere else.
        is_history: Whether this is one of the names under which the notebook keeps its history.
        is_shells: Whether this is one of the names that the shell puts among the user's variables.
    """

    address: int
    words: str
    expression: str
    cost: int
    is_variable: bool = False
    is_library: bool = False
    is_place: bool = False
    is_history: bool = False
    is_shells: bool = False

    def expression_for(self, thing: object) -> str | None:
        """Return Python for *thing*, the first object of a path from here; None where there is none."""
        if self.expression and not self.is_variable and type(thing) is dict:
            return f"{self.expression}.__dict__"  # a module's own namespace
        return self.expression or None


def paths_from(
    index: HeapIndex, starts: Sequence[Start], vertices: Ints, namespace: int, *, costs: Ints, own_dicts: Ints
) -> PathTree:
    """Return the cheapest path to every object.

    *vertices* has the object of each start, *namespace* the dict of the user's variables, *own_dicts* for each
    object its ``__dict__``: -1 where there is none. *costs* is what it costs to come to each object.
    """
    blocked = np.zeros(index.n_vertices, bool)
    # Namespaces, modules and frames are where paths begin: none leads through them to anything else.
    places = zip(starts, vertices.tolist(), strict=True)
    ends = [vertex for start, vertex in places if start.is_place]
    blocked[[vertex for vertex in (*ends, namespace) if vertex >= 0]] = True
    roots = [
        (vertex, start.cost + (int(costs[vertex]) if start.is_variable and vertex >= 0 else 0))
        for start, vertex in zip(starts, vertices.tolist(), strict=True)
    ]
    return search(index, roots, vertex_cost=costs, blocked_into=blocked, own_dicts=own_dicts)

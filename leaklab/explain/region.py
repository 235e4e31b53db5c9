"""Take the part of the heap that no root reaches as a graph of its own: its cycles, and what hangs on them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from leaklab.explain.index import HeapIndex

_Numbers = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]


class Region:
    """A part of the heap, as a graph of its own.

    Its objects have *places*, from 0; arguments and results of the methods are vertices of the heap.

    Args:
        index: The heap.
        inside: For each vertex whether it belongs to the region.
        leaked: For each vertex whether it is a survivor: a cycle of such is the better explanation.
    """

    def __init__(self, index: HeapIndex, inside: _Mask, leaked: _Mask) -> None:
        self.vertices = np.flatnonzero(inside)
        self._place = np.full(index.n_vertices, -1, np.int64)
        self._place[self.vertices] = np.arange(len(self.vertices))
        self._sources, self._targets = _inner_references(index, self.vertices, self._place)
        counts = np.bincount(self._sources, minlength=len(self.vertices))
        self._offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        n_components, self._component = _components(self._graph(), "strong")
        sizes = np.bincount(self._component, minlength=n_components)
        self._is_cycle = sizes > 1
        self._is_cycle[self._component[self._sources[self._sources == self._targets]]] = True
        self._is_survivors = np.zeros(n_components, bool)
        self._is_survivors[self._component[leaked[self.vertices]]] = True
        self._by_component = np.argsort(self._component, kind="stable")
        self._bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])

    def by_cycle(self, orphans: Sequence[int]) -> tuple[dict[int, list[int]], list[int]]:
        """Sort *orphans* by the nearest cycle that keeps them, of survivors if there is such a one.

        Returns:
            For each strongly connected component the orphans that it keeps; and those that no cycle keeps.
        """
        places = self._place[np.asarray(orphans, np.int64)]
        of_survivors = self._is_cycle & self._is_survivors
        owner = self._owners(of_survivors)
        if (owner[places] < 0).any() and (self._is_cycle & ~of_survivors).any():
            owner = np.where(owner < 0, self._owners(self._is_cycle), owner)
        groups: dict[int, list[int]] = defaultdict(list)
        for orphan, component in zip(orphans, owner[places].tolist(), strict=True):
            groups[component].append(orphan)
        others = groups.pop(-1, [])
        return dict(groups), others

    def members_of(self, component: int) -> _Numbers:
        """Return the vertices of a strongly connected component, ascending."""
        chosen: _Numbers = self.vertices[self._by_component[self._bounds[component] : self._bounds[component + 1]]]
        return chosen

    def shortest_cycle(self, start: int) -> list[int]:
        """Return the vertices of the shortest cycle through *start*, in order; empty if there is none."""
        first = int(self._place[start])
        component = int(self._component[first])
        before: dict[int, int] = {}
        queue = deque([first])
        while queue:
            place = queue.popleft()
            for after in self._targets[self._offsets[place] : self._offsets[place + 1]].tolist():
                if after == first:
                    return self._back(before, first, place)
                if after not in before and self._component[after] == component:
                    before[after] = place
                    queue.append(after)
        return []

    def hanging_together(self, orphans: Sequence[int]) -> list[tuple[list[int], list[int]]]:
        """Sort *orphans*, which no cycle keeps, by what they hang on.

        Returns:
            For each part of the region whose objects hang together the objects at its top, which nothing visible
            refers to, and the orphans in it.
        """
        places = self._place[np.asarray(orphans, np.int64)]
        above = self._reached_from(places, backwards=True) >= 0
        inner = above[self._sources] & above[self._targets]
        sources, targets = self._sources[inner], self._targets[inner]
        _n, part = _components(_graph_of(sources, targets, len(self.vertices)), "weak")
        is_top = above.copy()
        is_top[targets] = False
        groups: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for place in np.flatnonzero(is_top).tolist():
            groups[int(part[place])][0].append(int(self.vertices[place]))
        for orphan, place in zip(orphans, places.tolist(), strict=True):
            groups[int(part[place])][1].append(orphan)
        return list(groups.values())

    def _back(self, before: dict[int, int], first: int, place: int) -> list[int]:
        path = [place]
        while path[-1] != first:
            path.append(before[path[-1]])
        return [int(self.vertices[each]) for each in reversed(path)]

    def _owners(self, components: _Mask) -> _Numbers:
        """Return for each place the nearest of *components* that reaches it, -1 if none does."""
        starts = np.flatnonzero(components[self._component])
        from_start = self._reached_from(starts)
        owner: _Numbers = np.where(from_start >= 0, self._component[from_start], -1)
        return owner

    def _reached_from(self, starts: _Numbers, *, backwards: bool = False) -> _Numbers:
        """Return for each place the nearest of *starts*, -1 if none leads there."""
        origin = np.full(len(self.vertices) + 1, -1, np.int64)
        origin[starts] = starts
        if not len(starts):
            return origin[:-1]
        everywhere = len(self.vertices)  # one more place, which refers to all starts
        heads, tails = (self._targets, self._sources) if backwards else (self._sources, self._targets)
        graph = _graph_of(np.append(heads, np.full(len(starts), everywhere)), np.append(tails, starts), everywhere + 1)
        order, before = breadth_first_order(graph, everywhere)
        found = origin.tolist()
        previous = before.tolist()
        for place in order[1:].tolist():
            if found[place] < 0:
                found[place] = found[previous[place]]
        return np.array(found[:-1], np.int64)

    def _graph(self) -> csr_array:
        return _graph_of(self._sources, self._targets, len(self.vertices))


def _inner_references(index: HeapIndex, vertices: _Numbers, place: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Return the places of source and target of every reference between *vertices*, by source."""
    starts = index.forward_offsets[vertices]
    counts = index.forward_offsets[vertices + 1] - starts
    before = np.cumsum(counts) - counts
    edges = np.arange(int(counts.sum())) + np.repeat(starts - before, counts)
    targets = place[index.forward_targets[edges]]
    sources = np.repeat(np.arange(len(vertices)), counts)
    inner = targets >= 0
    return sources[inner], targets[inner]


def _graph_of(sources: _Numbers, targets: _Numbers, size: int) -> csr_array:
    return csr_array((np.ones(len(sources), np.int8), (sources, targets)), shape=(size, size))


def _components(graph: csr_array, connection: str) -> tuple[int, _Numbers]:
    if not graph.shape[0]:
        return 0, np.zeros(0, np.int64)
    count, component = connected_components(graph, connection=connection)
    return int(count), component.astype(np.int64)

"""Take the part of the heap that no root reaches as a graph of its own: its cycles, and what hangs on them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from leaklab.explain.heap.index import HeapIndex

_Numbers = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]


class Region:
    """A part of the heap, as a graph of its own.

    Its objects have *places*, from 0; arguments and results of the methods are vertices of the heap.

    Args:
        index: The heap.
        inside: For each vertex whether it belongs to the region.
        leaked: For each vertex whether it is a survivor: a cycle of such is the better explanation.
        assumed: References to add, as pairs of vertices of the region.

    Attributes:
        vertices: The vertex at each place, ascending.
        sources: The place that each reference inside comes from, ascending.
        targets: The place that each reference inside leads to.
        numbers: The number of each of these references in the heap; -1 for one that was assumed.
    """

    def __init__(self, index: HeapIndex, inside: _Mask, leaked: _Mask, assumed: Sequence[tuple[int, int]] = ()) -> None:
        self.vertices = np.flatnonzero(inside)
        self._place = np.full(index.n_vertices, -1, np.int64)
        self._place[self.vertices] = np.arange(len(self.vertices))
        self.sources, self.targets, self.numbers = _inner_references(index, self.vertices, self._place)
        if assumed:
            self._assume(self.places_of([pair[0] for pair in assumed]), self.places_of([pair[1] for pair in assumed]))
        counts = np.bincount(self.sources, minlength=len(self.vertices))
        self._offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        n_components, self._component = _components(self._graph(), "strong")
        sizes = np.bincount(self._component, minlength=n_components)
        self._is_cycle = sizes > 1
        self._is_cycle[self._component[self.sources[self.sources == self.targets]]] = True
        self._is_survivors = np.zeros(n_components, bool)
        self._is_survivors[self._component[leaked[self.vertices]]] = True
        self._by_component = np.argsort(self._component, kind="stable")
        self._bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])

    def _assume(self, sources: _Numbers, targets: _Numbers) -> None:
        """Add references, and keep all of them sorted by source."""
        order = np.argsort(np.concatenate([self.sources, sources]), kind="stable")
        self.sources = np.concatenate([self.sources, sources])[order]
        self.targets = np.concatenate([self.targets, targets])[order]
        self.numbers = np.concatenate([self.numbers, np.full(len(sources), -1)])[order]

    def places_of(self, vertices: Sequence[int] | _Numbers) -> _Numbers:
        """Return the place of each of *vertices*, -1 for one outside."""
        places: _Numbers = self._place[np.asarray(vertices, np.int64)]
        return places

    def cycles_with(self, references: _Mask) -> _Mask:
        """Return which strongly connected components contain one of *references*, given as a mask of all inside."""
        sources = self._component[self.sources[references]]
        found = np.zeros(len(self._is_cycle), bool)
        found[sources[sources == self._component[self.targets[references]]]] = True
        return found

    def below(self, places: _Mask) -> _Mask:
        """Return *places* and all places that they lead to."""
        reached: _Mask = self._reached_from(np.flatnonzero(places)) >= 0
        return reached

    def referents(self, place: int) -> _Numbers:
        """Return the places that *place* refers to."""
        return self.targets[self._offsets[place] : self._offsets[place + 1]]

    def references_within(self, component: int) -> _Numbers:
        """Return the positions of the references between members of a component, ascending."""
        places = self._by_component[self._bounds[component] : self._bounds[component + 1]]
        edges = ranges(self._offsets[places], self._offsets[places + 1])
        inner: _Numbers = edges[self._component[self.targets[edges]] == component]
        return inner

    def by_cycle(self, orphans: Sequence[int], among: _Mask | None = None) -> tuple[dict[int, list[int]], list[int]]:
        """Sort *orphans* by the nearest cycle that keeps them, of survivors if there is such a one.

        Args:
            orphans: Vertices of the region.
            among: Which components may be taken; by default all that are cycles.

        Returns:
            For each strongly connected component the orphans that it keeps; and those that no cycle keeps.
        """
        places = self.places_of(orphans)
        is_cycle = self._is_cycle if among is None else self._is_cycle & among
        of_survivors = is_cycle & self._is_survivors
        owner = self._owners(of_survivors)
        if (owner[places] < 0).any() and (is_cycle & ~of_survivors).any():
            owner = np.where(owner < 0, self._owners(is_cycle), owner)
        groups: dict[int, list[int]] = defaultdict(list)
        for orphan, component in zip(orphans, owner[places].tolist(), strict=True):
            groups[component].append(orphan)
        others = groups.pop(-1, [])
        return dict(groups), others

    def members_of(self, component: int) -> _Numbers:
        """Return the vertices of a strongly connected component, ascending."""
        chosen: _Numbers = self.vertices[self._by_component[self._bounds[component] : self._bounds[component + 1]]]
        return chosen

    def shortest_cycle(self, start: int, by: int | None = None) -> list[int]:
        """Return the vertices of the shortest cycle through *start*, in order; empty if there is none.

        Args:
            start: Where the cycle begins.
            by: The vertex that comes next in it; by default whichever gives the shortest.
        """
        first = int(self._place[start])
        component = int(self._component[first])
        before: dict[int, int] = {}
        queue = deque([first])
        if by is not None:
            if by == start:
                return [start]
            before[int(self._place[by])] = first
            queue = deque([int(self._place[by])])
        while queue:
            place = queue.popleft()
            for after in self.referents(place).tolist():
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
        places = self.places_of(orphans)
        above = self._reached_from(places, backwards=True) >= 0
        inner = above[self.sources] & above[self.targets]
        sources, targets = self.sources[inner], self.targets[inner]
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
        heads, tails = (self.targets, self.sources) if backwards else (self.sources, self.targets)
        graph = _graph_of(np.append(heads, np.full(len(starts), everywhere)), np.append(tails, starts), everywhere + 1)
        order, before = breadth_first_order(graph, everywhere)
        found = origin.tolist()
        previous = before.tolist()
        for place in order[1:].tolist():
            if found[place] < 0:
                found[place] = found[previous[place]]
        return np.array(found[:-1], np.int64)

    def _graph(self) -> csr_array:
        return _graph_of(self.sources, self.targets, len(self.vertices))


def _inner_references(index: HeapIndex, vertices: _Numbers, place: _Numbers) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Return the places of source and target, and the number, of every reference between *vertices*, by source."""
    starts, ends = index.forward_offsets[vertices], index.forward_offsets[vertices + 1]
    edges = ranges(starts, ends)
    targets = place[index.forward_targets[edges]]
    sources = np.repeat(np.arange(len(vertices)), ends - starts)
    inner = targets >= 0
    return sources[inner], targets[inner], edges[inner]


def ranges(starts: _Numbers, ends: _Numbers) -> _Numbers:
    """Return the numbers from each start up to its end, one range after the other."""
    counts = ends - starts
    before = np.cumsum(counts) - counts
    numbers: _Numbers = np.arange(int(counts.sum())) + np.repeat(starts - before, counts)
    return numbers


def _graph_of(sources: _Numbers, targets: _Numbers, size: int) -> csr_array:
    return csr_array((np.ones(len(sources), np.int8), (sources, targets)), shape=(size, size))


def _components(graph: csr_array, connection: str) -> tuple[int, _Numbers]:
    if not graph.shape[0]:
        return 0, np.zeros(0, np.int64)
    count, component = connected_components(graph, connection=connection)
    return int(count), component.astype(np.int64)

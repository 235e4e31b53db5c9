"""Take what no root reaches as a graph of its own: its cycles, what hangs on them, how sure that is."""

from __future__ import annotations

import collections
import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.heap.index import HeapIndex, ranges
from leaklab.heap.view import HeapView
from leaklab.runtime.addresses import Addresses
from leaklab.runtime.autograd_graph import descriptors_of
from leaklab.runtime.containers import keys_in
from leaklab.runtime.objects import loaded_type, safe_len
from leaklab.runtime.referents import BATCH_OBJECTS, referents_of
from leaklab.runtime.sparse_graphs import breadth_first_order, connected_components, csr_array

_Numbers = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]
_MAX_ASSUMED = 1000
"""For so many dicts of hooks whose node cannot be read an owner is looked for."""
_MAX_LOOKED_AT = 2000
"""A graph that a hook leads to is further away than this many objects in no case seen; it bounds the time per dict."""
_MAX_GRAPH = 256
_NO_SEQUENCE_NUMBER = 2**63


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
        n_components, self._component = _components(_graph_of(self.sources, self.targets, len(self.vertices)), "strong")
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


def _inner_references(index: HeapIndex, vertices: _Numbers, place: _Numbers) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Return the places of source and target, and the number, of every reference between *vertices*, by source."""
    starts, ends = index.forward_offsets[vertices], index.forward_offsets[vertices + 1]
    edges = ranges(starts, ends)
    targets = place[index.forward_targets[edges]]
    sources = np.repeat(np.arange(len(vertices)), ends - starts)
    inner = targets >= 0
    return sources[inner], targets[inner], edges[inner]


def _graph_of(sources: _Numbers, targets: _Numbers, size: int) -> csr_array:
    return csr_array((np.ones(len(sources), np.int8), (sources, targets)), shape=(size, size))


def _components(graph: csr_array, connection: str) -> tuple[int, _Numbers]:
    if not graph.shape[0]:
        return 0, np.zeros(0, np.int64)
    count, component = connected_components(graph, connection=connection)
    return int(count), component.astype(np.int64)


class RegionReferences:
    """What the references of one region say about its cycles.

    The collector frees a cycle only if it can account for every reference to its members. So three questions are asked
    of a region of unreached objects: which references inside it belong to C++, which objects have references that
    nothing visible has, and, as a last resort, which dict of hooks a graph in it could own.

    Attributes:
        region: The region.
        crossing: For each reference inside whether C++ has it, so that the collector cannot follow it.
        is_held: For each place whether something that nothing visible has keeps it: C++, a frame, an extension module.
            The next collection frees what is not held.
    """

    def __init__(self, view: HeapView, region: Region) -> None:
        self._view = view
        self.region = region
        visible, n_hidden = self._look()
        self._unexplained = _unexplained(view, region.vertices, n_hidden)
        self.crossing = self._find_crossing(visible)
        self.is_held = region.below(self._unexplained > 0)

    def held_from_outside(self, vertices: Sequence[int]) -> list[int]:
        """Return those of *vertices* that have references which nothing visible has."""
        is_it = self._unexplained[self.region.places_of(vertices)] > 0
        return [vertex for vertex, has in zip(vertices, is_it, strict=True) if has]

    @property
    def immortal(self) -> _Mask:
        """Which components are cycles through C++, that no collection frees."""
        return self.region.cycles_with(self.crossing)

    def assumed_owners(self) -> list[tuple[int, int]]:
        """Return nodes with the dicts of hooks that each is assumed to own, as vertices.

        The hooks of a tensor belong to the node that made it, which does not show them; when the tensor's Python object
        is gone, nothing visible refers to them. If such hooks lead to an unreached graph, one of its nodes is likely
        the owner: unless a graph that is reached was made at about the same time, which then may own them as well.
        """
        view, vertices = self._view, self.region.vertices
        is_hooks = view.kinds[vertices] == id(collections.OrderedDict)
        is_top = np.ones(len(vertices), bool)
        is_top[self.region.targets] = False
        found: list[tuple[int, int]] = []
        live: Addresses | None = None
        for place in np.flatnonzero(is_hooks & is_top & (self._unexplained > 0)).tolist()[:_MAX_ASSUMED]:
            hooks: Any = view.objects[int(vertices[place])]
            if not safe_len(hooks) or not all(type(key) is int for key in keys_in(hooks)):
                continue
            nodes = self._graph_below(place)
            numbers = self._sequence_numbers(nodes)
            if not len(numbers):
                continue
            if live is None:
                reached = np.flatnonzero(view.in_graph & ~view.is_tensor & (view.tree.root_of >= 0))
                live = self._sequence_numbers(reached.tolist())
            low, high = int(numbers.min()), int(numbers.max())
            span = high - low + 1
            if not ((live >= low - span) & (live <= high + span)).any():
                found.append((nodes[0], int(vertices[place])))
        return found

    def _graph_below(self, start: int) -> list[int]:
        """Return nodes of operations that the place *start* leads to, as vertices, the nearest first."""
        view, vertices = self._view, self.region.vertices
        is_node = view.in_graph & ~view.is_tensor
        nodes: list[int] = []
        seen, queue = {start}, deque([start])
        while queue and len(seen) < _MAX_LOOKED_AT and len(nodes) < _MAX_GRAPH:
            place = queue.popleft()
            vertex = int(vertices[place])
            if is_node[vertex] and self._number_of(view.objects[vertex]) < _NO_SEQUENCE_NUMBER:
                nodes.append(vertex)
            new = [after for after in self.region.referents(place).tolist() if after not in seen]
            seen.update(new)
            queue.extend(new)
        return nodes

    def _sequence_numbers(self, nodes: Iterable[int]) -> Addresses:
        """Return the sequence numbers of nodes; those of leaves, which no operation made, are left out."""
        numbers = [self._number_of(self._view.objects[vertex]) for vertex in nodes]
        return np.array([number for number in numbers if number < _NO_SEQUENCE_NUMBER], np.int64)

    @staticmethod
    def _number_of(node: Any) -> int:
        try:
            return int(descriptors_of(type(node))["_sequence_nr"](node))
        except (KeyError, RuntimeError):
            return _NO_SEQUENCE_NUMBER

    def _look(self) -> tuple[Addresses, Addresses]:
        """Ask the collector what those objects refer to that can have hidden references.

        Returns:
            The references that it reports, as `_codes`, and the places of the other objects, as negative numbers: of
            these it reports everything. And for each place how many references the search for hidden ones has noted.
        """
        view, vertices = self._view, self.region.vertices
        suspects = (view.is_tensor | view.in_graph | (view.kinds == id(np.ndarray)))[vertices]
        places = np.flatnonzero(suspects)
        found = [np.zeros(0, np.int64)]
        for start in range(0, len(places), BATCH_OBJECTS):
            batch = places[start : start + BATCH_OBJECTS]
            objects = [view.objects[vertex] for vertex in vertices[batch].tolist()]
            _referents, addresses, owners = referents_of(objects)
            targets = view.index.vertices_of(addresses)
            known = targets >= 0
            found.append(self._codes(batch[owners[known]], targets[known]))
        visible = np.concatenate(found)
        return np.append(visible, -1 - np.flatnonzero(~suspects)), self._count_hidden(places, visible)

    def _count_hidden(self, places: Addresses, visible: Addresses) -> Addresses:
        """Return for each place how many of the references of the index were noted by the search for hidden ones."""
        index, vertices = self._view.index, self.region.vertices
        starts, ends = index.forward_offsets[vertices[places]], index.forward_offsets[vertices[places] + 1]
        sources, targets = np.repeat(places, ends - starts), index.forward_targets[ranges(starts, ends)]
        is_node = self._view.in_graph & ~self._view.is_tensor
        of_graph = self._view.is_tensor[vertices[sources]] & is_node[targets]
        codes, first, counts = np.unique(self._codes(sources, targets), return_index=True, return_counts=True)
        reported, n_reported = np.unique(visible, return_counts=True)
        at = np.minimum(np.searchsorted(reported, codes), max(len(reported) - 1, 0))
        n_visible = np.where(reported[at] == codes, n_reported[at], 0) if len(reported) else np.zeros_like(counts)
        # A tensor's graph is noted once, and may have become visible only by that.
        n_hidden = np.where(of_graph[first], 1, np.maximum(counts - n_visible, 0))
        weights: Addresses = np.bincount(sources[first], n_hidden, len(vertices)).astype(np.int64)
        return weights

    def _codes(self, places: Addresses, vertices: Addresses) -> Addresses:
        return places * self._view.index.n_vertices + vertices

    def _find_crossing(self, visible: Addresses) -> _Mask:
        """Return which references inside the region are C++'s: hidden ones, and those to hooks that it owns as well."""
        region = self.region
        codes = self._codes(region.sources, region.vertices[region.targets])
        is_hidden = (region.numbers >= 0) & ~np.isin(codes, visible) & ~np.isin(-1 - region.sources, visible)
        return is_hidden | np.isin(codes, np.array(self._shared_hooks(), np.int64))

    def _shared_hooks(self) -> list[int]:
        """Return, as codes, the references of tensors to dicts of hooks that C++ owns too.

        A result's graph owns its hooks. A leaf's are its own; but those that wait for its gradient to be accumulated
        C++ keeps where the collector does not look.
        """
        view, region = self._view, self.region
        codes: list[int] = []
        for place in np.flatnonzero(view.is_tensor[region.vertices]).tolist():
            for hooks in hooks_owned_by_graph(view.objects[int(region.vertices[place])]):
                vertex = view.index.vertex_of(id(hooks))
                if vertex >= 0:
                    codes.append(place * view.index.n_vertices + vertex)
        return codes


def hooks_owned_by_graph(tensor: Any) -> list[Any]:
    """Return those dicts of hooks of *tensor* that C++ owns together with its Python object."""
    base: Any = loaded_type("torch._C", "TensorBase")
    names = ["_post_accumulate_grad_hooks"]
    if not base.__dict__["is_leaf"].__get__(tensor):
        names.append("_backward_hooks")
    found = [base.__dict__[name].__get__(tensor) for name in names]
    return [hooks for hooks in found if safe_len(hooks)]


def _unexplained(view: HeapView, vertices: Addresses, n_hidden: Addresses) -> Addresses:
    """Return how many references each of *vertices* has that neither the heap nor the view itself explains."""
    index = view.index
    things = [view.objects[vertex] for vertex in vertices.tolist()]
    things.append(object())  # shows what the counting itself adds
    counts = np.fromiter(map(sys.getrefcount, things), np.int64, len(things))
    known = np.bincount(index.forward_targets, minlength=index.n_vertices)[vertices]
    # The view has each object in its list, what the collector did not list once more, and each end of a hidden
    # reference in the tuple that describes it: the target of one is counted with the references of the index.
    own = 1 + (vertices >= view.n_heap) + n_hidden
    unexplained: Addresses = counts[:-1] - counts[-1] - known - own
    return unexplained

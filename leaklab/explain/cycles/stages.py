"""Judge what no root reaches by the references that the collector cannot follow, and by those nobody visible has.

The collector frees a cycle only if it can account for every reference to its members. So three things are asked of a
region of unreached objects: which references inside it are C++'s, which objects have references that nothing visible
has, and, as a last resort, which dict of hooks a graph in it could own.
"""

from __future__ import annotations

import collections
import sys
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.addresses import Addresses
from leaklab.explain.cycles.region import Region, ranges
from leaklab.explain.heap.referents import BATCH_OBJECTS, referents_of
from leaklab.explain.view import HeapView
from leaklab.graph_walk import descriptors_of
from leaklab.objects import loaded_type, safe_len

_Mask = npt.NDArray[np.bool_]
_MAX_ASSUMED = 1000
"""For so many dicts of hooks whose node cannot be read an owner is looked for."""
_MAX_LOOKED_AT = 2000
"""A graph that a hook leads to is further away than this many objects in no case seen; it bounds the time per dict."""
_MAX_GRAPH = 256
_NO_SEQUENCE_NUMBER = 2**63


class Stages:
    """What the references of one region tell.

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

    @property
    def immortal(self) -> _Mask:
        """Which components are cycles through C++, that no collection frees."""
        return self.region.cycles_with(self.crossing)

    def assumed_owners(self) -> list[tuple[int, int]]:
        """Return nodes with the dicts of hooks that each is assumed to own, as vertices.

        The hooks of a tensor belong to the node that made it, which tells nobody; when the tensor's Python object is
        gone, nothing visible refers to them. If such hooks lead to an unreached graph, one of its nodes is the likely
        owner: unless a graph that is reached was made at about the same time, which then may own them as well.
        """
        view, vertices = self._view, self.region.vertices
        is_hooks = view.kinds[vertices] == id(collections.OrderedDict)
        is_top = np.ones(len(vertices), bool)
        is_top[self.region.targets] = False
        found: list[tuple[int, int]] = []
        live: Addresses | None = None
        for place in np.flatnonzero(is_hooks & is_top & (self._unexplained > 0)).tolist()[:_MAX_ASSUMED]:
            hooks: Any = view.objects[int(vertices[place])]
            if not safe_len(hooks) or not all(type(key) is int for key in list(dict.keys(hooks))):
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
        """Return one number for each reference from a place to a vertex."""
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
    things.append(object())  # tells what the counting itself adds
    counts = np.fromiter(map(sys.getrefcount, things), np.int64, len(things))
    known = np.bincount(index.forward_targets, minlength=index.n_vertices)[vertices]
    # The view has each object in its list, what the collector did not list once more, and each end of a hidden
    # reference in the tuple that describes it: the target of one is counted with the references of the index.
    own = 1 + (vertices >= view.n_heap) + n_hidden
    unexplained: Addresses = counts[:-1] - counts[-1] - known - own
    return unexplained

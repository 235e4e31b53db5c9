"""Find what the roots of a heap reach: a breadth-first tree over all of it, and the levels of that tree."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaklab.explain.heap.address_table import Ints
    from leaklab.explain.heap.index import HeapIndex

ROOT = -1
"""The holder of what the roots are: the interpreter. Before a vertex in a tree it says that the vertex is a root."""
UNREACHED = -2
"""Before a vertex in a tree it says that no root reaches the vertex."""

_THIN = 64  # up to so many vertices a plain loop beats the fixed cost of a few numpy calls


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """What the roots reach, as a tree of shortest paths.

    Vertices have *places* in it, in the order in which they are found; place 0 is above all roots. What comes
    before a place has a smaller place, so one pass over the places in their order, or backwards, visits the whole tree.

    Attributes:
        place_of: For each vertex its place, -1 for what no root reaches.
        vertex_at: For each place its vertex, `ROOT` for place 0.
        before: For each place the place before it on the path; 0 for place 0.
    """

    place_of: Ints
    vertex_at: Ints
    before: Ints

    @property
    def is_reached(self) -> Ints:
        """For each vertex whether a root reaches it."""
        mask: Ints = self.place_of >= 0
        return mask

    def parents(self) -> Ints:
        """Return for each vertex the one before it, `ROOT` for a root, `UNREACHED` for what none reaches."""
        return self.as_parents(self.before)

    def as_parents(self, before: Ints) -> Ints:
        """Return a tree that is written in places, like *before*, in vertices."""
        parents = np.full(len(self.place_of), UNREACHED, np.int32)
        parents[self.vertex_at[1:]] = self.vertex_at[before[1:]]
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
    order, previous = breadth_first_order(graph, n_vertices)  # the last vertex stands for place 0
    place_of = np.full(n_vertices + 1, -1, np.int32)
    place_of[order] = np.arange(len(order), dtype=np.int32)
    before = np.zeros(len(order), np.int32)
    before[1:] = place_of[previous[order[1:]]]
    vertex_at = order.astype(np.int32)
    vertex_at[0] = ROOT
    return Reach(place_of[:-1], vertex_at, before)


def levels(before: Ints) -> Iterator[tuple[int, int, bool]]:
    """Yield ranges of places that cover a tree from its top, for a pass over all of it.

    Args:
        before: A breadth-first tree, as `Reach` has it; place 0 is left out.

    Yields:
        ``(start, stop, is_level)``: one whole level, which can be computed at once; or, where levels are thin, several
        of them, to be computed place by place.
    """
    places = before.data
    n_places = len(places)
    start, stop = 1, bisect_left(places, 1, 1)
    thin_from = start
    while start < n_places:
        if stop - start > _THIN:
            if thin_from < start:
                yield thin_from, start, False
            yield start, stop, True
            thin_from = stop
        start, stop = stop, bisect_left(places, stop, stop)
    if thin_from < n_places:
        yield thin_from, n_places, False

"""Find the largest flow through a graph of references, the smallest cut nearest to its end, and its paths."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

if TYPE_CHECKING:
    from leaklab.explain.heap.address_table import Ints

_UNLIMITED = 1 << 30  # what goes back on a reference of the same two is added: it must not overflow 32 bits
_SOURCE, _SINK = 0, 1
_N_ENDS = 2


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """A largest flow.

    Vertices have places here: 0 is the source, which stands for all roots, 1 the sink, behind all targets.

    Attributes:
        vertices: The vertex at each place but the first two, ascending.
        tails: For each reference the place that it comes from.
        heads: The place that it leads to. After the references given come those from the targets to the sink.
        capacities: What each reference may carry.
        flows: What it does carry.
    """

    vertices: Ints
    tails: Ints
    heads: Ints
    capacities: Ints
    flows: Ints

    @property
    def _size(self) -> int:
        return len(self.vertices) + _N_ENDS

    def nearest_cut(self) -> Ints:
        """Return the numbers of the references of the smallest cut that is nearest to the targets, ascending."""
        # What can still take more leads on to the end, and so does what could give some back.
        more, back = self.flows < self.capacities, self.flows > 0
        tails = np.concatenate([self.heads[more], self.tails[back]])
        heads = np.concatenate([self.tails[more], self.heads[back]])
        graph = csr_array((np.ones(len(tails)), (tails, heads)), shape=(self._size, self._size))
        is_behind = np.zeros(self._size, bool)
        is_behind[breadth_first_order(graph, _SINK, return_predecessors=False)] = True
        return np.flatnonzero(~is_behind[self.tails] & is_behind[self.heads])

    def paths(self, limit: int) -> list[list[int]]:
        """Take the flow apart into paths from the roots to the targets, as vertices, at most *limit* of them."""
        outgoing: dict[int, deque[list[int]]] = {}
        carrying = np.flatnonzero(self.flows > 0)
        for tail, head, amount in zip(
            self.tails[carrying].tolist(), self.heads[carrying].tolist(), self.flows[carrying].tolist(), strict=True
        ):
            outgoing.setdefault(tail, deque()).append([head, amount])
        found: list[list[int]] = []
        while len(found) < limit and outgoing.get(_SOURCE):
            found.append(self._one_path(outgoing))
        return found

    def _one_path(self, outgoing: dict[int, deque[list[int]]]) -> list[int]:
        """Follow one unit of the flow to the sink and take it out; loops on the way are left out."""
        places = [_SOURCE]
        while places[-1] != _SINK:
            edges = outgoing[places[-1]]
            edges[0][1] -= 1
            head = edges[0][0]
            if not edges[0][1]:
                edges.popleft()
            if head in places:
                del places[places.index(head) + 1 :]
            else:
                places.append(head)
        return [int(self.vertices[place - _N_ENDS]) for place in places[1:-1]]


def largest_flow(holders: Ints, held: Ints, capacities: Ints, targets: Sequence[int]) -> Flow | None:
    """Return a largest flow from the roots to *targets*; None if it is unlimited.

    Args:
        holders: For each reference its holder, a vertex, -1 for the roots themselves.
        held: The vertex that it holds. No reference occurs twice.
        capacities: What it can carry, -1 for any amount. All limited ones together are less than 2^30.
        targets: Vertices.
    """
    ends = np.unique(np.asarray(targets, np.int64))
    vertices = np.unique(np.concatenate([holders[holders >= 0], held, ends]))
    tails = np.where(holders >= 0, np.searchsorted(vertices, holders) + _N_ENDS, _SOURCE)
    tails = np.append(tails, np.searchsorted(vertices, ends) + _N_ENDS)
    heads = np.append(np.searchsorted(vertices, held) + _N_ENDS, np.full(len(ends), _SINK))
    limits = np.append(capacities, np.full(len(ends), -1))
    limits = np.where(limits < 0, _UNLIMITED, limits)
    size = len(vertices) + _N_ENDS
    free = limits == _UNLIMITED
    unlimited = csr_array((np.ones(int(free.sum())), (tails[free], heads[free])), shape=(size, size))
    if _SINK in breadth_first_order(unlimited, _SOURCE, return_predecessors=False):
        return None
    graph = csr_array((limits.astype(np.int32), (tails, heads)), shape=(size, size))
    result = maximum_flow(graph, _SOURCE, _SINK).flow
    flows = np.maximum(np.asarray(result[tails, heads]).ravel(), 0)
    return Flow(vertices, tails, heads, limits, flows)

"""Find what goes if references or objects go: what every path from a root leads through them to.

Only what hangs below them in one tree of paths can go, so the search is as large as the answer, not as the heap: from
the rest of the heap, which stays, whatever else still leads into that part of the tree is followed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leaklab.heap.index import ranges
from leaklab.heap.shortest_paths import ROOT
from leaklab.runtime.sparse_graphs import breadth_first_order, csr_array, maximum_flow

if TYPE_CHECKING:
    from leaklab.heap.index import HeapIndex
    from leaklab.heap.shortest_paths import Reach
    from leaklab.runtime.addresses import Ints

_THIN = 64
_UNLIMITED = 1 << 30  # what goes back on a reference of the same two is added: it must not overflow 32 bits
_SOURCE, _SINK = 0, 1
_N_ENDS = 2


def freed_without_references(index: HeapIndex, reached: Reach, references: Iterable[tuple[int, int]]) -> Ints:
    """Return the vertices that no root reaches without *references*, ascending.

    A reference is ``(holder, held)``, the holder `ROOT` for a root; one that does not exist changes nothing.
    """
    cut = np.array(list(references), np.int64).reshape(-1, 2)
    cut = cut[reached.bfs_index[cut[:, 1]] > 0]
    parents = reached.vertex[reached.parent[reached.bfs_index[cut[:, 1]]]]
    doubtful = _below(index, reached, cut[parents == cut[:, 0], 1])
    codes = np.unique(_codes(cut[:, 0], cut[:, 1], index.n_vertices))
    return _not_rescued(index, reached, doubtful, codes, np.zeros(0, np.int64))


def freed_with_objects(index: HeapIndex, reached: Reach, vertices: Iterable[int]) -> Ints:
    """Return the vertices that no root reaches without the objects at *vertices*, those included, ascending."""
    gone = np.unique(np.fromiter(vertices, np.int64))
    gone = gone[reached.bfs_index[gone] > 0]
    return _not_rescued(index, reached, _below(index, reached, gone), np.zeros(0, np.int64), gone)


def references_of(index: HeapIndex, vertices: Ints) -> tuple[Ints, Ints]:
    """Return holder and held of all references of *vertices*, in their order."""
    return _edges(index.forward_offsets, index.forward_targets, vertices)


def references_to(index: HeapIndex, vertices: Ints) -> tuple[Ints, Ints]:
    """Return holder and held of all references to *vertices*, in their order."""
    held, holders = _edges(*index.reverse, vertices)
    return holders, held


def led_to(index: HeapIndex, tops: Ints, inside: Ints) -> Ints:
    """Return for each vertex whether it is one of *tops*, or these lead to it through what is *inside* only."""
    found = np.zeros(index.n_vertices, bool)
    level = np.unique(tops)
    while len(level):
        found[level] = True
        _holders, held = references_of(index, level)
        level = np.unique(held[inside[held] & ~found[held]])
    return found


def _edges(offsets: Ints, others: Ints, vertices: Ints) -> tuple[Ints, Ints]:
    starts, ends = offsets[vertices], offsets[vertices + 1]
    return np.repeat(vertices, ends - starts), others[ranges(starts, ends)].astype(np.int64)


def _codes(holders: Ints, held: Ints, n_vertices: int) -> Ints:
    codes: Ints = (holders + 1) * n_vertices + held
    return codes


def _below(index: HeapIndex, reached: Reach, tops: Ints) -> Ints:
    """Return *tops* and all vertices below them in the tree of paths."""
    bfs_index, parent = reached.bfs_index, reached.parent
    one_index, one_parent = bfs_index.data, parent.data
    found = np.zeros(index.n_vertices, bool)
    _spread(
        index,
        tops,
        found,
        lambda holders, held: parent[bfs_index[held]] == bfs_index[holders],
        lambda holder, held: bool(one_parent[one_index[held]] == one_index[holder]),
    )
    return np.flatnonzero(found)


def _not_rescued(index: HeapIndex, reached: Reach, doubtful: Ints, cut: Ints, gone: Ints) -> Ints:
    """Return those of *doubtful* to which nothing leads that stays.

    *cut* has the codes of the references that go, ascending; *gone* goes in any case.
    """
    stays = reached.bfs_index > 0
    stays[doubtful] = False
    may_stay = ~stays
    may_stay[gone] = False
    holders, held = references_to(index, doubtful)
    roots = doubtful[reached.parent[reached.bfs_index[doubtful]] == 0]
    holders, held = np.append(holders, np.full(len(roots), ROOT)), np.append(held, roots)
    leads = _is_in(cut, _codes(holders, held, index.n_vertices))
    leads = may_stay[held] & ~leads & ((holders == ROOT) | stays[holders])
    one_may, n_vertices, cut_ones = may_stay.data, index.n_vertices, set(cut.tolist())
    _spread(
        index,
        held[leads],
        stays,
        lambda holders, held: may_stay[held] & ~_is_in(cut, _codes(holders, held, n_vertices)),
        lambda holder, held: bool(one_may[held]) and (holder + 1) * n_vertices + held not in cut_ones,
    )
    return doubtful[~stays[doubtful]]


def _is_in(sorted_codes: Ints, codes: Ints) -> Ints:
    if not len(sorted_codes):
        return np.zeros(len(codes), bool)
    at = np.minimum(np.searchsorted(sorted_codes, codes), len(sorted_codes) - 1)
    found: Ints = sorted_codes[at] == codes
    return found


def _spread(
    index: HeapIndex,
    tops: Ints,
    marked: Ints,
    leads_many: Callable[[Ints, Ints], Ints],
    leads_one: Callable[[int, int], bool],
) -> None:
    """Mark *tops* and, level by level, what references lead on to.

    What is *marked* already is not entered again. *leads_many* returns which of many references, given as holders
    and held, are followed; *leads_one* the same for one: where levels are thin a plain loop is ten times faster.
    """
    level = np.unique(tops)
    marked[level] = True
    offsets, targets, is_marked = index.forward_offsets.data, index.forward_targets.data, marked.data
    while len(level):
        if len(level) > _THIN:
            holders, held = references_of(index, level)
            level = np.unique(held[~marked[held] & leads_many(holders, held)])
            marked[level] = True
            continue
        thin = level.tolist()
        while thin and len(thin) <= _THIN:
            following: list[int] = []
            for holder in thin:
                for edge in range(offsets[holder], offsets[holder + 1]):
                    held_one = targets[edge]
                    if not is_marked[held_one] and leads_one(holder, held_one):
                        is_marked[held_one] = True
                        following.append(held_one)
            thin = following
        level = np.array(thin, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """A largest flow.

    Vertices are numbered here: 0 is the source, which stands for all roots, 1 the sink, behind all targets.

    Attributes:
        vertices: The vertex of each number but the first two, ascending.
        tails: For each reference the number that it comes from.
        heads: The number that it leads to. After the references given come those from the targets to the sink.
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

"""Find the immediate dominator of every object: the nearest one without which no root would reach it.

The algorithm is the iterative one of Georgiadis and Tarjan ("Dominators, Directed Bipolar Orders, and Independent
Spanning Trees", 2012): begin with any spanning tree, and as long as an edge ``v -> w`` is found for which the parent of
``w`` is not above ``v``, move ``w`` up below their nearest common ancestor. What no edge moves any more is the tree of
dominators. Here all edges are looked at at once: what moves ``w`` up too far would have to pass one of its dominators,
which are above all of its referrers in every tree on the way. A million objects take a fraction of a ``gc.collect()``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leaklab.heap.shortest_paths import Reach, levels

if TYPE_CHECKING:
    from leaklab.heap.index import HeapIndex
    from leaklab.runtime.addresses import Ints

_MAX_PASSES = 16
"""So often all edges are looked at; real heaps need five to ten. What would need more is computed one by one."""
_MAX_STEPS = 48
"""So many steps up a tree are made one at a time. What is deeper is climbed by jumps."""


@dataclass(frozen=True, slots=True, eq=False)
class DominatorTree:
    """Who alone keeps whom alive.

    Attributes:
        reach: What the roots reach; its numbers are used here too.
        above: For each number that of its immediate dominator, 0 if no single object keeps it alive.
    """

    reach: Reach
    above: Ints

    def parents(self) -> Ints:
        """Return for each vertex its immediate dominator, `ROOT` for none, `UNREACHED` for what no root reaches."""
        return self.reach.as_parents(self.above)

    def sums(self, weights: Ints) -> Ints:
        """Return for each number the sum of *weights* over its object and all that the object dominates."""
        total: Ints = np.array(weights, np.int64)
        one, above = total.data, self.above.data
        for start, stop, is_level in reversed(list(levels(self.reach.parent))):
            if is_level:
                np.add.at(total, self.above[start:stop], total[start:stop])
            else:
                for place in range(stop - 1, start - 1, -1):
                    one[above[place]] += one[place]
        return total

    def nearest_above(self, first: Ints, second: Ints) -> Ints:
        """Return for each pair of numbers the nearest that dominates both; it may be one of the two."""
        return _nearest_common(self.above, first, second, self.reach.parent)


def dominators(index: HeapIndex, reached: Reach, *, max_passes: int = _MAX_PASSES) -> DominatorTree:
    """Return the immediate dominators of everything that is *reached*.

    After *max_passes* passes over all edges the rest is computed in plain Python, to the same result.
    """
    above = reached.parent.copy()
    sources, targets = _cross_edges(index, reached)
    for last in (True, False):  # one edge for each object first: most types and modules go right below the roots
        chosen = _one_for_each(targets, len(above), last=last)
        _move_up(above, sources[chosen], targets[chosen], reached.parent)
        sources, targets = _still_open(above, sources, targets)
    # From here on the edge of the tree counts too where its target may have left it: its source may move further.
    is_movable = np.zeros(len(above), bool)
    is_movable[targets] = True
    movable = np.flatnonzero(is_movable)
    sources = np.concatenate([sources, reached.parent[movable]])
    targets = np.concatenate([targets, movable.astype(targets.dtype)])
    for _ in range(max_passes):
        if not _move_up(above, sources, targets, reached.parent):
            return DominatorTree(reached, above)
        sources, targets = _still_open(above, sources, targets)
    return DominatorTree(reached, immediate_dominators(index, reached))


def _cross_edges(index: HeapIndex, reached: Reach) -> tuple[Ints, Ints]:
    """Return the numbers of source and target of all references that could move their target."""
    places = np.repeat(reached.bfs_index, np.diff(index.forward_offsets))
    targets = reached.bfs_index[index.forward_targets]
    before = reached.parent[targets]  # of what is not reached: any
    cross = (places >= 0) & (before != 0) & (before != places) & (places != targets)
    return places[cross], targets[cross]


def _still_open(above: Ints, sources: Ints, targets: Ints) -> tuple[Ints, Ints]:
    """Drop the edges to what has come to the top."""
    is_open = above[targets] != 0
    return sources[is_open], targets[is_open]


def _one_for_each(targets: Ints, n_places: int, *, last: bool) -> Ints:
    """Return the position of one edge for each target that there is: its last or its first one."""
    numbers = np.arange(len(targets))
    edge_of = np.full(n_places, -1, np.int64)
    if last:
        edge_of[targets] = numbers
    else:
        edge_of[targets[::-1]] = numbers[::-1]
    chosen: Ints = edge_of[edge_of >= 0]
    return chosen


def _move_up(above: Ints, sources: Ints, targets: Ints, bfs_parent: Ints) -> bool:
    """Move each target below the nearest common ancestor of its parent and its source; return whether any moved."""
    old = above[targets]
    new = _nearest_common(above, sources, old, bfs_parent)
    moved = new != old
    # All of them are above the target, one above the other: the smallest number is the highest.
    np.minimum.at(above, targets[moved], new[moved])
    return bool(moved.any())


def _nearest_common(above: Ints, first: Ints, second: Ints, bfs_parent: Ints) -> Ints:
    """Return the nearest common ancestor of each pair of numbers, themselves included."""
    result = np.empty(len(first), np.int32)
    pending = np.arange(len(first))
    first, second = first.copy(), second.copy()
    for _ in range(_MAX_STEPS):
        lower, upper = np.maximum(first, second), np.minimum(first, second)
        apart = lower != upper
        done = ~apart
        result[pending[done]] = upper[done]
        pending, upper = pending[apart], upper[apart]
        if not len(pending):
            return result
        first, second = above[lower[apart]], upper  # none is above a smaller one
    result[pending] = Jumps(above, bfs_parent).nearest_common(first, second)
    return result


class Jumps:
    """For each number of a tree one far above it, after Myers ("An applicative random-access stack", 1983).

    With it the way up from a million levels below takes some forty steps.

    Args:
        above: The tree: for each number the one above it, which is smaller; 0 for 0.
        bfs_parent: The breadth-first tree that *above* was made of: in the order of its levels the jumps are found.
    """

    def __init__(self, above: Ints, bfs_parent: Ints) -> None:
        self._above = above
        self._depth = np.zeros(len(above), np.int32)
        self._jump = np.zeros(len(above), np.int32)
        for start, stop, is_level in levels(bfs_parent):
            if is_level:
                self._find_many(start, stop)
            else:
                self._find_one_by_one(start, stop)

    def _find_many(self, start: int, stop: int) -> None:
        depth, jump = self._depth, self._jump
        upper = self._above[start:stop]
        once = jump[upper]
        twice = jump[once]
        is_even = depth[upper] - depth[once] == depth[once] - depth[twice]
        depth[start:stop] = depth[upper] + 1
        jump[start:stop] = np.where(is_even, twice, upper)

    def _find_one_by_one(self, start: int, stop: int) -> None:
        depth, jump, above = self._depth.data, self._jump.data, self._above.data
        for place in range(start, stop):
            upper = above[place]
            once = jump[upper]
            twice = jump[once]
            depth[place] = depth[upper] + 1
            jump[place] = twice if depth[upper] - depth[once] == depth[once] - depth[twice] else upper

    def nearest_common(self, first: Ints, second: Ints) -> Ints:
        """Return the nearest common ancestor of each pair of numbers, themselves included."""
        depth, jump, above = self._depth, self._jump, self._above
        is_first = depth[first] >= depth[second]
        lower, upper = np.where(is_first, first, second), np.where(is_first, second, first)
        lower = self._up_to(lower, depth[upper])
        apart = np.flatnonzero(lower != upper)
        while len(apart):
            a, b = lower[apart], upper[apart]
            far_a, far_b = jump[a], jump[b]
            is_far = far_a != far_b  # equal depths have equal jumps, so the common ancestor is above these
            lower[apart], upper[apart] = np.where(is_far, far_a, above[a]), np.where(is_far, far_b, above[b])
            apart = apart[lower[apart] != upper[apart]]
        return lower

    def _up_to(self, places: Ints, depths: Ints) -> Ints:
        """Return for each number the one above it at that depth."""
        depth, jump, above = self._depth, self._jump, self._above
        places = places.copy()
        below = np.flatnonzero(depth[places] > depths)
        while len(below):
            now = places[below]
            far = jump[now]
            places[below] = np.where(depth[far] >= depths[below], far, above[now])
            below = below[depth[places[below]] > depths[below]]
        return places


def immediate_dominators(index: HeapIndex, reached: Reach) -> Ints:
    """Return for each number of *reached* that of its immediate dominator, 0 for what has none.

    The semi-NCA algorithm of Georgiadis ("Linear-Time Algorithms for Dominators and Related Problems", 2005): the
    semidominators of Lengauer and Tarjan, found with path compression, and the nearest common ancestors of these. One
    object after the other, about ten microseconds each: slower than all at once, but as fast on every graph.
    """
    order, parent = _depth_first(index, reached)
    n_found = len(order)
    number = [0] * n_found  # by place: its position in the order
    for position, place in enumerate(order):
        number[place] = position
    offsets, sources = (array.data for array in index.reverse)
    bfs_index, vertex_of = reached.bfs_index.data, reached.vertex.data
    is_root: list[bool] = (reached.parent == 0).tolist()
    ancestor = list(parent)  # of the forest of what was handled; compressed on the way
    best = list(range(n_found))
    semi = list(range(n_found))
    for position in range(n_found - 1, 0, -1):
        place = order[position]
        lowest = 0 if is_root[place] else parent[position]
        vertex = vertex_of[place]
        for edge in range(offsets[vertex], offsets[vertex + 1]):
            source = bfs_index[sources[edge]]
            if source >= 0:
                found = semi[_best_of(number[source], position, ancestor, best, semi)]
                lowest = min(lowest, found)
        semi[position] = lowest
    dominator = list(parent)
    result = np.zeros(n_found, np.int32)
    for position in range(1, n_found):
        candidate = dominator[position]
        while candidate > semi[position]:
            candidate = dominator[candidate]
        dominator[position] = candidate
        result[order[position]] = order[candidate]
    return result


def _depth_first(index: HeapIndex, reached: Reach) -> tuple[list[int], list[int]]:
    """Return the numbers in the order of a depth-first search, and for each position that of the one it came from."""
    offsets, targets = index.forward_offsets.data, index.forward_targets.data
    bfs_index, vertex_of = reached.bfs_index.data, reached.vertex.data
    n_places = len(reached.parent)
    is_found = bytearray(n_places)
    order, parent = [0], [0]
    is_found[0] = 1
    for root in range(1, int(np.searchsorted(reached.parent, 1))):
        stack = [(root, 0)]
        while stack:
            place, came_from = stack.pop()
            if is_found[place]:
                continue
            is_found[place] = 1
            position = len(order)
            order.append(place)
            parent.append(came_from)
            vertex = vertex_of[place]
            for edge in range(offsets[vertex], offsets[vertex + 1]):
                after = bfs_index[targets[edge]]
                if not is_found[after]:
                    stack.append((after, position))
    return order, parent


def _best_of(position: int, handled_from: int, ancestor: list[int], best: list[int], semi: list[int]) -> int:
    """Return the position with the smallest semidominator on the way up from *position*, among what was handled."""
    if position <= handled_from:
        return position
    path = []
    while ancestor[position] > handled_from:
        path.append(position)
        position = ancestor[position]
    top = position
    for below in reversed(path):
        upper = ancestor[below]
        if semi[best[upper]] < semi[best[below]]:
            best[below] = best[upper]
        ancestor[below] = ancestor[top]
    return best[path[0]] if path else best[top]

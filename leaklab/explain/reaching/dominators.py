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

from leaklab.explain.reaching.reach import Reach, levels
from leaklab.explain.reaching.semi_dominators import immediate_dominators
from leaklab.explain.reaching.tree_jumps import Jumps

if TYPE_CHECKING:
    from leaklab.explain.heap.address_table import Ints
    from leaklab.explain.heap.index import HeapIndex

_MAX_PASSES = 16
"""So often all edges are looked at; real heaps need five to ten. What would need more is computed one by one."""
_MAX_STEPS = 48
"""So many steps up a tree are made one at a time. What is deeper is climbed by jumps."""


@dataclass(frozen=True, slots=True, eq=False)
class DominatorTree:
    """Who alone keeps whom alive.

    Attributes:
        reach: What the roots reach; its places number the objects here too.
        above: For each place the place of its immediate dominator, 0 if no single object keeps it alive.
    """

    reach: Reach
    above: Ints

    def parents(self) -> Ints:
        """Return for each vertex its immediate dominator, `ROOT` for none, `UNREACHED` for what no root reaches."""
        return self.reach.as_parents(self.above)

    def sums(self, weights: Ints) -> Ints:
        """Return for each place the sum of *weights*, one per place, over all that its object dominates, and itself."""
        total: Ints = np.array(weights, np.int64)
        one, above = total.data, self.above.data
        for start, stop, is_level in reversed(list(levels(self.reach.before))):
            if is_level:
                np.add.at(total, self.above[start:stop], total[start:stop])
            else:
                for place in range(stop - 1, start - 1, -1):
                    one[above[place]] += one[place]
        return total

    def nearest_above(self, first: Ints, second: Ints) -> Ints:
        """Return for each pair of places the nearest place that dominates both; one of them may be the other's."""
        return _nearest_common(self.above, first, second, self.reach.before)


def dominators(index: HeapIndex, reached: Reach, *, max_passes: int = _MAX_PASSES) -> DominatorTree:
    """Return the immediate dominators of everything that is *reached*.

    Args:
        index: The heap.
        reached: What its roots reach.
        max_passes: After so many passes over all edges the rest is computed in plain Python, to the same result.
    """
    above = reached.before.copy()
    sources, targets = _cross_edges(index, reached)
    for last in (True, False):  # one edge for each object first: most types and modules go right below the roots
        chosen = _one_for_each(targets, len(above), last=last)
        _move_up(above, sources[chosen], targets[chosen], reached.before)
        sources, targets = _still_open(above, sources, targets)
    # From here on the edge of the tree counts too where its target may have left it: its source may move further.
    is_movable = np.zeros(len(above), bool)
    is_movable[targets] = True
    movable = np.flatnonzero(is_movable)
    sources = np.concatenate([sources, reached.before[movable]])
    targets = np.concatenate([targets, movable.astype(targets.dtype)])
    for _ in range(max_passes):
        if not _move_up(above, sources, targets, reached.before):
            return DominatorTree(reached, above)
        sources, targets = _still_open(above, sources, targets)
    return DominatorTree(reached, immediate_dominators(index, reached))


def _cross_edges(index: HeapIndex, reached: Reach) -> tuple[Ints, Ints]:
    """Return the places of source and target of all references that could move their target."""
    places = np.repeat(reached.place_of, np.diff(index.forward_offsets))
    targets = reached.place_of[index.forward_targets]
    before = reached.before[targets]  # of what is not reached: any
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


def _move_up(above: Ints, sources: Ints, targets: Ints, before: Ints) -> bool:
    """Move each target below the nearest common ancestor of what it is below and of its source; tell if any moved."""
    old = above[targets]
    new = _nearest_common(above, sources, old, before)
    moved = new != old
    # All of them are above the target, one above the other: the smallest place is the highest.
    np.minimum.at(above, targets[moved], new[moved])
    return bool(moved.any())


def _nearest_common(above: Ints, first: Ints, second: Ints, before: Ints) -> Ints:
    """Return the nearest common ancestor of each pair of places, themselves included."""
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
        first, second = above[lower[apart]], upper  # a place is never above a smaller one
    result[pending] = Jumps(above, before).nearest_common(first, second)
    return result

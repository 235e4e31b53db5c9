"""Find immediate dominators one object after the other: slower than all at once, and as fast on every graph.

This is the semi-NCA algorithm of Georgiadis ("Linear-Time Algorithms for Dominators and Related Problems", 2005): the
semidominators of Lengauer and Tarjan, found with path compression, and the nearest common ancestors of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from leaklab.explain.heap.address_table import Ints
    from leaklab.explain.heap.index import HeapIndex
    from leaklab.explain.reaching.reach import Reach


def immediate_dominators(index: HeapIndex, reached: Reach) -> Ints:
    """Return for each place of *reached* the place of its immediate dominator, 0 for what has none.

    About ten microseconds per object.
    """
    order, parent = _depth_first(index, reached)
    n_found = len(order)
    number = [0] * n_found  # by place: its position in the order
    for position, place in enumerate(order):
        number[place] = position
    offsets, sources = (array.data for array in index.reverse)
    place_of, vertex_at = reached.place_of.data, reached.vertex_at.data
    is_root = _roots(reached)
    ancestor = list(parent)  # of the forest of what was handled; compressed on the way
    best = list(range(n_found))
    semi = list(range(n_found))
    for position in range(n_found - 1, 0, -1):
        place = order[position]
        lowest = 0 if is_root[place] else parent[position]
        vertex = vertex_at[place]
        for edge in range(offsets[vertex], offsets[vertex + 1]):
            source = place_of[sources[edge]]
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


def _roots(reached: Reach) -> list[bool]:
    """Return for each place whether it is a root."""
    is_root: list[bool] = (reached.before == 0).tolist()
    return is_root


def _depth_first(index: HeapIndex, reached: Reach) -> tuple[list[int], list[int]]:
    """Return the places in the order of a depth-first search, and for each position that of the one it came from."""
    offsets, targets = index.forward_offsets.data, index.forward_targets.data
    place_of, vertex_at = reached.place_of.data, reached.vertex_at.data
    n_places = len(reached.before)
    is_found = bytearray(n_places)
    order, parent = [0], [0]
    is_found[0] = 1
    for root in range(1, int(np.searchsorted(reached.before, 1))):
        stack = [(root, 0)]
        while stack:
            place, came_from = stack.pop()
            if is_found[place]:
                continue
            is_found[place] = 1
            position = len(order)
            order.append(place)
            parent.append(came_from)
            vertex = vertex_at[place]
            for edge in range(offsets[vertex], offsets[vertex + 1]):
                after = place_of[targets[edge]]
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

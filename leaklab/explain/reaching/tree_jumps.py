"""Climb deep trees by jumps, so that the way up from a million levels below takes some forty steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from leaklab.explain.reaching.reach import levels

if TYPE_CHECKING:
    from leaklab.explain.heap.address_table import Ints


class Jumps:
    """For each place of a tree one place far above it, after Myers ("An applicative random-access stack", 1983).

    Args:
        above: The tree: for each place the one above it, which is smaller; 0 for place 0.
        before: The breadth-first tree that *above* was made of: in the order of its levels the jumps are found.
    """

    def __init__(self, above: Ints, before: Ints) -> None:
        self._above = above
        self._depth = np.zeros(len(above), np.int32)
        self._jump = np.zeros(len(above), np.int32)
        for start, stop, is_level in levels(before):
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
        """Return the nearest common ancestor of each pair of places, themselves included."""
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
        """Return for each place the one above it at that depth."""
        depth, jump, above = self._depth, self._jump, self._above
        places = places.copy()
        below = np.flatnonzero(depth[places] > depths)
        while len(below):
            now = places[below]
            far = jump[now]
            places[below] = np.where(depth[far] >= depths[below], far, above[now])
            below = below[depth[places[below]] > depths[below]]
        return places

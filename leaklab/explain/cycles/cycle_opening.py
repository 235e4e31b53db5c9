"""Choose the references whose removal opens a whole tangle of immortal cycles, not only the one that is shown."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from leaklab.explain.cycles.cycle_cuts import Offer, best_offer
from leaklab.explain.cycles.region import Region
from leaklab.explain.view import HeapView

_MAX_CUTS = 1000
_Numbers = npt.NDArray[np.int64]


def openings(
    view: HeapView, region: Region, component: int, crossing: npt.NDArray[np.bool_]
) -> tuple[list[Offer], bool]:
    """Return references to remove so that no cycle through C++ is left in *component*.

    A model whose parameters all carry a second-order gradient is one component with a cycle per parameter.

    Returns:
        How to cut each of them, nothing done yet; and whether that opens all: a cycle may have no reference that is
        safe to remove.
    """
    positions = region.references_within(component)
    tangle = _Tangle(region.sources[positions], region.targets[positions], crossing[positions])
    offers: list[Offer] = []
    is_open = True
    while len(offers) < _MAX_CUTS:
        cycle = tangle.cycle()
        if not cycle:
            return offers, is_open
        things = [view.objects[int(region.vertices[place])] for place in cycle]
        offer = best_offer(things)
        if offer is None or offer.perform is None:
            is_open = False
            tangle.remove(cycle[0], cycle[1 % len(cycle)])
            continue
        at = next(at for at, thing in enumerate(things) if thing is offer.joint.held)
        tangle.remove(cycle[at - 1], cycle[at])
        offers.append(offer)
    return offers, False


class _Tangle:
    """The references within a component, of which some are taken away."""

    def __init__(self, sources: _Numbers, targets: _Numbers, crossing: npt.NDArray[np.bool_]) -> None:
        places, ends = np.unique(np.concatenate([sources, targets]), return_inverse=True)
        self._places = places
        self._sources, self._targets = ends[: len(sources)], ends[len(sources) :]
        self._crossing = crossing

    def remove(self, source: int, target: int) -> None:
        """Take away the references from one place to another."""
        first, second = np.searchsorted(self._places, [source, target])
        kept = (self._sources != first) | (self._targets != second)
        self._sources, self._targets = self._sources[kept], self._targets[kept]
        self._crossing = self._crossing[kept]

    def cycle(self) -> list[int]:
        """Return the places of a short cycle whose first reference crosses C++; empty if there is none."""
        size = len(self._places)
        ones = np.ones(len(self._sources), np.int8)
        graph = csr_array((ones, (self._sources, self._targets)), shape=(size, size))
        _count, part = connected_components(graph, connection="strong")
        inner = part[self._sources] == part[self._targets]
        chosen = np.flatnonzero(self._crossing & inner)
        if not len(chosen):
            return []
        source, target = int(self._sources[chosen[0]]), int(self._targets[chosen[0]])
        followers: dict[int, list[int]] = {}
        for one, other in zip(self._sources[inner].tolist(), self._targets[inner].tolist(), strict=True):
            followers.setdefault(one, []).append(other)
        return [int(self._places[place]) for place in _way_back(followers, source, target)]


def _way_back(followers: dict[int, list[int]], source: int, target: int) -> list[int]:
    """Return the shortest cycle that begins with the reference from *source* to *target*."""
    before = {target: source}
    queue = deque([target])
    while source not in before:
        place = queue.popleft()
        for after in followers.get(place, ()):
            if after not in before:
                before[after] = place
                queue.append(after)
    cycle = [source]
    while (place := before[cycle[-1]]) != source:
        cycle.append(place)
    return [source, *reversed(cycle[1:])]

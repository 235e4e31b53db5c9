"""Find in the live heap what the spots of leaks stand for: places to watch, and survivors of the traced runs."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from leaklab.addresses import addresses_of
from leaklab.collect.line_watch import Line
from leaklab.collect.measure import Measurement
from leaklab.collect.watchpoints import Watchpoint, watchpoint
from leaklab.explain.cycles import group_orphans
from leaklab.explain.groups import group_survivors
from leaklab.explain.spots import Spot
from leaklab.explain.view import Births, HeapView, heap_view
from leaklab.places import join_groups

_MAX_POINTS = 32
_N_LINKS = 3
"""The last object of a chain, its owner, and the owner's owner: more is never asked for."""


def resolve(measurement: Measurement, spots: Sequence[Spot], namespace: dict[str, Any] | None) -> list[Watchpoint]:
    """Return watches over the places of *spots*; no code of the user may have run since these were noted."""
    chains = [_with_namespace(spot, namespace) for spot in spots[:_MAX_POINTS]]
    wanted = np.array([address for chain in chains for address in chain[-_N_LINKS:]], np.int64)
    known: dict[int, object] = {} if namespace is None else {id(namespace): namespace}
    try:
        with measurement.heap() as objects:
            for place in np.flatnonzero(np.isin(addresses_of(objects), wanted)).tolist():
                known[id(objects[place])] = objects[place]
        points = [
            watchpoint(spot.fingerprint, _objects_of(chain, known), grows=spot.grows)
            for spot, chain in zip(spots, chains, strict=False)
            if chain
        ]
    finally:
        known.clear()
    return [point for point in points if point is not None]


def _with_namespace(spot: Spot, namespace: dict[str, Any] | None) -> tuple[int, ...]:
    """Return the chain from the dict of the user's variables on, where it begins with one of them."""
    return (id(namespace), *spot.chain) if spot.variable and namespace is not None else spot.chain


def _objects_of(chain: tuple[int, ...], known: dict[int, object]) -> list[object]:
    """Return the last objects of *chain*; what the collector does not list is looked for in what refers to it."""
    found: list[object] = []
    for address in chain[-_N_LINKS:]:
        thing = known.get(address)
        if thing is None and found:
            thing = _referent(found[-1], address)
        found.append(_UNKNOWN if thing is None else thing)
    return found


class _Unknown:
    """Stands for an object that only hidden references lead to."""


_UNKNOWN = _Unknown()


def _referent(owner: object, address: int) -> object:
    for referent in gc.get_referents(owner):
        if id(referent) == address:
            return referent
        if type(referent) is dict:
            for value in dict.values(referent):
                if id(value) == address:
                    return value
    return None


def survivors_by_leak(
    measurement: Measurement,
    n_before: int,
    namespace: dict[str, Any] | None,
    made: dict[int, Line],
    fingerprints: Collection[str],
) -> dict[str, Counter[Line]]:
    """Count for each of *fingerprints* the lines that made what the traced runs left there.

    Args:
        measurement: With the traced runs after the counted ones.
        n_before: Counted runs.
        namespace: The user's variables.
        made: For the address of each survivor of a traced run the line that made it.
        fingerprints: Of the leaks whose lines are wanted.
    """
    measurement.forget_the_dead()
    addresses, _kinds, runs = measurement.cohorts.members()
    births = Births(addresses, runs, measurement.n_runs)
    with (
        measurement.heap() as objects,
        heap_view(objects, births, namespace, (measurement, made), summaries=False) as view,
    ):
        groups, orphans = group_survivors(view)
        joined = join_groups(view, groups, measurement.n_runs)
        places = [(group.fingerprint, group.members) for group in (*joined, *groups)]
        places += [(cycle.fingerprint, cycle.members) for cycle in group_orphans(view, orphans)]
        lines: dict[str, Counter[Line]] = {}
        for fingerprint, members in places:
            if fingerprint in fingerprints and fingerprint not in lines:
                lines[fingerprint] = _lines(view, members, n_before, made)
    return lines


def _lines(view: HeapView, members: Iterable[int], n_before: int, made: dict[int, Line]) -> Counter[Line]:
    """Count the lines of the tensors among *members*, or of all of them where there is none."""
    new = np.array([member for member in members if view.run_of[member] >= n_before], np.int64)
    tensors = new[view.is_tensor[new]] if len(new) else new
    chosen = tensors if len(tensors) else new
    return Counter(made[address] for address in view.index.ids[chosen].tolist() if address in made)

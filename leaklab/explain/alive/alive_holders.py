"""List what refers to an object directly, and what else refers to the objects on its paths."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import FrameType, ModuleType
from typing import cast

import numpy as np
import numpy.typing as npt

from leaklab.addresses import object_at
from leaklab.explain.alive.refcounts import Holders
from leaklab.explain.references import best_reference
from leaklab.explain.view import HeapView
from leaklab.model.alive import DirectReference, FanIn
from leaklab.objects import is_kind_of, type_name

MAX_REFERENCES = 200
_NEVER = np.iinfo(np.int64).max
_MAX_KINDS = 5  # of the types that refer to one object, told one by one
_MAX_FOLLOWED = 2_000
"""Of so many referrers is asked whether they are reached otherwise than through the object; more count as reached."""
_MAX_PLACES = 40
"""Objects on the paths for which others that refer to them are counted, those nearest to the end first."""


def direct_references(view: HeapView, vertex: int, holders: Holders) -> tuple[list[DirectReference], int]:
    """Return what refers to the object at *vertex*, what a root reaches first, and how many there are."""
    cost = np.where(view.tree.root_of[holders.vertices] < 0, _NEVER, view.tree.cost[holders.vertices])
    cost[holders.vertices == view.namespace] = 0
    order = np.lexsort((holders.vertices, cost))[: 2 * MAX_REFERENCES].tolist()
    rows: list[tuple[bool, int, int, int, bool]] = []
    for place in order:
        holder = int(holders.vertices[place])
        is_lost = not is_reached_without(view, holder, vertex)
        rows += [(is_lost, len(rows), holder, int(n), False) for n in (holders.n_python[place],) if n]
        rows += [(is_lost, len(rows), holder, int(n), True) for n in (holders.n_cpp[place],) if n]
    rows.sort()
    found = [
        _described(view, vertex, holder, n, from_cpp=from_cpp, is_reached=not is_lost)
        for is_lost, _, holder, n, from_cpp in rows[:MAX_REFERENCES]
    ]
    return found, int(holders.n_python.sum() + holders.n_cpp.sum())


def is_reached_without(view: HeapView, holder: int, vertex: int) -> bool:
    """Return whether a root reaches *holder*, on its cheapest path, otherwise than through *vertex*."""
    if holder == view.namespace:
        return True
    while holder >= 0:
        if holder == vertex:
            return False
        if view.tree.root_of[holder] < 0:
            return False
        holder = int(view.tree.parent[holder])
    return True


def _described(
    view: HeapView, vertex: int, holder: int, count: int, *, from_cpp: bool, is_reached: bool
) -> DirectReference:
    thing, source = view.objects[vertex], view.objects[holder]
    reference, owner = "", ""
    if is_reached:
        described = view.describe_child(holder, thing)
        reference = described.path.steps[-1].reference
        if len(described.expressions) > 1:
            owner = described.expressions[-2] or " ".join(step.reference for step in described.path.steps[:-1])
        elif holder == view.namespace:
            owner = "globals()"
        else:
            owner = described.path.root
    else:
        reference = best_reference(source, thing).text
        owner = f"{type_name(type(source))} that no variable reaches"
    return DirectReference(owner, reference, type_name(type(source)), count, from_cpp, is_reached)


def fan_in(view: HeapView, places: Mapping[int, int], shown: Collection[tuple[int, int]]) -> Iterator[FanIn]:
    """Yield by type what else refers to the objects on the paths.

    Args:
        view: The heap.
        places: The number of each object on a path, the nearest to the end first.
        shown: The references on the paths, as pairs of vertices, inner parts included.
    """
    for vertex, number in list(places.items())[:_MAX_PLACES]:
        thing = view.objects[vertex]
        if is_kind_of(thing, type) or is_kind_of(thing, ModuleType):
            continue  # every instance refers to its class
        others = _others(view, vertex, shown)
        kinds, firsts, counts = np.unique(view.kinds[others], return_index=True, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:_MAX_KINDS]
        for place in order.tolist():
            kind = cast("type", object_at(int(kinds[place])))
            if kind is not FrameType:
                yield FanIn(number, type_name(kind), int(counts[place]), _expression(view, int(others[firsts[place]])))


def _others(view: HeapView, vertex: int, shown: Collection[tuple[int, int]]) -> npt.NDArray[np.int64]:
    """Return what a root reaches, refers to *vertex* and is not shown; the cheapest to reach first."""
    others = np.unique(view.index.referrers(vertex)).astype(np.int64)
    others = others[(view.tree.root_of[others] >= 0) | (others == view.namespace)]
    others = others[~np.isin(others, [holder for holder, held in shown if held == vertex])]
    if len(others) <= _MAX_FOLLOWED:
        kept = [is_reached_without(view, holder, vertex) for holder in others.tolist()]
        others = others[np.array(kept, bool)]
    cheapest_first: npt.NDArray[np.int64] = others[np.argsort(view.tree.cost[others], kind="stable")]
    return cheapest_first


def _expression(view: HeapView, vertex: int) -> str:
    if vertex == view.namespace:
        return "globals()"
    return view.describe(vertex).expressions[-1] or ""

"""Explain the reference counts of an object: who has each reference, how many nobody visible has."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from leaklab.heap.names import best_reference, name_references
from leaklab.heap.running import local_variables
from leaklab.heap.view import HeapView
from leaklab.model.alive import AutogradHolder, CountItem, Counts, DirectReference, FanIn
from leaklab.runtime.addresses import object_at, types_at
from leaklab.runtime.autograd_graph import is_node_type
from leaklab.runtime.objects import has_base, is_kind_of, is_tensor, loaded_type, no_torch_functions, summary, type_name
from leaklab.runtime.referents import get_referents

_N_NAMED = 6
"""So many types of holders are listed one by one, the others as one item."""
MAX_REFERENCES = 200
_NEVER = np.iinfo(np.int64).max
_MAX_KINDS = 5  # of the types that refer to one object, listed one by one
_MAX_FOLLOWED = 2_000
"""Of so many referrers is asked whether they are reached otherwise than through the object; more count as reached."""
_MAX_PLACES = 40
"""Objects on the paths for which others that refer to them are counted, those nearest to the end first."""
MAX_HOLDERS = 20
_MAX_STEPS = 20_000
"""Of the way from a node up to the tensor that carries its graph."""


@dataclass(frozen=True, slots=True)
class RawCounts:
    """Reference counts as they were before anything was looked at: looking makes references of its own.

    Attributes:
        python: Python's count, without the one reference of the question.
        use_count: torch's count of the C++ owners; None for anything but a tensor.
    """

    python: int
    use_count: int | None


def read_counts(borrowed: list[Any]) -> RawCounts:
    """Return the counts of the only item of *borrowed*, that list's own reference left out."""
    probe = [object()]
    own = sys.getrefcount(probe[0])  # of an object that only such a list holds: whatever this Python counts for that
    return RawCounts(sys.getrefcount(borrowed[0]) - own, _use_count(borrowed[0]))


def _use_count(thing: Any) -> int | None:
    if not is_tensor(thing):
        return None
    read = getattr(loaded_type("torch", "Tensor"), "_use_count", None)
    if read is None:  # torch before 2.1
        return None
    with no_torch_functions():
        try:
            return int(read(thing))
        except (RuntimeError, TypeError):
            return None


@dataclass(frozen=True, slots=True, eq=False)
class Holders:
    """What refers to an object directly, as parallel arrays.

    Attributes:
        vertices: Each holder once, ascending.
        n_python: How many references of Python each has to the object.
        n_cpp: How many of C++.
    """

    vertices: npt.NDArray[np.int64]
    n_python: npt.NDArray[np.int64]
    n_cpp: npt.NDArray[np.int64]


def holders_of(view: HeapView, vertex: int) -> Holders:
    """Return what refers to the object at *vertex*."""
    vertices, counts = np.unique(view.index.referrers(vertex), return_counts=True)
    vertices, n_python = vertices.astype(np.int64), counts.astype(np.int64)
    n_cpp = np.zeros_like(n_python)
    # Only these have references that the collector does not report: a class may have a million instances.
    kinds = types_at(view.kinds[vertices]) if len(vertices) else {}
    special = [address for address, kind in kinds.items() if kind is FrameType or _is_array_type(kind)]
    is_special = view.is_tensor[vertices] | view.in_graph[vertices] | np.isin(view.kinds[vertices], special)
    for place in np.flatnonzero(is_special).tolist():
        n_python[place], n_cpp[place] = _split(
            view.objects[int(vertices[place])], view.objects[vertex], int(counts[place])
        )
    return Holders(vertices, n_python, n_cpp)


def _split(source: object, thing: object, count: int) -> tuple[int, int]:
    """Return how many of the *count* references of *source* to *thing* are Python's, and how many C++'s."""
    if type(source) is FrameType:
        return _n_locals(source, thing), 0
    if _is_array_type(type(source)):  # the collector does not track arrays: all of their references are Python's
        return count, 0
    n_seen = sum(1 for inner in get_referents(source) if inner is thing)
    return min(n_seen, count), max(count - n_seen, 0)


def explain_counts(view: HeapView, holders: Holders, raw: RawCounts) -> Counts:
    """Return *raw* with its parts in words.

    A tensor's Python object has one reference more than Python sees as soon as C++ owns the tensor too: then torch
    keeps the object for the tensor, where it is else the other way round.
    """
    python_items = _items(view, holders.vertices, holders.n_python)
    if raw.use_count is None:
        return Counts(raw.python, python_items)
    if raw.use_count > 1:
        python_items += (CountItem("torch, for the C++ owners of the tensor", 1),)
    own = CountItem("its Python object", 1)
    return Counts(raw.python, python_items, raw.use_count, (own, *_items(view, holders.vertices, holders.n_cpp)))


def _n_locals(frame: FrameType, thing: object) -> int:
    """Return how many local variables of a running function are *thing*; a variable in a cell is the cell's."""
    in_cells = {*frame.f_code.co_cellvars, *frame.f_code.co_freevars}
    return sum(1 for name, value in local_variables(frame) if value is thing and name not in in_cells)


def _is_array_type(kind: type) -> bool:
    array = loaded_type("numpy", "ndarray")
    return array is not None and has_base(kind, array)


def _items(view: HeapView, vertices: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> tuple[CountItem, ...]:
    """Return the sum of *counts* for each type of holder, the largest first."""
    kinds, places = np.unique(view.kinds[vertices], return_inverse=True)
    sums: Counter[str] = Counter()
    for kind, total in zip(kinds.tolist(), np.bincount(places, counts, len(kinds)).tolist(), strict=True):
        if total:
            sums[type_name(cast("type", object_at(kind)))] += int(total)
    named = sums.most_common(_N_NAMED)
    rest = sum(sums.values()) - sum(count for _kind, count in named)
    items = [CountItem(kind, count) for kind, count in named]
    return (*items, CountItem("objects of other types", rest)) if rest else tuple(items)


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


def autograd_holders(view: HeapView, vertex: int) -> tuple[tuple[AutogradHolder, ...], int]:
    """Return the nodes that hold the object at *vertex*, with who carries their graph, and how many nodes there are."""
    nodes = [u for u in np.unique(view.index.referrers(vertex)).tolist() if is_node_type(type(view.objects[u]))]
    rows = []
    for node in nodes[:MAX_HOLDERS]:
        names = name_references(view.objects[node], view.objects[vertex])
        role = ", ".join(name.text for name in names) or "unnamed"
        carrier = _carrier(view, node)
        words, kind = ("", "") if carrier is None else _tensor_words(view, carrier, vertex)
        rows.append(AutogradHolder(type_name(type(view.objects[node])), role, words, kind))
    return tuple(rows), len(nodes)


def _carrier(view: HeapView, node: int) -> int | None:
    """Return the nearest tensor above *node* that something else than a graph holds; None if none was found."""
    seen, queue = {node}, deque([node])
    while queue and len(seen) < _MAX_STEPS:
        for above in view.index.referrers(queue.popleft()).tolist():
            if above in seen:
                continue
            seen.add(above)
            if view.is_tensor[above] and not view.in_graph[above]:
                return int(above)
            if view.in_graph[above]:
                queue.append(above)
    return None


def _tensor_words(view: HeapView, carrier: int, vertex: int) -> tuple[str, str]:
    thing = view.objects[carrier]
    kind = f"{type_name(type(thing))} {summary(thing) if view.summaries else ''}".strip()
    if carrier == vertex:
        return "the object itself", kind
    if not view.is_reached(carrier):
        return "a tensor that no variable reaches", kind
    described = view.describe(carrier)
    return described.expressions[-1] or str(described.path.steps[-1].reference), kind

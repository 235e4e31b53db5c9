"""Say who holds the largest tensors, and arrays and bytes as large: one row for each holder, its data added up."""

from __future__ import annotations

import array
import gc
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import numpy as np

from leaklab.heap.paths import Described
from leaklab.heap.roots import local_variables
from leaklab.heap.view import HeapView
from leaklab.model import RootPath, Status
from leaklab.model.process import HeldTensors
from leaklab.runtime.addresses import get_referents
from leaklab.runtime.objects import is_kind_of, loaded_type, summary, type_name
from leaklab.runtime.sizes import storages_of

_MOST_LOOKED_UP = 400
"""Storages whose path is looked up, the largest first: 0.1 to 1 ms each."""
_NEAREST = 4
"""So many objects above a smaller one are asked whose it is: its dict, the list of these, what has the list."""
_MOST_HOLDERS = 300_000
"""Objects asked for the arrays that they refer to: 1 microsecond each."""
_BUFFERS = frozenset(map(id, (np.ndarray, bytes, bytearray, array.array)))
_UNTRACKED = frozenset(map(id, (dict, tuple)))  # where nothing in them is tracked
_DEEPEST = 3
_COST_OF_LIBRARIES = 16  # what a path from a module of a library costs; from anything of the user's it is less
_STEPS_TO_MODULE = 3  # its table of parameters, perhaps its dict, the module
_MOST_REFERRERS = 64
_LEAST_SHARE = 0.01
"""A holder of less than this part of all tensors is not worth a row."""
_UNREACHED = "no variable holds it: a running expression uses it, or C++ code holds it"
_Key = tuple[object, ...]
_NOT_ASKED: _Key = ()


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage by one of the tensors that show it, or an array by what refers to it.

    Attributes:
        place: Position of that tensor, or of what refers to the array.
        n_bytes: Its size.
        below: For an array the objects that lead from there to it, itself last; the user's: not to be kept.
    """

    place: int
    n_bytes: int
    below: tuple[Any, ...] = ()


def storages_by_size(objects: Sequence[Any], places: Iterable[int]) -> list[Storage]:
    """Return the storages of the tensors at *places* of *objects*, each once, the largest first.

    Args:
        objects: Live objects.
        places: Positions of tensors; the first that shows a storage stands for it.
    """
    found: dict[int, Storage] = {}
    for place in places:
        for key, n_bytes in storages_of(objects[place]) or ():
            if key not in found:
                found[key] = Storage(place, n_bytes)
    return sorted(found.values(), key=lambda storage: -storage.n_bytes)


def storages_by_path(view: HeapView) -> list[Storage]:
    """Return all storages, the largest first, each by the tensor to which the shortest path leads."""
    nearest_first = sorted(view.tensors, key=lambda vertex: int(view.tree.cost[vertex]))
    return storages_by_size(view.objects, nearest_first)


def buffers_by_size(view: HeapView) -> tuple[list[Storage], bool]:
    """Return the arrays of numpy, bytes and the like that the program holds, the largest first; and whether all.

    The collector does not track them, so they are no vertices: the place of each is what refers to it. Looked at is
    what the user's variables, modules and running functions lead to, the nearest first; not what libraries hold. The
    memory of a tensor that an array shares is the tensor's.
    """
    costs = np.array([start.cost for start in view.starts], np.int64)
    is_users = (view.tree.root_of >= 0) & (costs[view.tree.root_of] < _COST_OF_LIBRARIES)
    if view.namespace >= 0:
        is_users[view.namespace] = True
    vertices = np.flatnonzero(is_users)
    nearest = vertices[np.argsort(view.tree.cost[vertices], kind="stable")]
    found: dict[int, Storage] = {}
    for vertex in nearest[:_MOST_HOLDERS].tolist():
        for below in _untracked_below((view.objects[vertex],)):
            buffer = _owner(below[-1])
            if buffer is not None and id(buffer) not in found:
                found[id(buffer)] = Storage(vertex, _bytes_of(buffer), below[1:])
    return sorted(found.values(), key=lambda storage: -storage.n_bytes), len(nearest) <= _MOST_HOLDERS


def _untracked_below(chain: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the ways from the last of *chain* to arrays and bytes, also through dicts and tuples of nothing else."""
    last = chain[-1]
    is_frame = type(last) is FrameType  # of one that runs, the collector does not tell the variables
    for thing in [value for _, value in local_variables(last)] if is_frame else get_referents(last):
        kind = id(type(thing))
        if kind in _BUFFERS:
            yield (*chain, thing)
        elif kind in _UNTRACKED and len(chain) <= _DEEPEST and not gc.is_tracked(thing):
            yield from _untracked_below((*chain, thing))


def _owner(buffer: Any) -> Any:
    """Return what owns the memory that *buffer* shows; None if it is neither an array nor bytes."""
    while type(buffer) is np.ndarray and buffer.base is not None:
        buffer = buffer.base
    return buffer if id(type(buffer)) in _BUFFERS else None


def _bytes_of(buffer: Any) -> int:
    return int(buffer.nbytes) if type(buffer) is np.ndarray else sys.getsizeof(buffer)


def held_by(view: HeapView, storages: Sequence[Storage], limit: int) -> tuple[HeldTensors, ...]:
    """Return who holds *storages*, whose places are vertices of *view*; *limit* holders at most.

    Of very many, the smaller ones are added to the holder of larger ones that lie in the same container. What lies in
    none is a row without a holder.
    """
    groups: dict[_Key, list[Storage]] = {}
    names: dict[_Key, str] = {}
    inside: dict[tuple[int, bool], _Key] = {}  # objects that are the holder, or lie in it
    ordered = sorted(storages, key=lambda storage: -storage.n_bytes)
    for storage in ordered[:_MOST_LOOKED_UP]:
        holder, name, owner = _holder(view, storage)
        is_array = bool(storage.below)
        key = (*holder, is_array)
        names.setdefault(key, name)  # that of the largest
        groups.setdefault(key, []).append(storage)
        nearest = _above(view, storage)
        if owner in nearest:
            inside |= {(vertex, is_array): key for vertex in nearest[: nearest.index(owner) + 1]}
    for storage in ordered[_MOST_LOOKED_UP:]:
        places = ((vertex, bool(storage.below)) for vertex in _above(view, storage))
        key = next((inside[place] for place in places if place in inside), _NOT_ASKED)
        groups.setdefault(key, []).append(storage)
    names[_NOT_ASKED] = ""
    rows = sorted((_row(view, names[key], group) for key, group in groups.items()), key=lambda row: -row.n_bytes)
    least = _LEAST_SHARE * sum(storage.n_bytes for storage in storages)
    return tuple(row for row in rows[:limit] if row.n_bytes >= least)


def _above(view: HeapView, storage: Storage) -> list[int]:
    """Return the nearest objects on the path to *storage*, the nearest first; not the variables of the program."""
    found: list[int] = []
    vertex = storage.place if storage.below else int(view.tree.parent[storage.place])
    while vertex >= 0 and vertex != view.namespace and len(found) < _NEAREST:
        found.append(vertex)
        vertex = int(view.tree.parent[vertex])
    return found


def _row(view: HeapView, holder: str, group: list[Storage]) -> HeldTensors:
    largest = group[0]
    return HeldTensors(
        holder=holder,
        what=tensor_text(largest.below[-1] if largest.below else view.objects[largest.place], summaries=view.summaries),
        n_tensors=len(group),
        n_bytes=sum(storage.n_bytes for storage in group),
        largest_bytes=largest.n_bytes,
        path=_path(view, largest) if holder else None,
        unit="arrays" if largest.below else "tensors",
    )


def _described(view: HeapView, storage: Storage) -> tuple[Described, list[object]]:
    """Return the path to a tensor or an array, which must be reached, and the objects that it was made of."""
    if storage.below:
        things = [view.objects[vertex] for vertex in view.path(storage.place)] or [view.objects[storage.place]]
        return view.describe_child(storage.place, *storage.below), [*things, *storage.below]
    vertex = _in_module(view, storage.place)
    return view.describe(vertex), [view.objects[passed] for passed in view.path(vertex)]


def _path(view: HeapView, storage: Storage) -> RootPath | None:
    """Return the path to a tensor or an array; nobody has judged what is on it."""
    if not view.is_reached(storage.place):
        return None
    path = _described(view, storage)[0].path
    return replace(path, steps=tuple(replace(step, status=Status.UNKNOWN) for step in path.steps))


def tensor_text(tensor: object, *, summaries: bool = True) -> str:
    """Return type, shape, dtype and device of *tensor*; of an array what it has of these."""
    return " ".join(filter(None, (type_name(type(tensor)), summary(tensor) if summaries else "")))


def _holder(view: HeapView, storage: Storage) -> tuple[_Key, str, int]:
    """Return what tells the holder of a tensor or an array from others, its name, its vertex or -1.

    The parameters of a model and their gradients are the model's, what an optimizer keeps is the optimizer's, and the
    items of a container are the container's.
    """
    if not view.is_reached(storage.place):
        return (_UNREACHED,), _UNREACHED, -1
    described, things = _described(view, storage)
    graph = described.graph_owner
    inner = described if graph is None else graph
    n_steps = _n_steps(inner, [things[position] for position in inner.positions])
    of = _first(inner, n_steps)
    name = of.name if graph is None else f"the graph of {of.name}"
    owner = view.index.vertex_of(id(things[inner.positions[n_steps - 1]])) if graph is None and n_steps else -1
    return (inner.path.root, of.stable, graph is not None), name, owner


def _is_a(thing: object, module: str, name: str) -> bool:
    kind = loaded_type(module, name)
    return kind is not None and is_kind_of(thing, kind)


def _in_module(view: HeapView, vertex: int) -> int:
    """Return the module whose parameter, or gradient of one, the tensor at *vertex* is; *vertex* if it is neither.

    The nearest path to a parameter may lead through an optimizer, which is not what has it.
    """
    near = [vertex, *view.path(vertex)[-2:-1]]
    parameter = next((v for v in near if _is_a(view.objects[v], "torch.nn", "Parameter")), None)
    if parameter is None:
        return vertex
    holders = [parameter]
    for _ in range(_STEPS_TO_MODULE):
        holders = [int(v) for holder in holders for v in view.index.referrers(holder)[:_MOST_REFERRERS]]
        modules = [v for v in holders if _is_a(view.objects[v], "torch.nn", "Module") and view.is_reached(v)]
        if modules:
            return min(modules, key=lambda v: int(view.tree.cost[v]))
        holders = [v for v in holders if type(view.objects[v]) is dict]
    return vertex


def _n_steps(described: Described, things: Sequence[object]) -> int:
    """Return how many steps of the path lead to the holder."""
    for number, thing in enumerate(things):
        if _is_a(thing, "torch.optim.optimizer", "Optimizer"):
            return number + 1
    if _is_a(things[-1], "torch.nn", "Module"):
        return next(number for number, thing in enumerate(things) if _is_a(thing, "torch.nn", "Module")) + 1
    n_steps = len(things)
    while n_steps > 1 and described.path.steps[n_steps - 1].reference.startswith("["):
        n_steps -= 1
    return n_steps


def _first(described: Described, n_steps: int) -> Described:
    """Return the first *n_steps* steps of a path."""
    path = RootPath(described.path.root, described.path.steps[:n_steps])
    return Described(path, described.expressions[:n_steps], described.stable[:n_steps], described.positions[:n_steps])

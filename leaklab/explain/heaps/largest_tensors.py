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
from leaklab.heap.running import local_variables
from leaklab.heap.view import HeapView
from leaklab.model import RootPath, Status
from leaklab.model.process import HeldTensors
from leaklab.runtime.objects import is_kind_of, loaded_type, safe_len, summary, type_name
from leaklab.runtime.referents import get_referents
from leaklab.runtime.sizes import storages_of

_MOST_LOOKED_UP = 400
"""Storages whose path is looked up, the largest first: 0.1 to 1 ms each."""
_NEAREST = 8
"""So many objects above a storage are asked whose it is: its object, what has that, its dict, the list of these."""
_MANY_ENTRIES = 32
"""What lies deeper in a container of so many entries is the container's, by whatever keys these are found."""
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

    What lies in the same container as larger ones is added to their holder. Of very many, what lies in none is a row
    without a holder.
    """
    groups: dict[_Key, list[Storage]] = {}
    places: dict[_Key, set[str]] = {}
    holders: dict[_Key, _Holder] = {_NOT_ASKED: _Holder(_NOT_ASKED, "", "")}
    inside: dict[tuple[int, bool], _Key] = {}  # objects that are the holder, or lie in it
    containers: dict[tuple[int, bool], _Key] = {}  # the holders among them whose items it is all the same
    n_looked_up = 0
    for storage in sorted(storages, key=lambda storage: -storage.n_bytes):
        nearest, is_array = _above(view, storage), bool(storage.below)
        is_asked = n_looked_up < _MOST_LOOKED_UP
        known = containers if is_asked else inside
        key = next((known[vertex, is_array] for vertex in nearest if (vertex, is_array) in known), _NOT_ASKED)
        place = ""
        if is_asked and key == _NOT_ASKED:
            n_looked_up += 1
            holder = _holder(view, storage)
            key = (*holder.key, is_array)
            place = holder.place
            holders.setdefault(key, holder)  # that of the largest
            if holder.vertex in nearest:
                between = nearest[: nearest.index(holder.vertex) + 1]
                inside |= {(vertex, is_array): key for vertex in between}
                if holder.is_container:
                    containers[holder.vertex, is_array] = key
        groups.setdefault(key, []).append(storage)
        places.setdefault(key, set()).add(place)
    named = ((holders[key].place if len(places[key]) == 1 else holders[key].name, groups[key]) for key in groups)
    rows = sorted((_row(view, name, group) for name, group in named), key=lambda row: -row.n_bytes)
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


@dataclass(frozen=True, slots=True)
class _Holder:
    """Who holds a tensor or an array.

    Attributes:
        key: Tells it from others.
        name: Its name.
        place: The place in it where this one lies, as ``runs[3].weights``; where all lie there, that is its name.
        vertex: Its position; -1 if it is not known.
        is_container: Whether what it holds lies in its items.
    """

    key: _Key
    name: str
    place: str
    vertex: int = -1
    is_container: bool = False


def _holder(view: HeapView, storage: Storage) -> _Holder:
    """Return the holder of a tensor or an array.

    The parameters of a model and their gradients are the model's, what an optimizer keeps is the optimizer's, and the
    items of a container, with what these have, are the container's.
    """
    if not view.is_reached(storage.place):
        return _Holder((_UNREACHED,), _UNREACHED, _UNREACHED)
    described, things = _described(view, storage)
    graph = described.graph_owner
    inner = described if graph is None else graph
    passed = [things[position] for position in inner.positions]
    n_inner = _n_steps(inner, passed)
    n_steps = _n_to_container(inner, passed, n_inner)
    of, place = inner.up_to(n_steps), inner.up_to(n_inner)
    words = "{}" if graph is None else "the graph of {}"
    return _Holder(
        (inner.path.root, of.stable, graph is not None),
        words.format(of.name),
        words.format(place.name),
        view.index.vertex_of(id(passed[n_steps - 1])) if graph is None and n_steps else -1,
        is_container=n_steps < len(passed) and not _is_whole(passed[n_inner - 1]),
    )


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
    """Return how many steps of the path lead to what has the tensor or the array: not to an item of a container."""
    for number, thing in enumerate(things):
        if _is_a(thing, "torch.optim.optimizer", "Optimizer"):
            return number + 1
    if _is_a(things[-1], "torch.nn", "Module"):
        return next(number for number, thing in enumerate(things) if _is_a(thing, "torch.nn", "Module")) + 1
    n_steps = len(things)
    while n_steps > 1 and described.path.steps[n_steps - 1].reference.startswith("["):
        n_steps -= 1
    return n_steps


def _n_to_container(described: Described, things: Sequence[object], n_steps: int) -> int:
    """Return how many of *n_steps* lead to the first container one of whose many items has it."""
    for number in range(1, n_steps):
        reference = described.path.steps[number].reference
        is_any = reference.startswith("[") and described.stable[number] != reference
        if is_any or (reference.startswith("[") and (safe_len(things[number - 1]) or 0) >= _MANY_ENTRIES):
            return number
    return n_steps


def _is_whole(thing: object) -> bool:
    """Return whether *thing* is a model or an optimizer: what it has is looked for in its own way."""
    return _is_a(thing, "torch.nn", "Module") or _is_a(thing, "torch.optim.optimizer", "Optimizer")

"""Say who holds the largest tensors: one row for each holder, its tensors added up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from leaklab.heap.paths import Described
from leaklab.heap.view import HeapView
from leaklab.model import RootPath, Status
from leaklab.model.process import HeldTensors
from leaklab.runtime.objects import is_kind_of, loaded_type, summary, type_name
from leaklab.runtime.sizes import storages_of

MOST_LOOKED_UP = 400
"""Storages whose path is looked up, the largest first: 0.1 to 1 ms each."""
_STEPS_TO_MODULE = 3  # its table of parameters, perhaps its dict, the module
_MOST_REFERRERS = 64
_LEAST_SHARE = 0.01
"""A holder of less than this part of all tensors is not worth a row."""
_UNREACHED = "no variable: in use by a running expression, or held by C++"
_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage by one of the tensors that show it.

    Attributes:
        place: Position of that tensor.
        n_bytes: Its size.
    """

    place: int
    n_bytes: int


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


def held_by(view: HeapView, storages: Sequence[Storage], limit: int) -> tuple[HeldTensors, ...]:
    """Return who holds *storages*, whose places are vertices of *view*; *limit* holders at most."""
    groups: dict[_Key, list[Storage]] = {}
    names: dict[_Key, str] = {}
    for storage in storages:
        key, name = _holder(view, storage.place)
        names.setdefault(key, name)  # that of the largest
        groups.setdefault(key, []).append(storage)
    rows = sorted((_row(view, names[key], group) for key, group in groups.items()), key=lambda row: -row.n_bytes)
    least = _LEAST_SHARE * sum(storage.n_bytes for storage in storages)
    return tuple(row for row in rows[:limit] if row.n_bytes >= least)


def _row(view: HeapView, holder: str, group: list[Storage]) -> HeldTensors:
    largest = group[0]
    return HeldTensors(
        holder=holder,
        what=tensor_text(view.objects[largest.place], summaries=view.summaries),
        n_tensors=len(group),
        n_bytes=sum(storage.n_bytes for storage in group),
        largest_bytes=largest.n_bytes,
        path=_path(view, _in_module(view, largest.place)),
    )


def _path(view: HeapView, vertex: int) -> RootPath | None:
    """Return the path to a tensor; nobody has judged what is on it."""
    if not view.is_reached(vertex):
        return None
    path = view.describe(vertex).path
    return replace(path, steps=tuple(replace(step, status=Status.UNKNOWN) for step in path.steps))


def tensor_text(tensor: object, *, summaries: bool = True) -> str:
    """Return type, shape, dtype and device of *tensor*."""
    return " ".join(filter(None, (type_name(type(tensor)), summary(tensor) if summaries else "")))


def _holder(view: HeapView, vertex: int) -> tuple[_Key, str]:
    """Return what tells the holder of a tensor from others, and its name.

    The parameters of a model and their gradients are the model's, what an optimizer keeps is the optimizer's, and the
    items of a container are the container's.
    """
    if not view.is_reached(vertex):
        return (_UNREACHED,), _UNREACHED
    vertex = _in_module(view, vertex)
    described = view.describe(vertex)
    graph = described.graph_owner
    inner = described if graph is None else graph
    vertices = view.path(vertex)
    things = [view.objects[vertices[position]] for position in inner.positions]
    n_steps = _n_steps(inner, things)
    of = _first(inner, n_steps)
    name = of.name if graph is None else f"the graph of {of.name}"
    return (inner.path.root, of.stable, graph is not None), name


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

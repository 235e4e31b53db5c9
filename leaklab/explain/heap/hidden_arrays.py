"""Find the numpy arrays that hold objects.

The collector knows nothing of arrays: it neither lists them nor says what lies in them. The same is true of a dict or a
tuple that, like ``{"losses": array}``, holds nothing the collector tracks. So the references of the whole heap are
looked through for arrays, and for such untracked containers, which are then looked through in turn.
"""

from __future__ import annotations

import gc
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from leaklab.addresses import kinds_of
from leaklab.explain.heap.referents import BATCH_OBJECTS, referents_of
from leaklab.graph_walk import Edge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leaklab.explain.heap.address_table import Ints


# numpy's own descriptors and methods, which is what an array of the exact type has.
_base_of = np.ndarray.__dict__["base"].__get__
_dtype_of = np.ndarray.__dict__["dtype"].__get__
_shape_of = np.ndarray.__dict__["shape"].__get__


class ArraySearch:
    """Arrays that hold objects, what they hold, and the untracked containers on the way to them.

    Attributes:
        edges: From an array to its items, and to the object whose memory it shows.
        vertices: Those arrays and containers, by address.
    """

    def __init__(self) -> None:
        self.edges: list[Edge] = []
        self.vertices: dict[int, Any] = {}

    def through(self, objects: list[Any]) -> None:
        """Look through the references of *objects*."""
        for start in range(0, len(objects), BATCH_OBJECTS):
            self.among(gc.get_referents(*objects[start : start + BATCH_OBJECTS]))

    def among(self, things: list[Any]) -> None:
        """Look at *things* themselves."""
        kinds = kinds_of(things)
        for position in np.flatnonzero(kinds == id(np.ndarray)).tolist():
            self.into(things[position])
        self._follow([things[position] for position in _untracked(things, kinds)])

    def into(self, array: Any) -> bool:
        """Note what *array* holds, and what arrays in it hold; return whether it leads to any object."""
        pending = [array]
        while pending:
            current = pending.pop()
            if id(current) not in self.vertices and _may_hold(current):
                found = [*_items(current), *_memory(current)]
                if found:
                    self.vertices[id(current)] = current
                    self.edges.extend(found)
                    pending.extend(target for _, target, _ in found if type(target) is np.ndarray)
        return id(array) in self.vertices

    def _follow(self, containers: list[Any]) -> None:
        """Follow untracked containers, level by level, to arrays; keep the containers that lead to objects."""
        inside: list[tuple[Any, Any]] = []
        probed: set[int] = set()
        while containers:
            level = list({id(item): item for item in containers if id(item) not in probed}.values())
            probed.update(map(id, level))
            referents, _, owners = referents_of(level)
            kinds = kinds_of(referents)
            for position in np.flatnonzero(kinds == id(np.ndarray)).tolist():
                if self.into(referents[position]):
                    owner = level[owners[position]]
                    self.vertices[id(owner)] = owner
            nested = _untracked(referents, kinds)
            inside.extend((level[owners[position]], referents[position]) for position in nested)
            containers = [referents[position] for position in nested]
        self._keep_outer(inside)

    def _keep_outer(self, inside: list[tuple[Any, Any]]) -> None:
        """Keep each container in which one lies that is kept."""
        n_kept = -1
        while n_kept != len(self.vertices):
            n_kept = len(self.vertices)
            for outer, inner in reversed(inside):
                if id(inner) in self.vertices:
                    self.vertices[id(outer)] = outer


def _untracked(things: list[Any], kinds: Ints) -> list[int]:
    """Return the positions of dicts and tuples that the collector does not track, and so does not report."""
    positions = np.flatnonzero((kinds == id(tuple)) | (kinds == id(dict))).tolist()
    return [position for position in positions if not gc.is_tracked(things[position])]


def _may_hold(array: Any) -> bool:
    return _dtype_of(array).hasobject or _base_of(array) is not None


def _is_followed(items: Iterable[Any]) -> Iterator[bool]:
    """Tell of each item whether it can lead further: the collector knows it, or it is an array worth a look."""
    return (gc.is_tracked(item) or (type(item) is np.ndarray and _may_hold(item)) for item in items)


def _items(array: Any) -> Iterator[Edge]:
    """Yield the items of an object array; those that lead nowhere, like strings, are left out."""
    if _dtype_of(array).kind != "O":
        return
    shape = _shape_of(array)
    items = array.ravel().tolist() if len(shape) != 1 else array.tolist()
    for number in compress(range(len(items)), _is_followed(items)):
        at = ", ".join(str(place) for place in np.unravel_index(number, shape)) if len(shape) != 1 else str(number)
        yield array, items[number], f"[{at or '()'}]"


def _memory(array: Any) -> Iterator[Edge]:
    """Yield the object whose memory *array* shows: the array it is a view of, or a tensor."""
    base = _base_of(array)
    if base is not None and next(_is_followed([base])):
        yield array, base, ".base"

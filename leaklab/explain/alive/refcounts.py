"""Explain the reference counts of an object: who has each of its references, and how many nobody visible has."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from leaklab.addresses import object_at, types_at
from leaklab.explain.heap.frames import local_variables
from leaklab.model.alive import CountItem, Counts
from leaklab.objects import has_base, is_tensor, loaded_type, no_torch_functions, type_name

if TYPE_CHECKING:
    from leaklab.explain.view import HeapView

_N_NAMED = 6
"""So many types of holders are told one by one; the others as one item."""


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
    if _is_array_type(type(source)):  # the collector does not know arrays: all of their references are Python's
        return count, 0
    n_seen = sum(1 for inner in gc.get_referents(source) if inner is thing)
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

"""Find the tuples and dicts that the collector is about to forget, which is not their death."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.collect.moment_kinds import KindTable

_is_tracked = gc.is_tracked


def forgettable(objects: list[object], table: KindTable) -> npt.NDArray[np.int64]:
    """Return the positions of the tuples and dicts that contain nothing the collector follows, or only such tuples.

    CPython stops to follow a tuple (up to 3.13 also a dict) as soon as a collection finds nothing in it that could be
    part of a cycle; a tuple of such tuples goes one collection later. Counted as objects, they would seem to die.

    Args:
        objects: The heap.
        table: The types of the objects.
    """
    tuples = np.flatnonzero(table.mask(lambda of: of is tuple)).tolist()
    dicts = np.flatnonzero(table.mask(lambda of: of is dict)).tolist()
    found: list[int] = []
    ids: set[int] = set()
    nested: list[int] = []
    for row in chain(tuples, dicts):
        contents = _contents(objects[row])
        if not any(map(_is_tracked, contents)):
            found.append(row)
            ids.add(id(objects[row]))
        # Few have a tuple inside: the others are followed for good.
        elif tuple in map(type, _contents(objects[row])):
            nested.append(row)
    n_before = -1
    while len(found) > n_before:
        n_before, left = len(found), nested
        nested = []
        for row in left:
            if any(id(item) not in ids and _is_tracked(item) for item in _contents(objects[row])):
                nested.append(row)
            else:
                found.append(row)
                ids.add(id(objects[row]))
    return np.array(found, np.int64)


def _contents(thing: Any) -> Iterable[object]:
    """Return what a tuple or a dict contains; exact types only, whose methods are C code."""
    return thing if type(thing) is tuple else chain(thing.values(), thing)

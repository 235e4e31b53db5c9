"""Find the dicts and tuples that hold an object which the collector does not know.

An array, a ``bytes`` or a plain ``object()`` is not tracked by the collector, and neither is a dict or a tuple that
holds nothing else: ``{"losses": array}`` is in no list of the heap. Only what refers to it knows it.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

from leaklab.addresses import kinds_of
from leaklab.explain.heap.referents import BATCH_OBJECTS, referents_of
from leaklab.pausing import gc_paused


def untracked_holders(objects: list[Any], target: object) -> list[Any]:
    """Return the untracked dicts and tuples through which tracked *objects* lead to *target*, each once."""
    with gc_paused():
        found: dict[int, Any] = {}
        for start in range(0, len(objects), BATCH_OBJECTS):
            _follow(gc.get_referents(*objects[start : start + BATCH_OBJECTS]), target, found)
        return list(found.values())


def _follow(things: list[Any], target: object, found: dict[int, Any]) -> None:
    """Look through *things* and what untracked containers among them hold; add to *found* what leads to *target*."""
    seen: set[int] = set()
    inside: list[tuple[Any, Any]] = []
    level = _untracked(things, seen)
    while level:
        referents, _, owners = referents_of(level)
        for position, referent in enumerate(referents):
            if referent is target:
                owner = level[owners[position]]
                found[id(owner)] = owner
        places = _untracked_places(referents)
        inside.extend((level[owners[place]], referents[place]) for place in places)
        level = _untracked([referents[place] for place in places], seen)
    n_before = -1
    while n_before != len(found):
        n_before = len(found)
        found.update((id(outer), outer) for outer, inner in reversed(inside) if id(inner) in found)


def _untracked(things: list[Any], seen: set[int]) -> list[Any]:
    """Return the untracked containers among *things* that are not in *seen*, and note them there."""
    new = {id(things[place]): things[place] for place in _untracked_places(things)}
    new = {address: thing for address, thing in new.items() if address not in seen}
    seen.update(new)
    return list(new.values())


def _untracked_places(things: list[Any]) -> list[int]:
    kinds = kinds_of(things)
    places = np.flatnonzero((kinds == id(tuple)) | (kinds == id(dict))).tolist()
    return [place for place in places if not gc.is_tracked(things[place])]

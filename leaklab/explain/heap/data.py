"""Add up the data that only given objects refer to: strings, numbers, arrays, and containers of nothing but such.

The collector lists none of it. Whether somebody else refers to it too, its reference count tells: it is counted how
often the given objects do, and what has no more references than that goes with them.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from leaklab.addresses import addresses_of, kinds_of, types_at
from leaklab.explain.heap.referents import BATCH_OBJECTS
from leaklab.objects import has_base, loaded_type
from leaklab.sizes import shallow_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaklab.explain.heap.index import HeapIndex

_CONTAINERS = frozenset(map(id, (tuple, dict, frozenset, set)))
_HAVE_GC = 1 << 14
_flags_of = type.__dict__["__flags__"].__get__
MIN_SHARED_BYTES = 1024
"""Smaller data that others use too is not worth a word: names and numbers, which everybody uses."""


def data_of(objects: list[Any], index: HeapIndex) -> tuple[int, int]:
    """Return the bytes of the data that goes if *objects* go, and of the larger data that they share with others.

    Args:
        objects: Some of the heap; nothing but their own references to the data may exist in the caller.
        index: The heap: what is a vertex of it is no data.
    """
    tally = _Tally(index)
    tally.through(objects)
    return tally.sums()


class _Tally:
    """Data met so far, and how often."""

    def __init__(self, index: HeapIndex) -> None:
        self._index = index
        self._counts: dict[int, int] = {}
        self._things: dict[int, Any] = {}
        self._private: set[int] = set()
        self._is_data: dict[int, bool] = {}

    def through(self, objects: list[Any]) -> None:
        """Count what *objects* refer to, then what the containers among it refer to that nobody else has."""
        while objects:
            for start in range(0, len(objects), BATCH_OBJECTS):
                batch = objects[start : start + BATCH_OBJECTS]
                self._add(gc.get_referents(*batch))
                self._add(list(_memories(batch)))
                self._add([key for thing in batch if has_base(type(thing), dict) for key in _skipped_keys(thing)])
            objects = self._newly_private()

    def _add(self, referents: list[Any]) -> None:
        addresses, kinds = addresses_of(referents), kinds_of(referents)
        new = {address: kind for address, kind in types_at(kinds).items() if address not in self._is_data}
        self._is_data |= {address: _is_data(kind) for address, kind in new.items()}
        is_data = np.isin(kinds, [address for address, is_data in self._is_data.items() if is_data])
        is_data &= self._index.vertices_of(addresses) < 0
        places = np.flatnonzero(is_data)
        found, firsts, counts = np.unique(addresses[places], return_index=True, return_counts=True)
        for address, place, count in zip(found.tolist(), places[firsts].tolist(), counts.tolist(), strict=True):
            self._counts[address] = self._counts.get(address, 0) + count
            self._things[address] = referents[place]

    def _newly_private(self) -> list[Any]:
        """Note what has no other references, and return what of it may refer to more data."""
        pending = [address for address in self._things if address not in self._private]
        things = [self._things[address] for address in pending]
        probe = object()
        twice = [probe, probe]
        # Of a thing our dict, our list and the call hold a reference; of the probe its name, the list twice, the call.
        ours = next(map(sys.getrefcount, twice)) - 1
        inner = []
        for address, n_references in zip(pending, map(sys.getrefcount, things), strict=True):
            if n_references - ours == self._counts[address]:
                self._private.add(address)
                inner.append(self._things[address])
        return inner

    def sums(self) -> tuple[int, int]:
        """Return the bytes of what has no other references, and those of the rest that is not small."""
        exclusive = shared = 0
        for address, thing in self._things.items():
            n_bytes = shallow_bytes(thing)
            if address in self._private:
                exclusive += n_bytes
            elif n_bytes >= MIN_SHARED_BYTES:
                shared += n_bytes
        return exclusive, shared


def _is_data(kind: type) -> bool:
    """Return whether the collector never lists objects of *kind*, or not those that hold nothing but data."""
    return id(kind) in _CONTAINERS or not _flags_of(kind) & _HAVE_GC


def _skipped_keys(mapping: dict[Any, Any]) -> list[Any]:
    """Return the keys of *mapping* if the collector does not report them: it leaves out those of a table of texts."""
    keys = list(dict.keys(mapping))
    if not keys or type(keys[0]) is not str:
        return []
    n_reported = sum(1 for referent in gc.get_referents(mapping) if referent is keys[0])
    n_values = sum(1 for value in dict.values(mapping) if value is keys[0])
    return keys if n_reported == n_values else []


def _memories(objects: list[Any]) -> Iterator[Any]:
    """Yield for each view of an array the object whose memory it shows."""
    kind: Any = loaded_type("numpy", "ndarray")
    if kind is None:
        return
    for thing in objects:
        if has_base(type(thing), kind) and (base := kind.base.__get__(thing)) is not None:
            yield base

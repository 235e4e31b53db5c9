"""Add up data that only given objects refer to (strings, arrays), and find who shares which storage.

The collector lists none of it. Its reference count shows whether something else refers to it too: data that has no more
references than the given objects have to it goes with them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from leaklab.runtime.addresses import addresses_of, kinds_of, types_at
from leaklab.runtime.containers import keys_in, values_in
from leaklab.runtime.objects import flags_of, has_base, loaded_type, loaded_variables
from leaklab.runtime.referents import BATCH_OBJECTS, get_referents
from leaklab.runtime.sizes import shallow_bytes, storages_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leaklab.heap.index import HeapIndex
    from leaklab.runtime.addresses import Ints

_CONTAINERS = frozenset(map(id, (tuple, dict, frozenset, set)))
_HAVE_GC = 1 << 14
MIN_SHARED_BYTES = 1024
"""Smaller data that others use too is not worth a word: names and numbers, which everybody uses."""


def data_of(objects: list[Any], index: HeapIndex) -> tuple[int, int]:
    """Return the bytes of the data that goes if *objects* go, and of the larger data that they share with others.

    Args:
        objects: Some of the heap; nothing but their own references to the data may exist in the caller.
        index: The heap: what is a vertex of it is no data.
    """
    counter = _DataCounter(index)
    counter.through(objects)
    return counter.sums()


class _DataCounter:
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
                self._add(get_referents(*batch))
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
    return id(kind) in _CONTAINERS or not flags_of(kind) & _HAVE_GC


def _skipped_keys(mapping: dict[Any, Any]) -> list[Any]:
    """Return the keys of *mapping* if the collector does not report them: it leaves out those of a table of texts."""
    keys = keys_in(mapping)
    if not keys or type(keys[0]) is not str:
        return []
    n_reported = sum(1 for referent in get_referents(mapping) if referent is keys[0])
    n_values = sum(1 for value in values_in(mapping) if value is keys[0])
    return keys if n_reported == n_values else []


def _memories(objects: list[Any]) -> Iterator[Any]:
    """Yield for each view of an array the object whose memory it shows."""
    kind: Any = loaded_type("numpy", "ndarray")
    if kind is None:
        return
    for thing in objects:
        if has_base(type(thing), kind) and (base := kind.base.__get__(thing)) is not None:
            yield base


@dataclass(frozen=True, slots=True)
class SharedStorage:
    """The memory of one or more tensors.

    Attributes:
        n_bytes: Its size.
        users: The vertices of all tensors that use it, and of the storage itself where a reference leads to it.
        is_used_unseen: Whether C++ uses it without an object that shows it, so that it may outlive all *users*.
    """

    n_bytes: int
    users: list[int] = field(default_factory=list)
    is_used_unseen: bool = False


@dataclass(frozen=True, slots=True)
class Storages:
    """The storages of all tensors of a heap.

    Attributes:
        by_key: Each storage, by its key.
        keys_of: For each vertex that uses any the keys of those it uses.
        unknown: The tensors whose storages torch does not show.
    """

    by_key: dict[int, SharedStorage] = field(default_factory=dict)
    keys_of: dict[int, list[int]] = field(default_factory=dict)
    unknown: frozenset[int] = frozenset()


def storages_in(objects: list[Any], kinds: Ints, tensors: Iterable[int], index: HeapIndex, n_listed: int) -> Storages:
    """Find the storages of *tensors*.

    The collector listed *n_listed* of the objects. What comes after is part of autograd graphs, whose own use of a
    storage cannot be separated from that of the tensor that was read from them.
    """
    sizes: dict[int, int] = {}
    users: dict[int, list[int]] = {}
    unknown: set[int] = set()
    for vertex in tensors:
        pairs = storages_of(objects[vertex])
        if pairs is None:
            unknown.add(vertex)
        for key, n_bytes in pairs or ():
            sizes[key] = n_bytes
            users.setdefault(key, []).append(vertex)
    for vertex, key in _storages_by_themselves(objects, kinds, index):
        if key in users:
            users[key].append(vertex)
    found = Storages({}, {}, frozenset(unknown))
    for key, each in users.items():
        is_listed = max(each) < n_listed
        found.by_key[key] = SharedStorage(sizes[key], each, is_listed and _n_uses(key) > len(each) + 1)
        for vertex in each:
            found.keys_of.setdefault(vertex, []).append(key)
    return found


def _storages_by_themselves(objects: list[Any], kinds: Ints, index: HeapIndex) -> Iterator[tuple[int, int]]:
    """Yield the objects that are storages and that something refers to, with the key of each."""
    kind = loaded_type("torch", "UntypedStorage")
    if kind is None:
        return
    is_held = np.zeros(index.n_vertices, bool)
    is_held[index.forward_targets] = True
    for vertex in np.flatnonzero((kinds == id(kind)) & is_held).tolist():
        yield vertex, objects[vertex]._cdata  # noqa: SLF001 - the storage's identity has no public name


def _n_uses(key: int) -> int:
    """Return how many tensors and other owners share a living storage, the Python object for it among them."""
    count = loaded_variables("torch._C").get("_storage_Use_Count")  # no public way
    return 0 if count is None else int(count(key))

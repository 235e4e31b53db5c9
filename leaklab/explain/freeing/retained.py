"""Tell how many bytes come back if objects go: what only they keep alive, everything counted once.

A storage of tensors, a string or an array comes back if all that use it go. One that something else uses too stays: its
bytes are shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leaklab.explain.autograd.native_parts import cpp_bytes
from leaklab.explain.heap.data import data_of
from leaklab.explain.heap.weights import own_bytes
from leaklab.explain.reaching.freed import freed_with_objects, led_to, references_of, references_to

if TYPE_CHECKING:
    from leaklab.explain.heap.address_table import Ints
    from leaklab.explain.view import HeapView


@dataclass(frozen=True, slots=True)
class Retained:
    """What objects keep alive.

    Attributes:
        exclusive_bytes: What comes back if they go: themselves, and everything that nothing else keeps alive.
        shared_bytes: Bytes of the storages, and of larger data, that what goes uses too but that others keep alive.
        is_lower_bound: Whether more than is usual may come back: a tensor does not tell its size, or C++ uses a storage
            where no object tells. (Always left out are what allocators round up to and the arrays of instances'
            attributes; the C++ parts of tensors and autograd nodes are estimated.)
        n_objects: Objects that go, those themselves included; data that the collector does not know is not counted.
    """

    exclusive_bytes: int
    shared_bytes: int
    is_lower_bound: bool
    n_objects: int


def retained(view: HeapView, vertices: Iterable[int]) -> Retained:
    """Return what comes back if the objects at *vertices* go, all of them together.

    Of objects that no root reaches, such as the members of an immortal cycle, what only they keep alive goes too.
    """
    return bytes_of(view, freed_with(view, vertices))


def freed_with(view: HeapView, vertices: Iterable[int]) -> Ints:
    """Return the vertices that go if the objects at *vertices* go, those included, ascending."""
    gone = np.fromiter(vertices, np.int64)
    orphans = gone[view.is_orphan[gone]]
    if len(orphans):
        gone = np.union1d(gone, _kept_by_orphans(view, orphans))
    return freed_with_objects(view.index, view.reach, gone)


def bytes_of(view: HeapView, freed: Sequence[int] | Ints) -> Retained:
    """Return what comes back if exactly the objects at *freed* go: the answer of `freed_without`, in bytes."""
    places = np.unique(np.asarray(freed, np.int64))
    things = [view.objects[vertex] for vertex in places.tolist()]
    data_bytes, shared_bytes = data_of(things, view.index)
    storage_bytes, shared_storage_bytes, is_unsure = _storages_of(view, places)
    return Retained(
        exclusive_bytes=int(own_bytes(things).sum()) + data_bytes + storage_bytes + cpp_bytes(view, places),
        shared_bytes=shared_bytes + shared_storage_bytes,
        is_lower_bound=is_unsure,
        n_objects=len(places),
    )


def retained_sizes(view: HeapView) -> Ints:
    """Return for each vertex the bytes that come back if it goes, storages counted once; shape ``(n_vertices,)``.

    All at once, in less than two ``gc.collect()``. Data that the collector does not know (strings, arrays) is not in
    it, and neither are C++ parts: `retained` counts those too, of the objects that it is asked for.
    """
    tree = view.dominators
    weights = np.zeros(len(tree.above), np.int64)
    weights[tree.reach.place_of] = own_bytes(view.objects)
    storages = [storage for storage in view.storages.by_key.values() if not storage.is_used_unseen]
    owners = tree.reach.place_of[[storage.users[0] for storage in storages]] if storages else np.zeros(0, np.int32)
    shared = [number for number, storage in enumerate(storages) if len(storage.users) > 1]
    for number in shared:
        users = tree.reach.place_of[storages[number].users]
        while len(users) > 1:  # halves them: whoever is above both of a pair is above the storage
            middle = (len(users) + 1) // 2
            padded = np.append(users, users[:1]) if len(users) % 2 else users
            users = tree.nearest_above(padded[:middle], padded[middle:])
        owners[number] = users[0]
    np.add.at(weights, owners, [storage.n_bytes for storage in storages])
    sizes: Ints = tree.sums(weights)[tree.reach.place_of]
    return sizes


def _storages_of(view: HeapView, places: Ints) -> tuple[int, int, bool]:
    """Return the bytes of the storages that go with *places*, of those that stay, and whether some are unknown."""
    storages = view.storages
    is_freed = np.zeros(view.index.n_vertices, bool)
    is_freed[places] = True
    tensors = places[view.is_tensor[places]]
    exclusive, shared = 0, 0
    is_unsure = not storages.unknown.isdisjoint(tensors.tolist())
    _holders, held = references_of(view.index, places)
    touched = np.unique(np.append(tensors, held[view.is_tensor[held]])).tolist()
    for key in {key for vertex in touched for key in storages.keys_of.get(vertex, ())}:
        storage = storages.by_key[key]
        is_unsure |= storage.is_used_unseen
        if is_freed[storage.users].all() and not storage.is_used_unseen:
            exclusive += storage.n_bytes
        else:
            shared += storage.n_bytes
    return exclusive, shared, is_unsure


def _kept_by_orphans(view: HeapView, orphans: Ints) -> Ints:
    """Return *orphans*, which no root reaches, and what of the other orphans only they keep alive."""
    is_kept = led_to(view.index, orphans, view.is_orphan)
    holders, held = references_to(view.index, np.flatnonzero(is_kept))
    is_doubtful = is_kept.copy()
    is_doubtful[orphans] = False
    stays = led_to(view.index, held[~is_kept[holders] & is_doubtful[held]], is_doubtful)
    return np.flatnonzero(is_kept & ~stays)

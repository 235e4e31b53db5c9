"""Compute retained sizes: the bytes that come back if objects go, everything counted once.

A storage of tensors, a string or an array comes back if all that use it go. One that something else uses too stays: its
bytes are shared.
"""

from __future__ import annotations

import array
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leaklab.explain.alive.smallest_cut import freed_without
from leaklab.explain.leaks.sizes import cpp_bytes
from leaklab.heap.live_nodes import own_bytes_of
from leaklab.heap.nodes import exclusive_sizes
from leaklab.heap.reachability import freed_with_objects, led_to, references_of, references_to
from leaklab.heap.shared_data import data_of
from leaklab.runtime.objects import has_base, is_exactly, loaded_type, safe_len
from leaklab.runtime.referents import contents_of, get_referents, is_own_dict
from leaklab.runtime.sizes import shallow_bytes, shallow_bytes_of, sizing_of

if TYPE_CHECKING:
    from leaklab.heap.view import HeapView
    from leaklab.runtime.addresses import Ints

MAX_ENTRIES = 500_000
"""Containers with more entries together are not counted: this many take half a second (measured: 10,000 in 10 ms)."""
_OWN_DICT = ".__dict__"
_BUFFERS = (str, bytes, bytearray, array.array)
_EMPTIED = (bytearray, dict)
"""Data that is emptied where it is, whoever else has a name for it; other data is only released."""


@dataclass(frozen=True, slots=True)
class RetainedSize:
    """What objects keep alive.

    Attributes:
        exclusive_bytes: What comes back if they go: themselves, and everything that nothing else keeps alive.
        shared_bytes: Bytes of the storages, and of larger data, that what goes uses too but that others keep alive.
        is_lower_bound: Whether more than is usual may come back: the size of a tensor is unknown, or C++ uses a storage
            without an object that shows it. (Always left out are what allocators round up to and the arrays of
            instances' attributes; the C++ parts of tensors and autograd nodes are estimated.)
        n_objects: Objects that go, those themselves included; data that the collector does not track is not counted.
    """

    exclusive_bytes: int
    shared_bytes: int
    is_lower_bound: bool
    n_objects: int


def retained(view: HeapView, vertices: Iterable[int]) -> RetainedSize:
    """Return what comes back if the objects at *vertices* go, all of them together.

    Of objects that no root reaches, such as the members of an immortal cycle, what only they keep alive goes too.
    """
    return size_of_freed(view, freed_with(view, vertices))


def freed_with(view: HeapView, vertices: Iterable[int]) -> Ints:
    """Return the vertices that go if the objects at *vertices* go, those included, ascending."""
    gone = np.fromiter(vertices, np.int64)
    orphans = gone[view.is_orphan[gone]]
    if len(orphans):
        gone = np.union1d(gone, _kept_by_orphans(view, orphans))
    return freed_with_objects(view.index, view.reach, gone)


def size_of_freed(view: HeapView, freed: Sequence[int] | Ints) -> RetainedSize:
    """Return what comes back if exactly the objects at *freed* go: the answer of `freed_without`, in bytes."""
    places = np.unique(np.asarray(freed, np.int64))
    things = [view.objects[vertex] for vertex in places.tolist()]
    data_bytes, shared_bytes = data_of(things, view.index)
    storage_bytes, shared_storage_bytes, is_unsure = _storages_of(view, places)
    return RetainedSize(
        exclusive_bytes=int(shallow_bytes_of(things).sum()) + data_bytes + storage_bytes + cpp_bytes(view, places),
        shared_bytes=shared_bytes + shared_storage_bytes,
        is_lower_bound=is_unsure,
        n_objects=len(places),
    )


def retained_sizes(view: HeapView) -> Ints:
    """Return for each vertex the bytes that come back if it goes, storages counted once; shape ``(n_vertices,)``.

    All at once, in less than two ``gc.collect()``. Data that the collector does not track (strings, arrays) is not in
    it, and neither are the C++ parts of tensors: `retained` counts those too, of the objects that it is asked for.
    """
    own = own_bytes_of(view.objects, view.kinds, view.types, view.index)
    storages = [storage for storage in view.storages.by_key.values() if not storage.is_used_unseen]
    return exclusive_sizes(view.dominators, own, ((each.n_bytes, each.users) for each in storages))[0]


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


def bytes_in_place(view: HeapView, chains: Iterable[Sequence[int]]) -> int | None:
    """Return the bytes that come back if all that grows at the ends of *chains* goes.

    Of a container that is itself, with its buffer, and the plain data that only it holds, whoever else holds the
    container: to empty it gives them back. Objects that the collector tracks are not counted: what runs have left of
    them is a leak of its own, and the rest was there before. A tensor, an array or a text goes if the reference that
    grows is the only one to it; else nothing comes back.

    Args:
        view: The heap.
        chains: Addresses as `LeakAddress.chain` has them, that of what grows last; all of living objects.

    Returns:
        None where it is not known: for the attributes of an object or a module, which are more than what grows; for
        more than `MAX_ENTRIES` entries.
    """
    counted: list[int] = []
    cuts: list[tuple[int, int]] = []
    data_bytes = 0
    for chain in chains:
        vertex = view.index.vertex_of(chain[-1])
        if vertex < 0:
            found = _bytes_of_data(view, chain)
            if found is None:
                return None
            data_bytes += found
        elif view.is_tensor[vertex] or _is_replaced(view.objects[vertex]):
            holder = view.index.vertex_of(chain[-2]) if len(chain) > 1 else -1
            if holder < 0:
                return None
            cuts.append((holder, vertex))
        elif _is_collection(view, vertex):
            counted.append(vertex)
        else:
            return None
    counted += _freed(view, cuts)
    if sum(_n_entries(view.objects[vertex]) for vertex in counted) > MAX_ENTRIES:
        return None
    return data_bytes + size_of_freed(view, _with_arrays(view, counted)).exclusive_bytes


def bytes_of_graphs(view: HeapView, chains: Iterable[Sequence[int]]) -> int:
    """Return the bytes that come back if the tensors at the ends of *chains* release their graphs.

    Tensors that nothing but the graphs keeps are counted, and the estimate for the C++ parts of nodes.
    """
    cuts = []
    for chain in chains:
        vertex = view.index.vertex_of(chain[-1])
        parts = view.index.referents(vertex)
        cuts += [(vertex, part) for part in parts[view.in_graph[parts]].tolist()]
    return size_of_freed(view, freed_without(view, cuts)).exclusive_bytes


def _is_replaced(thing: object) -> bool:
    """Return whether *thing* cannot get longer itself, a longer one takes its place."""
    kind = loaded_type("numpy", "ndarray")
    return has_base(type(thing), tuple) or (kind is not None and has_base(type(thing), kind))


def _n_entries(thing: object) -> int:
    """Return how many objects a container refers to."""
    return 0 if is_exactly(thing, _BUFFERS) else safe_len(thing) or 0


def _is_collection(view: HeapView, vertex: int) -> bool:
    """Return whether the container at *vertex* is one of its own, no object's or module's attributes, and is sized."""
    address = int(view.index.ids[vertex])
    if vertex == view.namespace or any(start.is_place and start.address == address for start in view.starts):
        return False
    reference = view.describe(vertex).path.steps[-1].reference
    return not reference.endswith(_OWN_DICT) and not isinstance(sizing_of(type(view.objects[vertex])), int)


def _freed(view: HeapView, cuts: Sequence[tuple[int, int]]) -> list[int]:
    """Return what goes without the references *cuts*: tensors with all that hangs on them, tuples alone."""
    freed: list[int] = freed_without(view, cuts).tolist() if cuts else []
    ends = {held for _holder, held in cuts}
    return freed if any(view.is_tensor[vertex] for vertex in ends) else [vertex for vertex in freed if vertex in ends]


def _with_arrays(view: HeapView, counted: list[int]) -> list[int]:
    """Return *counted* with the arrays of objects, and the data they lie in, that only they keep.

    Such an array is in the heap only because it holds objects; the collector does not track it.
    """
    found, pending = set(counted), list(counted)
    freed: set[int] | None = None
    while pending:
        parts = view.index.referents(pending.pop())
        parts = parts[(parts >= view.n_heap) & ~view.in_graph[parts] & ~view.is_tensor[parts]]
        for part in parts.tolist():
            freed = set(freed_with_objects(view.index, view.reach, counted).tolist()) if freed is None else freed
            if part in freed and part not in found:
                found.add(part)
                pending.append(part)
    return sorted(found)


def _bytes_of_data(view: HeapView, chain: Sequence[int]) -> int | None:
    """Return the bytes of the data at the end of *chain*, which the collector does not track; None if unknown."""
    owner = _owner(view, chain)
    things = [thing for each in owner for thing in contents_of(each) if id(thing) == chain[-1]]
    n_known = len(things)
    del things[1:]
    if not things or is_own_dict(owner[0], things[0]) or _n_entries(things[0]) > MAX_ENTRIES:
        return None
    probes = [object()]
    ours = next(map(sys.getrefcount, probes))  # of the list and the call
    if next(map(sys.getrefcount, things)) - ours > n_known and not is_exactly(things[0], _EMPTIED):
        return 0
    own = shallow_bytes(things[0])
    return own + data_of(things, view.index)[0]


def _owner(view: HeapView, chain: Sequence[int]) -> list[object]:
    """Return what refers to the end of *chain* as the only item of a list; it may be a dict that is no vertex.

    The list is empty if it is gone.
    """
    vertex = view.index.vertex_of(chain[-2]) if len(chain) > 1 else -1
    if vertex >= 0:
        return [view.objects[vertex]]
    anchor = view.index.vertex_of(chain[-3]) if len(chain) > 2 else -1  # noqa: PLR2004 - one before the owner
    if anchor < 0:
        return []
    return [thing for thing in get_referents(view.objects[anchor]) if id(thing) == chain[-2]][:1]

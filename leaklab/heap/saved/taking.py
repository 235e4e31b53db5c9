"""Read the living heap once into arrays that can be kept; apart from these, which are opened where torch is not."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from leaklab.heap.hidden_references import hidden_edges
from leaklab.heap.index import ReferencePass, own_dicts
from leaklab.heap.live_nodes import contents_of, kinds_in, own_bytes_of, storage_use
from leaklab.heap.names.in_bulk import BulkNames, name_attributes
from leaklab.heap.nodes import MIN_DATA_BYTES
from leaklab.heap.roots import find_starts, interpreter_tables
from leaklab.heap.running import empty_snapshots
from leaklab.heap.saved.arrays import HeapArrays
from leaklab.heap.shared_data import storages_in
from leaklab.measure.checkpoint import whole_heap
from leaklab.runtime.addresses import KindTable, kinds_of
from leaklab.runtime.objects import is_tensor_type
from leaklab.runtime.ours import own_addresses, own_data_addresses
from leaklab.version import environment


def take_heap(
    name: str, namespace: dict[str, Any] | None, *, heap: AbstractContextManager[list[object]] | None = None
) -> HeapArrays:
    """Return what the heap is now; nothing of it is kept alive.

    *heap* lends every object and empties the list; by default `whole_heap`.
    """
    try:
        with heap or whole_heap() as objects:
            return _read(objects, name, namespace)
    finally:
        empty_snapshots()


def _read(objects: list[Any], name: str, namespace: dict[str, Any] | None) -> HeapArrays:
    """Return the arrays of *objects*, to which what only hidden references reach is added."""
    n_listed = len(objects)
    kinds = kinds_of(objects)
    types = KindTable(kinds)
    own = np.append(own_addresses(objects, types), id(objects))
    names = BulkNames()
    references = ReferencePass(objects, own, types, names=names, with_bytes=True)
    hidden = hidden_edges(objects, references, min_data_bytes=MIN_DATA_BYTES)
    try:
        index = references.finish(hidden.extra_objects, hidden.edges)
        objects.extend(hidden.extra_objects)
        starts = [*find_starts(namespace), *interpreter_tables(objects, index)]
    finally:
        hidden.edges.clear()
        hidden.extra_objects.clear()
    del references
    kinds = np.concatenate([kinds, kinds_of(objects[n_listed:])])
    types = KindTable(kinds)
    name_attributes(objects, index, types, own_dicts(index, types), names.table)
    tensors = np.flatnonzero(types.mask(is_tensor_type)).tolist()
    vertices = index.vertices_of(np.append(own, own_data_addresses(objects, types, id(namespace))))
    return HeapArrays(
        name=name,
        taken_at=time.time(),
        environment=environment(),
        notes=hidden.notes,
        index=index,
        texts=names.table.texts,
        kind_of=types.rows,
        kinds=tuple(kinds_in(types)),
        own_bytes=own_bytes_of(objects, kinds, types, index),
        contents=contents_of(objects, types),
        storages=storage_use(storages_in(objects, kinds, tensors, index, n_listed)),
        starts=tuple(starts),
        start_vertices=index.vertices_of(np.array([start.address for start in starts], np.int64)),
        namespace=-1 if namespace is None else index.vertex_of(id(namespace)),
        own=vertices[vertices >= 0],
        n_listed=n_listed,
    )

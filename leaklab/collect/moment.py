"""Take a moment: everything alive, in flat arrays that keep nothing alive."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Collection, Iterable
from itertools import compress
from typing import Any

import msgspec
import numpy as np
import psutil

from leaklab.addresses import Addresses, addresses_of, kinds_of
from leaklab.collect.checkpoint import heap_objects
from leaklab.collect.containers import container_lengths
from leaklab.collect.gcstate import collect_quietly, user_has_frozen
from leaklab.collect.meters import accelerator_bytes, native_heap_bytes
from leaklab.collect.moment_kinds import KindTable
from leaklab.collect.moment_places import find_places, module_names
from leaklab.collect.moment_sizes import bytes_of_kinds, find_arrays
from leaklab.collect.moment_tensors import TensorTable, storage_mask, tensor_mask
from leaklab.collect.own_objects import left_out
from leaklab.model.moments import HeapMoment, MomentWords

_NONE = np.empty(0, np.int64)


def take_moment(
    name: str,
    namespace: dict[str, Any] | None,
    *,
    hidden_names: Collection[str] = (),
    records: Iterable[object] = (),
    born: Addresses | None = None,
    exact_since: str = "",
    collects: bool = True,
    with_places: bool = True,
) -> HeapMoment:
    """Note everything that is alive now.

    The collector's switches are the same afterwards. Costs about as much as the ``gc.collect()`` that it begins with.

    Args:
        name: For the reader.
        namespace: The user's variables.
        hidden_names: Names in it that the front end has put there.
        records: Containers that belong to the notebook itself, such as its history.
        born: Addresses of all that was born since another moment, where that was watched.
        exact_since: The token of that moment.
        collects: Whether garbage is collected first; never where the user has switched the collector off.
        with_places: Whether variables, attributes and arrays are noted; totals do not need them.
    """
    heap_before = native_heap_bytes()
    collected = collects and gc.isenabled()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        young = _collect(born) if collected else born
        objects = heap_objects(frozen_too=user_has_frozen())
        try:
            arrays = _measure(objects, namespace, hidden_names, records, with_places=with_places)
        finally:
            objects.clear()
    finally:
        if was_enabled:
            gc.enable()
    accelerator, heap_after = accelerator_bytes(), native_heap_bytes()
    return HeapMoment(
        name=name,
        taken_at=time.time(),
        process=_process_name(),
        token=f"{_process_name()}-{time.perf_counter_ns()}",
        exact_since=exact_since,
        collected=collected,
        young=_NONE if young is None else np.sort(young),
        heap_bytes=(_known(heap_before), _known(heap_after)),
        accelerator_bytes=_known(accelerator),
        rss_bytes=int(psutil.Process().memory_info().rss),
        **arrays,
    )


def _known(level: int | None) -> int:
    return -1 if level is None else level


def _collect(born: Addresses | None) -> Addresses:
    """Collect garbage; return *born*, or the addresses of what was made since the collection before this one.

    A full collection moves every survivor to the oldest generation, and nothing ever comes back from there: what the
    younger ones hold now is younger than every moment that collected. What automatic collections moved on is missed.
    """
    if born is None:
        fresh = gc.get_objects(generation=0)
        fresh += gc.get_objects(generation=1)
        born = addresses_of(fresh)
        fresh.clear()
    collect_quietly()
    return born


def _measure(
    objects: list[object],
    namespace: dict[str, Any] | None,
    hidden_names: Collection[str],
    records: Iterable[object],
    *,
    with_places: bool,
) -> dict[str, Any]:
    """Return the fields of the record that tell of *objects*, the whole heap."""
    addresses, kinds = addresses_of(objects), kinds_of(objects)
    table = KindTable.of(kinds)
    unwanted = left_out(objects, addresses, table, records, namespace)
    unwanted[addresses == id(objects)] = True
    tensors = TensorTable()
    is_tensor = tensor_mask(table) & ~unwanted
    order = np.flatnonzero(is_tensor)
    order = order[np.argsort(addresses[order])]
    tensors.add_tensors(objects[row] for row in order.tolist())
    storages = np.flatnonzero(storage_mask(table) & ~unwanted)
    # The storage object of a living tensor is part of it, and often of our own making: asking for the size makes one.
    unwanted[storages[tensors.add_storages(objects[row] for row in storages.tolist())]] = True
    kept = ~unwanted
    chosen = list(compress(objects, kept.tobytes()))
    try:
        table = KindTable.of(kinds[kept])
        fields = _arrays_of(chosen, addresses[kept], kinds[kept], table, tensors)
        found = find_arrays(chosen, table) if with_places else {}
    finally:
        chosen.clear()
    array_words = {words: number for number, words in enumerate(dict.fromkeys(words for words, _ in found.values()))}
    array_rows = sorted((address, array_words[words], size) for address, (words, size) in found.items())
    arrays = np.array(array_rows, np.int64).reshape(-1, 3)
    words = MomentWords(
        kinds=table.names,
        tensor_kinds=tuple(tensors.kinds),
        devices=tuple(tensors.devices),
        arrays=tuple(array_words),
        places=tuple(find_places(namespace, hidden_names)) if with_places else (),
        modules=module_names() if with_places else (),
    )
    return {
        **fields,
        "array_addresses": arrays[:, 0].copy(),
        "array_kinds": arrays[:, 1].astype(np.int32),
        "array_bytes": arrays[:, 2].copy(),
        "words": msgspec.json.encode(words),
        "n_left_out": int(unwanted.sum()),
    }


def _arrays_of(
    objects: list[object], addresses: Addresses, kinds: Addresses, table: KindTable, tensors: TensorTable
) -> dict[str, Any]:
    order = np.argsort(addresses)
    lengths = container_lengths(objects, addresses, kinds)
    sorted_addresses = addresses[order]
    rows = np.searchsorted(sorted_addresses, lengths.addresses)
    by_row = np.argsort(rows)
    storages = np.array(tensors.storages, np.int64).reshape(-1, 4)
    return {
        "addresses": sorted_addresses,
        "kinds": table.rows[order].astype(np.int32),
        "kind_addresses": table.addresses,
        "kind_bytes": bytes_of_kinds(objects, table),
        "container_rows": rows[by_row].astype(np.int32),
        "lengths": lengths.lengths[by_row],
        "tensor_rows": np.flatnonzero(tensor_mask(table)[order]).astype(np.int32),
        "tensor_kinds": np.array(tensors.kind_of, np.int32),
        "storage_tensors": storages[:, 0].astype(np.int32),
        "storage_keys": storages[:, 1].copy(),
        "storage_bytes": storages[:, 2].copy(),
        "storage_devices": storages[:, 3].astype(np.int32),
    }


def _process_name() -> str:
    """Name this process so that no later one has the same name: process ids are used again."""
    return f"{os.getpid()}-{psutil.Process().create_time():.3f}"

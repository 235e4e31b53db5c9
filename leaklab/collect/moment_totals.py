"""Add up what is alive: objects, tensors and bytes, as cheaply as it can be done after every cell."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from itertools import compress

from leaklab.addresses import kinds_of
from leaklab.collect.checkpoint import heap_objects
from leaklab.collect.gcstate import collect_quietly, user_has_frozen
from leaklab.collect.meters import native_heap_bytes
from leaklab.collect.moment_kinds import KindTable
from leaklab.collect.moment_tensors import storage_mask, tensor_mask
from leaklab.collect.own_objects import is_machinery, parts_of_records
from leaklab.model.moments import Totals
from leaklab.tensors import storage_bytes


def take_totals(records: Iterable[object]) -> Totals:
    """Count what is alive now; garbage is collected first, unless the user has switched the collector off.

    Tuples are not counted: the collector forgets most of them sooner or later. Nor are storage objects: they belong to
    their tensors.

    Args:
        records: Containers in which a notebook keeps its texts, which are not counted.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        if was_enabled:
            collect_quietly()
        objects = heap_objects(frozen_too=user_has_frozen())
        try:
            return _add_up(objects, records)
        finally:
            objects.clear()
    finally:
        if was_enabled:
            gc.enable()


def _add_up(objects: list[object], records: Iterable[object]) -> Totals:
    table = KindTable.of(kinds_of(objects))
    wanted = ~table.mask_by_name(is_machinery) & ~table.mask(lambda of: of is tuple) & ~storage_mask(table)
    is_tensor = tensor_mask(table)
    tensors = compress(objects, is_tensor.tobytes())
    heap = native_heap_bytes()
    return Totals(
        n_objects=int(wanted.sum()) - parts_of_records(records),
        n_tensors=int(is_tensor.sum()),
        tensor_bytes=sum(storage_bytes(tensors).values()),
        heap_bytes=-1 if heap is None else heap,
    )

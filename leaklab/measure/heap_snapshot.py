"""Take a heap snapshot, in its notebook: everything alive, in flat arrays that keep nothing alive."""

from __future__ import annotations

import array
import collections
import gc
import linecache
import os
import re
import sys
import time
import types
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from typing import Any

import msgspec
import numpy as np
import psutil

from leaklab.measure.cheap_counts import native_heap_bytes
from leaklab.measure.checkpoint import container_lengths, heap_objects
from leaklab.measure.gauges import accelerator_bytes, rss_bytes
from leaklab.measure.slot_contents import MIN_BYTES
from leaklab.measure.snapshot_sizes import TensorTable, bytes_of_kinds, find_arrays, storage_mask, tensor_mask
from leaklab.model.heap_diff import HeapSnapshotRecord, Place, SnapshotWords
from leaklab.runtime.addresses import Addresses, KindTable, addresses_of, kinds_of
from leaklab.runtime.gc_control import collect_quietly, pause_gc, resume_gc, user_has_frozen
from leaklab.runtime.objects import (
    has_base,
    is_tensor,
    is_tensor_type,
    loaded_type,
    module_dict,
    running_shell,
    safe_len,
    summary,
    type_name,
)
from leaklab.runtime.ours import SHELL_NAMES, is_history_name, is_machinery, left_out
from leaklab.runtime.sizes import shallow_bytes, storages_of

NOTEBOOK = "notebook"

_NOT_USERS = re.compile(rf"{'|'.join(SHELL_NAMES)}|open|__\w+__")
# What a module keeps on purpose while a program runs. Its constants, functions and classes are no such thing.
_KEEPERS = (list, dict, set, collections.deque, bytearray, array.array)
_NOTED_BY_PYTHON = frozenset({"linecache", "_frozen_importlib"})
"""Modules in which Python notes what it reads and imports: locks of modules come and go with each import."""
_TEXTS = frozenset((id(str), id(bytes)))


def find_places(namespace: dict[str, Any] | None, hidden_names: Collection[str] = ()) -> Iterator[Place]:
    """Yield the variables, then the attributes of modules that keep data.

    Args:
        namespace: The user's variables.
        hidden_names: Names in it that the front end has put there.
    """
    known: set[int] = set()
    if namespace is not None:
        known.add(id(namespace))
        for name, value in list(namespace.items()):
            is_users = type(name) is str and not (is_history_name(name) or _NOT_USERS.fullmatch(name))
            if is_users and name not in hidden_names and not is_machinery(type_name(type(value))):
                yield _place(name if name.isidentifier() else f"globals()[{name!r}]", NOTEBOOK, value)
    keeps: dict[int, bool] = {}
    for module, variables in _module_dicts():
        if id(variables) in known:
            continue
        known.add(id(variables))  # by whatever other name the module is there as well
        if is_machinery(module) or module in _NOTED_BY_PYTHON:
            continue
        for name, value in list(variables.items()):
            kind = type(value)
            if id(kind) not in keeps:
                keeps[id(kind)] = _keeps_data(kind)
            if keeps[id(kind)] and type(name) is str and not name.startswith("__") and _is_worth_it(value):
                yield _place(f"{module}.{name}", module, value)


def module_names() -> tuple[str, ...]:
    """Return the names of the modules loaded."""
    return tuple(sorted(name for name in list(sys.modules) if type(name) is str))


def _module_dicts() -> Iterator[tuple[str, dict[str, Any]]]:
    modules: list[tuple[Any, Any]] = list(sys.modules.items())
    for name, module in modules:
        if type(name) is str and has_base(type(module), types.ModuleType):
            variables = module_dict(module)
            if type(variables) is dict:
                yield name, variables


def _keeps_data(kind: type) -> bool:
    arrays = loaded_type("numpy", "ndarray")
    return (
        any(kind is keeper for keeper in _KEEPERS)
        or id(kind) in _TEXTS
        or is_tensor_type(kind)
        or (arrays is not None and has_base(kind, arrays))
    )


def _is_worth_it(value: object) -> bool:
    # A module has hundreds of short texts; those are its words.
    return id(type(value)) not in _TEXTS or (safe_len(value) or 0) >= MIN_BYTES


def _place(expression: str, home: str, value: object) -> Place:
    kind = type(value)
    n_bytes = sum(size for _key, size in storages_of(value) or ()) if is_tensor(value) else shallow_bytes(value)
    length = safe_len(value)
    return Place(
        expression, home, id(value), type_name(kind), summary(value), n_bytes, -1 if length is None else length
    )


_NONE = np.empty(0, np.int64)


def take_heap_snapshot(
    name: str,
    namespace: dict[str, Any] | None,
    *,
    hidden_names: Collection[str] = (),
    records: Iterable[object] = (),
    born: Addresses | None = None,
    exact_since: str = "",
    collects: bool = True,
    with_places: bool = True,
) -> HeapSnapshotRecord:
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
    was_enabled = pause_gc()  # without a `with`: its bound `__exit__` would be among the objects that are listed
    collected = collects and was_enabled
    try:
        young = _collect(born) if collected else born
        objects = heap_objects(frozen_too=user_has_frozen())
        try:
            arrays = _measure(objects, namespace, hidden_names, records, with_places=with_places)
        finally:
            objects.clear()
    finally:
        resume_gc(was_enabled=was_enabled)
    accelerator, heap_after = accelerator_bytes(), native_heap_bytes()
    return HeapSnapshotRecord(
        name=name,
        taken_at=time.time(),
        process=_process_name(),
        token=f"{_process_name()}-{time.perf_counter_ns()}",
        exact_since=exact_since,
        collected=collected,
        young=_NONE if young is None else np.sort(young),
        heap_bytes=(_known(heap_before), _known(heap_after)),
        accelerator_bytes=_known(accelerator),
        rss_bytes=rss_bytes(),
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
    table = KindTable(kinds)
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
        table = KindTable(kinds[kept])
        fields = _arrays_of(chosen, addresses[kept], table, tensors)
        found = find_arrays(chosen, table) if with_places else {}
    finally:
        chosen.clear()
    array_words = {words: number for number, words in enumerate(dict.fromkeys(words for words, _ in found.values()))}
    array_rows = sorted((address, array_words[words], size) for address, (words, size) in found.items())
    arrays = np.array(array_rows, np.int64).reshape(-1, 3)
    words = SnapshotWords(
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


def _arrays_of(objects: list[object], addresses: Addresses, table: KindTable, tensors: TensorTable) -> dict[str, Any]:
    order = np.argsort(addresses)
    lengths = container_lengths(objects, addresses, table)
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


_HISTORY_RECORDS = (
    "input_hist_parsed", "input_hist_raw", "dir_hist", "output_hist_reprs", "outputs", "db_input_cache",
    "db_output_cache",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class NotebookContext:
    """Where code runs: what is looked at first for holders, and what is nobody's doing but the notebook's.

    Attributes:
        namespace: The user's variables.
        hidden_names: Names in it that the front end has put there.
        records: Containers in which the notebook keeps texts: its history, the source of its cells.
    """

    namespace: dict[str, Any] | None
    hidden_names: Collection[str] = ()
    records: tuple[object, ...] = ()

    def take(
        self,
        name: str,
        *,
        born: Addresses | None = None,
        exact_since: str = "",
        collects: bool = True,
        with_places: bool = True,
    ) -> HeapSnapshotRecord:
        """Take a moment here; the arguments are those of `take_heap_snapshot`.

        What was printed is flushed first: a kernel sends it from another thread, with objects of its own.
        """
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # a stream of the user's may raise anything
                stream.flush()
        return take_heap_snapshot(
            name,
            self.namespace,
            hidden_names=self.hidden_names,
            records=self.records,
            born=born,
            exact_since=exact_since,
            collects=collects,
            with_places=with_places,
        )


def notebook_context(namespace: dict[str, Any] | None, shell: Any = None) -> NotebookContext:
    """Return the surroundings of code in *namespace*, in the notebook *shell* or the running one, if any.

    IPython is looked up, never imported.
    """
    records: list[object] = [linecache.cache]
    shell = shell or running_shell()
    if shell is None:
        return NotebookContext(namespace, (), tuple(records))
    history = getattr(shell, "history_manager", None)
    records += [found for name in _HISTORY_RECORDS if (found := getattr(history, name, None)) is not None]
    records += [found for found in (getattr(shell.compile, "_filename_map", None),) if found is not None]
    if namespace is None:
        namespace = shell.user_ns
    is_notebook = namespace is shell.user_ns
    return NotebookContext(namespace, frozenset(shell.user_ns_hidden) if is_notebook else (), tuple(records))

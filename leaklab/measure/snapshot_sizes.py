"""Measure what a heap snapshot contains: tensors, storages, arrays, bytes of each type; and totals alone."""

from __future__ import annotations

import array
import collections
import gc
import sys
import types
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.measure.cheap_counts import native_heap_bytes
from leaklab.measure.checkpoint import heap_objects
from leaklab.measure.slot_contents import MIN_BYTES
from leaklab.model.heap_diff import TensorKind, Totals
from leaklab.runtime.addresses import KindTable, kinds_of, types_at
from leaklab.runtime.autograd_graph import is_result
from leaklab.runtime.gc_control import collect_quietly, pause_gc, resume_gc, user_has_frozen
from leaklab.runtime.objects import array_words, has_base, loaded_type, mro_of, no_torch_functions, type_name
from leaklab.runtime.ours import is_machinery, parts_of_records
from leaklab.runtime.referents import get_referents
from leaklab.runtime.sizes import shallow_bytes, storage_bytes, storages_of

_UNKNOWN = (RuntimeError, TypeError, ValueError, AttributeError)


@dataclass(slots=True)
class TensorTable:
    """The tensors of a moment, in the order in which they were given.

    Attributes:
        kinds: The distinct descriptions, in the order of their numbers.
        kind_of: For each tensor the number of its description.
        devices: The distinct devices, in the order of their numbers.
        storages: ``(tensor, key, bytes, device)``, the tensor -1 for a storage that no tensor owns.
    """

    kinds: dict[TensorKind, int] = field(default_factory=dict)
    kind_of: list[int] = field(default_factory=list)
    devices: dict[str, int] = field(default_factory=dict)
    storages: list[tuple[int, int, int, int]] = field(default_factory=list)

    def add_tensors(self, tensors: Iterable[Any]) -> None:
        """Note *tensors* with their storages."""
        names: dict[int, str] = {}
        extents: list[int] = []
        base: Any = loaded_type("torch", "Tensor")
        for number, tensor in enumerate(tensors):
            name = names.setdefault(id(type(tensor)), type_name(type(tensor)))
            with no_torch_functions():
                kind = _kind_of(base, tensor, name)
            self.kind_of.append(self.kinds.setdefault(kind, len(self.kinds)))
            device = self.devices.setdefault(kind.device, len(self.devices))
            self.storages.extend((number, key, size, device) for key, size in storages_of(tensor) or ())
            extents.append(_extent(base, tensor))
        # Of several tensors that share a storage the one that spans most of it comes first: its kind gets the bytes.
        self.storages.sort(key=lambda storage: -extents[storage[0]])

    def add_storages(self, storages: Iterable[Any]) -> list[bool]:
        """Note the storage objects that live without a tensor; return for each of *storages* whether one owns it."""
        base: Any = loaded_type("torch", "UntypedStorage")
        keys = {key for _tensor, key, _size, _device in self.storages}
        owned = []
        for storage in storages:
            try:
                key = int(base._cdata.__get__(storage))  # noqa: SLF001 - the storage's identity has no public name
                size, device = int(base.nbytes(storage)), str(base.device.__get__(storage))
                has_memory = base.data_ptr(storage) != 0  # on "meta" it has a size only
            except _UNKNOWN:
                owned.append(False)
                continue
            owned.append(key in keys)
            if key not in keys and has_memory:
                self.storages.append((-1, key, size, self.devices.setdefault(device, len(self.devices))))
        return owned


def tensor_mask(table: KindTable) -> npt.NDArray[np.bool_]:
    """Return which objects are tensors."""
    base = loaded_type("torch", "Tensor")
    return table.mask(lambda of: base is not None and has_base(of, base))


def storage_mask(table: KindTable) -> npt.NDArray[np.bool_]:
    """Return which objects are storages: torch keeps one for every storage that was ever asked for."""
    base = loaded_type("torch", "UntypedStorage")
    return table.mask(lambda of: base is not None and has_base(of, base))


def _extent(base: Any, tensor: Any) -> int:
    """Return the bytes that the elements of *tensor* would take side by side, 0 where torch does not tell."""
    with no_torch_functions():
        try:
            return int(base.numel(tensor)) * int(base.element_size(tensor))
        except _UNKNOWN:
            return 0


def _kind_of(base: Any, tensor: Any, name: str) -> TensorKind:
    try:
        shape = str(tuple(int(size) for size in base.size(tensor)))
    except _UNKNOWN:
        shape = "?"
    try:
        dtype = str(base.dtype.__get__(tensor)).removeprefix("torch.")
        device = str(base.device.__get__(tensor))
        has_graph = is_result(tensor)
    except _UNKNOWN:
        return TensorKind(name, shape, "?", "?", has_graph=False)
    return TensorKind(name, shape, dtype, device, has_graph)


_BATCH = 50_000
_VARIABLE = (list, dict, tuple, set, frozenset, collections.deque)
_PLAIN = frozenset(map(id, _VARIABLE))
_BUFFERS = (bytes, bytearray, array.array)
# Their references are code, names and other classes: no array is looked for there.
_NO_HOLDERS = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.ModuleType, types.MethodType, type, weakref.ref,
    property, staticmethod, classmethod,
)  # fmt: skip


def bytes_of_kinds(objects: list[object], table: KindTable) -> npt.NDArray[np.int64]:
    """Return the bytes of all objects of each type, without what they refer to, shape ``(n_types,)``.

    Objects of a fixed size are counted, only containers are measured one by one.
    """
    places, n_types = table.rows, len(table.types)
    counts = np.bincount(places, minlength=n_types)
    totals = np.zeros(n_types, np.int64)
    arrays = loaded_type("numpy", "ndarray")
    for place, of in enumerate(table.types):
        is_sized = any(has_base(of, base) for base in _VARIABLE) or (arrays is not None and has_base(of, arrays))
        if not is_sized:
            totals[place] = counts[place] * (int(type.__dict__["__basicsize__"].__get__(of)) + 16)
    exact = table.mask(lambda of: id(of) in _PLAIN)
    # sys.getsizeof of exactly these types runs C code only, at 60 ns an object.
    sizes = np.fromiter(map(sys.getsizeof, compress(objects, exact.tobytes())), np.int64, int(exact.sum()))
    totals += np.bincount(places[exact], weights=sizes, minlength=n_types).astype(np.int64)
    rest = (totals == 0)[places]
    for place, thing in zip(places[rest].tolist(), compress(objects, rest.tobytes()), strict=True):
        totals[place] += shallow_bytes(thing)
    return totals


def find_arrays(objects: list[object], table: KindTable) -> dict[int, tuple[str, int]]:
    """Return the arrays and buffers that *objects* refer to, as words and bytes by address.

    Only those of a kilobyte or more, and none that the collector lists by itself.
    """
    picked = list(compress(objects, table.mask(_may_hold).tobytes()))
    found: dict[int, tuple[str, int]] = {}
    is_array: dict[int, bool] = {}
    for start in range(0, len(picked), _BATCH):
        targets = get_referents(*picked[start : start + _BATCH])
        kinds = kinds_of(targets)
        wanted = [kind for kind, of in types_at(kinds).items() if _is_array(kind, of, is_array)]
        if not wanted:
            continue
        for thing in compress(targets, np.isin(kinds, wanted).tobytes()):
            if id(thing) not in found and (n_bytes := shallow_bytes(thing)) >= MIN_BYTES and not gc.is_tracked(thing):
                found[id(thing)] = (words_of_array(thing), n_bytes)
    return found


def words_of_array(thing: Any) -> str:
    """Return type, shape and dtype of an array, the type alone of a buffer."""
    name = type_name(type(thing))
    arrays = loaded_type("numpy", "ndarray")
    return f"{name} {array_words(thing)}" if arrays is not None and has_base(type(thing), arrays) else name


def _may_hold(of: type) -> bool:
    return not any(base is ancestor for ancestor in mro_of(of) for base in _NO_HOLDERS)


def _is_array(kind: int, of: type, known: dict[int, bool]) -> bool:
    if kind not in known:
        arrays = loaded_type("numpy", "ndarray")
        known[kind] = any(of is buffer for buffer in _BUFFERS) or (arrays is not None and has_base(of, arrays))
    return known[kind]


def take_totals(records: Iterable[object]) -> Totals:
    """Count what is alive now; garbage is collected first, unless the user has switched the collector off.

    Tuples are not counted: the collector forgets most of them sooner or later. Nor are storage objects: they belong to
    their tensors.

    Args:
        records: Containers in which a notebook keeps its texts, which are not counted.
    """
    was_enabled = pause_gc()  # without a `with`: its bound `__exit__` would be among the objects that are counted
    try:
        if was_enabled:
            collect_quietly()
        objects = heap_objects(frozen_too=user_has_frozen())
        try:
            return _add_up(objects, records)
        finally:
            objects.clear()
    finally:
        resume_gc(was_enabled=was_enabled)


def _add_up(objects: list[object], records: Iterable[object]) -> Totals:
    table = KindTable(kinds_of(objects))
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

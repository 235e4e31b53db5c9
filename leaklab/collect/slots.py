"""Follow what single references point to: buffers that grow in place, or are replaced by bigger ones.

A tensor concatenated with itself stays one tensor, a string that is added to stays one string, and neither strings nor
arrays are known to the collector. What can be followed is the *slot*: the n-th reference of a namespace, an instance, a
list. A slot grows if what it points to gets bigger from checkpoint to checkpoint **and** is the same object, or begins
or ends with the same bytes as before: a value computed afresh from a bigger input is not an accumulation.
"""

from __future__ import annotations

import array
import collections
import ctypes
import gc
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, compress, pairwise, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.addresses import Addresses, addresses_of, kinds_of, types_at
from leaklab.objects import has_base, loaded_type, no_torch_functions
from leaklab.tensors import storages_of

MIN_BYTES = 1024
"""Smaller buffers are not followed: a few bytes more of them are nobody's leak."""
MIN_ENTRIES = 8
"""Shorter lists and tuples are not followed as replaced wholes; those that live on are measured by length anyway."""

_END_BYTES = 64
_BATCH = 50_000
_MAX_ORDINAL = 1 << 16
# Their references are code and names, not data that a program grows.
_NO_HOLDERS = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.CodeType, types.ModuleType, types.MethodType,
    types.MappingProxyType, type, tuple, frozenset, weakref.ref, property, staticmethod, classmethod,
)  # fmt: skip


class _Marker:
    """Ends the references of one object in the flat answer of ``gc.get_referents``."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Content:
    """What a slot points to, in numbers.

    Attributes:
        size: Bytes of a buffer, entries of a list.
        first: A digest of its beginning, 0 if unknown.
        last: A digest of its end, 0 if unknown.
    """

    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of the heap that point to something big, all of shape ``(n,)``."""

    owners: Addresses
    ordinals: npt.NDArray[np.int64]
    targets: Addresses
    kinds: Addresses
    sizes: npt.NDArray[np.int64]
    firsts: npt.NDArray[np.int64]
    lasts: npt.NDArray[np.int64]

    @property
    def keys(self) -> npt.NDArray[np.int64]:
        """One number per slot: addresses have 47 bits, which leaves 16 for the ordinal."""
        return self.owners + (self.ordinals << 47)


def find_slots(objects: list[object], kinds: Addresses) -> Slots:
    """Measure what the references of *objects* point to, where it is a buffer or a sequence of some size."""
    holders = {kind: not any(has_base(of, base) for base in _NO_HOLDERS) for kind, of in types_at(kinds).items()}
    wanted = np.isin(kinds, [kind for kind, holds in holders.items() if holds])
    picked = list(compress(objects, wanted.tobytes()))
    rows = [row for start in range(0, len(picked), _BATCH) for row in _batch_rows(picked[start : start + _BATCH])]
    table = np.array(rows, np.int64).reshape(-1, len(Slots.__slots__))
    return Slots(*(np.ascontiguousarray(table[:, column]) for column in range(table.shape[1])))


def _batch_rows(holders: list[object]) -> Iterator[tuple[int, ...]]:
    marker = _Marker()
    ends = [marker]
    targets = gc.get_referents(*chain.from_iterable(zip(holders, repeat(ends))))
    kinds = kinds_of(targets)
    is_end = kinds == id(_Marker)
    owners_index = np.cumsum(is_end) - is_end
    starts = np.concatenate([[0], np.flatnonzero(is_end)[:-1] + 1])
    ordinals = np.arange(len(targets)) - starts[owners_index]
    owners = addresses_of(holders)
    for kind, of in types_at(kinds).items():
        read = _reader_of(of)
        if read is None:
            continue
        places = np.flatnonzero((kinds == kind) & (ordinals < _MAX_ORDINAL))
        for place in places.tolist():
            content = read(targets[place])
            if content is not None:
                yield (
                    int(owners[owners_index[place]]), int(ordinals[place]), id(targets[place]), kind,
                    content.size, content.first, content.last,
                )  # fmt: skip


def _reader_of(kind: type) -> Callable[[Any], Content | None] | None:
    reader = _READERS.get(id(kind))
    if reader is not None:
        return reader
    if (tensor := loaded_type("torch", "Tensor")) is not None and has_base(kind, tensor):
        return _read_tensor
    if loaded_type("numpy", "ndarray") is kind:
        return _read_array
    return None


def _digest(data: bytes) -> int:
    return hash(data)


def _read_bytes(data: bytes | bytearray) -> Content | None:
    if len(data) < MIN_BYTES:
        return None
    return Content(len(data), _digest(bytes(data[:_END_BYTES])), _digest(bytes(data[-_END_BYTES:])))


def _read_text(text: str) -> Content | None:
    if len(text) < MIN_BYTES:
        return None
    return Content(len(text), hash(text[:_END_BYTES]), hash(text[-_END_BYTES:]))


def _read_sequence(things: list[object] | tuple[object, ...]) -> Content | None:
    if len(things) < MIN_ENTRIES:
        return None
    return Content(len(things), id(things[0]), id(things[-1]))


def _read_untracked_dict(mapping: dict[object, object]) -> Content | None:
    # A dict of plain numbers and words is unknown to the collector before CPython 3.14; all others are measured there.
    if gc.is_tracked(mapping) or len(mapping) < MIN_ENTRIES:
        return None
    return Content(len(mapping), 0, 0)


def _read_memory(address: int, n_bytes: int) -> Content | None:
    if n_bytes < MIN_BYTES or not address:
        return None
    first = ctypes.string_at(address, _END_BYTES)
    return Content(n_bytes, _digest(first), _digest(ctypes.string_at(address + n_bytes - _END_BYTES, _END_BYTES)))


def _read_array(thing: Any) -> Content | None:
    base: Any = loaded_type("numpy", "ndarray")
    n_bytes = int(base.nbytes.__get__(thing))
    if not base.flags.__get__(thing).c_contiguous:
        return Content(n_bytes, 0, 0) if n_bytes >= MIN_BYTES else None
    return _read_memory(base.ctypes.__get__(thing).data, n_bytes)


def _read_machine_array(thing: array.array[Any]) -> Content | None:
    address, length = array.array.buffer_info(thing)
    return _read_memory(address, length * thing.itemsize)


def _read_tensor(thing: Any) -> Content | None:
    base: Any = loaded_type("torch", "Tensor")
    sizes = storages_of(thing)
    if not sizes or sum(size for _key, size in sizes) < MIN_BYTES:
        return None
    n_bytes = sum(size for _key, size in sizes)
    with no_torch_functions():
        if len(sizes) > 1 or base.device.__get__(thing).type != "cpu" or not base.is_contiguous(thing):
            return Content(n_bytes, 0, 0)
        wanted, offset = (count * base.element_size(thing) for count in (base.numel(thing), base.storage_offset(thing)))
        if offset + wanted > n_bytes:  # the storage was resized under the tensor: there is nothing to read
            return Content(n_bytes, 0, 0)
        return _read_memory(base.data_ptr(thing), wanted)


_READERS: dict[int, Callable[[Any], Content | None]] = {
    id(str): _read_text,
    id(bytes): _read_bytes,
    id(bytearray): _read_bytes,
    id(list): _read_sequence,
    id(tuple): _read_sequence,
    id(dict): _read_untracked_dict,
    id(collections.deque): _read_sequence,
    id(array.array): _read_machine_array,
}


@dataclass(frozen=True, slots=True)
class GrownSlot:
    """A slot whose content grew from the first moment to the last.

    Attributes:
        owner: Address of the object that refers to it.
        ordinal: Which of the owner's references it is, in the order of ``gc.get_referents(owner)``.
        kind: Address of the type of what it points to.
        sizes: Bytes or entries at each moment.
    """

    owner: int
    ordinal: int
    kind: int
    sizes: tuple[int, ...]


def grown_slots(moments: list[Slots]) -> list[GrownSlot]:
    """Return the slots that accumulate: bigger at the last moment, and never with another content in between."""
    first, last = moments[0], moments[-1]
    common = first.keys
    for moment in moments[1:]:
        common = np.intersect1d(common, moment.keys)
    rows = []
    for moment in moments:
        order = np.argsort(moment.keys)
        rows.append(order[np.searchsorted(moment.keys, common, sorter=order)])
    sizes = np.stack([moment.sizes[row] for moment, row in zip(moments, rows, strict=True)], axis=1)
    kept = sizes[:, -1] > sizes[:, 0]
    pairs = list(zip(moments, rows, strict=True))
    for (before, at_before), (after, at_after) in pairwise(pairs):
        kept &= _same_content(before, at_before, after, at_after)
    final = rows[-1]
    return [
        GrownSlot(int(last.owners[row]), int(last.ordinals[row]), int(last.kinds[row]), tuple(sizes[i].tolist()))
        for i, row in zip(np.flatnonzero(kept).tolist(), final[kept].tolist(), strict=True)
    ]


def _same_content(
    before: Slots, at_before: npt.NDArray[np.int64], after: Slots, at_after: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    same_object = before.targets[at_before] == after.targets[at_after]
    firsts, lasts = before.firsts[at_before], before.lasts[at_before]
    same_first = (firsts != 0) & (firsts == after.firsts[at_after])
    same_last = (lasts != 0) & (lasts == after.lasts[at_after])
    same_kind = before.kinds[at_before] == after.kinds[at_after]
    result: npt.NDArray[np.bool_] = same_kind & (same_object | same_first | same_last)
    return result

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
from functools import reduce
from itertools import chain, compress, pairwise, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.runtime.addresses import Addresses, addresses_of, get_referents, kinds_of, types_at
from leaklab.runtime.objects import has_base, loaded_type, no_torch_functions
from leaklab.runtime.sizes import storages_of

MIN_BYTES = 1024
"""Smaller buffers are not followed: a few bytes more of them are nobody's leak."""
MIN_ENTRIES = 8
"""Shorter lists and tuples are not followed as replaced wholes; those that live on are measured by length anyway."""

_END_BYTES = 64


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


def reader_of(kind: type) -> Callable[[Any], Content | None] | None:
    """Return the function that measures objects of *kind*, None where there is none; it returns None for small ones."""
    reader = _READERS.get(id(kind))
    if reader is not None:
        return reader
    if (tensor := loaded_type("torch", "Tensor")) is not None and has_base(kind, tensor):
        return _read_tensor
    if loaded_type("numpy", "ndarray") is kind:
        return _read_array
    return None


def _digest(near: bytes, far: bytes) -> int:
    """Return a digest of two places of a buffer, 0 (unknown) if what stands there would look alike in any other.

    Zeros begin and end like all zeros, and positions (``arange``) like all positions: neither is a sign of keeping.
    """
    return 0 if _is_regular(near) and _is_regular(far) else hash(near + far)


def _is_regular(data: bytes) -> bool:
    """Return whether *data* is one step repeated, read as numbers of any usual kind."""
    if len(data) % 8:
        return False
    with np.errstate(all="ignore"):
        return any(_is_even(np.frombuffer(data, kind)) for kind in ("i8", "i4", "f4", "f8"))


def _is_even(numbers: npt.NDArray[Any]) -> bool:
    steps = numbers[1:] - numbers[:-1]
    return bool((steps == steps[0]).all())


def _read_bytes(data: bytes | bytearray) -> Content:
    first = _digest(bytes(data[:_END_BYTES]), bytes(data[MIN_BYTES - _END_BYTES : MIN_BYTES]))
    last = _digest(bytes(data[-_END_BYTES:]), bytes(data[-MIN_BYTES : _END_BYTES - MIN_BYTES]))
    return Content(len(data), first, last)


def _read_text(text: str) -> Content:
    return Content(len(text), hash(text[:_END_BYTES]), hash(text[-_END_BYTES:]))


def _read_sequence(things: list[object] | tuple[object, ...]) -> Content:
    return Content(len(things), id(things[0]), id(things[-1]))


def _read_dict(mapping: dict[object, object]) -> Content:
    # A dict that grows in place is measured as a container, too; here one is found that a longer one replaces.
    return Content(len(mapping), id(next(iter(mapping))), id(next(reversed(mapping))))


def _read_memory(address: int, n_bytes: int) -> Content | None:
    if n_bytes < MIN_BYTES or not address:
        return None
    at, end, far = ctypes.string_at, address + n_bytes, MIN_BYTES - _END_BYTES
    first = _digest(at(address, _END_BYTES), at(address + far, _END_BYTES))
    last = _digest(at(end - _END_BYTES, _END_BYTES), at(end - MIN_BYTES, _END_BYTES))
    return Content(n_bytes, first, last)


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


_LEAST_LENGTHS = {
    **dict.fromkeys((id(str), id(bytes), id(bytearray)), MIN_BYTES),
    **dict.fromkeys((id(list), id(tuple), id(dict), id(collections.deque)), MIN_ENTRIES),
}
_READERS: dict[int, Callable[[Any], Content | None]] = {
    id(str): _read_text,
    id(bytes): _read_bytes,
    id(bytearray): _read_bytes,
    id(list): _read_sequence,
    id(tuple): _read_sequence,
    id(dict): _read_dict,
    id(collections.deque): _read_sequence,
    id(array.array): _read_machine_array,
}


_BATCH = 50_000
_MAX_ORDINAL = 1 << 16
# Their references are code and names, not data that a program grows.
_NO_HOLDERS = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.CodeType, types.ModuleType, types.MethodType,
    types.MappingProxyType, type, tuple, frozenset, weakref.ref, property, staticmethod, classmethod,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of the heap that point to something big, all of shape ``(n,)``.

    Attributes:
        anchors: The object that the collector knows. It is the owner of the slot, or refers to the owner: a dict of
            nothing but numbers, words and arrays, which the collector does not know before CPython 3.14.
        owners: The object that has the reference.
        ordinals: Which of the owner's references it is.
        targets: What it points to.
        kinds: The type of that.
        sizes: Bytes or entries.
        firsts: Digests of the beginning.
        lasts: Digests of the end.
    """

    anchors: Addresses
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
    rows: list[tuple[int, ...]] = []
    for start in range(0, len(picked), _BATCH):
        holders_ = picked[start : start + _BATCH]
        unknown: dict[int, tuple[object, int]] = {}
        rows += _batch_rows(holders_, addresses_of(holders_), unknown)
        dicts = [holder for holder, _anchor in unknown.values()]
        anchors = np.fromiter((anchor for _holder, anchor in unknown.values()), np.int64, len(unknown))
        rows += _batch_rows(dicts, anchors, None)
    table = np.array(rows, np.int64).reshape(-1, len(Slots.__slots__))
    return Slots(*(np.ascontiguousarray(table[:, column]) for column in range(table.shape[1])))


def _batch_rows(
    holders: list[object], anchors: Addresses, unknown: dict[int, tuple[object, int]] | None
) -> Iterator[tuple[int, ...]]:
    """Yield the slots of *holders*; collect in *unknown* the dicts that they hold and the collector does not know."""
    if not holders:
        return
    marker = object()  # ends the references of one object in the flat answer
    ends = [marker]
    targets = get_referents(*chain.from_iterable(zip(holders, repeat(ends))))
    kinds = kinds_of(targets)
    is_end = addresses_of(targets) == id(marker)
    owners_index = np.cumsum(is_end) - is_end
    starts = np.concatenate([[0], np.flatnonzero(is_end)[:-1] + 1])
    ordinals = np.arange(len(targets)) - starts[owners_index]
    owners = addresses_of(holders)
    if unknown is not None:
        for place in np.flatnonzero(kinds == id(dict)).tolist():
            if not gc.is_tracked(targets[place]):
                unknown.setdefault(id(targets[place]), (targets[place], int(anchors[owners_index[place]])))
    for kind, of in types_at(kinds).items():
        read = reader_of(of)
        if read is None:
            continue
        places = np.flatnonzero((kinds == kind) & (ordinals < _MAX_ORDINAL))
        if kind in _LEAST_LENGTHS:  # most are short: told by one pass in C
            lengths = np.fromiter(map(len, map(targets.__getitem__, places.tolist())), np.int64, len(places))
            places = places[lengths >= _LEAST_LENGTHS[kind]]
        for place in places.tolist():
            content = read(targets[place])
            if content is not None:
                owner = owners_index[place]
                yield (
                    int(anchors[owner]), int(owners[owner]), int(ordinals[place]), id(targets[place]), kind,
                    content.size, content.first, content.last,
                )  # fmt: skip


@dataclass(frozen=True, slots=True)
class GrownSlot:
    """A slot whose content grew from the first moment to the last.

    Attributes:
        anchor: Address of the object that the collector knows: the owner, or what refers to the owner.
        owner: Address of the object that refers to it.
        target: Address of what it points to at the last moment.
        kind: Address of the type of that.
        sizes: Bytes or entries at each moment.
    """

    anchor: int
    owner: int
    target: int
    kind: int
    sizes: tuple[int, ...]


def grown_slots(moments: list[Slots]) -> list[GrownSlot]:
    """Return the slots that accumulate: bigger at the last moment, and never with another content in between.

    A slot may be too small to be followed at the first moment; it then counts as empty there.
    """
    later = moments[1:]
    common = reduce(np.intersect1d, [moment.keys for moment in later])
    if len(later) == 1:
        common = np.intersect1d(common, moments[0].keys)  # one look at a new slot does not tell how it goes on
    places = [_rows_of(moment, common) for moment in moments]
    sizes = np.stack([np.where(row >= 0, moment.sizes[row], 0) for moment, row in zip(moments, places, strict=True)], 1)
    grown = sizes[:, -1] > sizes[:, 0]
    for (before, at_before), (after, at_after) in pairwise(zip(moments, places, strict=True)):
        grown &= (at_before < 0) | _same_content(before, at_before, after, at_after)
    last, at_last = moments[-1], places[-1]
    return [
        GrownSlot(
            int(last.anchors[row]), int(last.owners[row]), int(last.targets[row]), int(last.kinds[row]),
            tuple(sizes[i].tolist()),
        )
        for i, row in zip(np.flatnonzero(grown).tolist(), at_last[grown].tolist(), strict=True)
    ]  # fmt: skip


def _rows_of(moment: Slots, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the row of each of *keys* in *moment*, -1 where it has none."""
    if not len(moment.keys):
        return np.full(len(keys), -1)
    order = np.argsort(moment.keys)
    rows = order[np.minimum(np.searchsorted(moment.keys, keys, sorter=order), len(order) - 1)]
    return np.where(moment.keys[rows] == keys, rows, -1)


def _same_content(
    before: Slots, at_before: npt.NDArray[np.int64], after: Slots, at_after: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    # An address alone proves nothing: what replaces a tensor often gets the address of the one before.
    in_place = np.isin(after.kinds[at_after], [id(bytearray), id(array.array)])
    same_object = in_place & (before.targets[at_before] == after.targets[at_after])
    firsts, lasts = before.firsts[at_before], before.lasts[at_before]
    same_first = (firsts != 0) & (firsts == after.firsts[at_after])
    same_last = (lasts != 0) & (lasts == after.lasts[at_after])
    same_kind = before.kinds[at_before] == after.kinds[at_after]
    result: npt.NDArray[np.bool_] = same_kind & (same_object | same_first | same_last)
    return result

"""Follow what single references point to: buffers that grow in place, or are replaced by bigger ones.

A tensor concatenated with itself stays one tensor, a string that is added to stays one string, and neither strings nor
arrays are known to the collector. What can be followed is the *slot*: the n-th reference of a namespace, an instance, a
list. A slot grows if what it points to gets bigger from checkpoint to checkpoint **and** is the same object, or begins
or ends with the same bytes as before: a value computed afresh from a bigger input is not an accumulation.
"""

from __future__ import annotations

import array
import contextvars
import gc
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from itertools import compress, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.measure.slot_contents import LEAST_LENGTHS, MIN_BYTES, MIN_ENTRIES, Content, reader_of
from leaklab.runtime.addresses import (
    N_PLACES,
    Addresses,
    AddressTable,
    Ints,
    KindTable,
    addresses_of,
    kinds_of,
    picked,
    places_of,
    positions_of,
    types_at,
)
from leaklab.runtime.autograd_graph import gradient_of, version_of
from leaklab.runtime.containers import CONTEXT_NODES
from leaklab.runtime.objects import has_base, is_exactly, is_tensor_type, no_torch_functions
from leaklab.runtime.referents import BATCH_OBJECTS, get_referents, is_own_dict, referents_of
from leaklab.runtime.sizes import sparse_bytes

_CONSTANT = frozenset((id(str), id(bytes)))
_LEAST_TOUCHED = {id(dict): 1}
"""A dict that the collector lists is touched where it is long; the length of any other dict is measured here only."""

_BATCH = BATCH_OBJECTS
_MAX_ORDINAL = 1 << 15
_REPLACED, _PLACES_REPLACED = _MAX_ORDINAL, 1 << 14
"""From here on ordinals are for what an object refers to that each run makes anew in one place of its holder."""
_MOST_FRESH = 256
"""Where a run leaves more objects than this, they are not asked what they refer to."""
_MOST_HOLDERS = 64
_GRADIENT = (1 << 16) - 1
"""Stands for the reference of a parameter to its gradient, which the collector is not shown."""
_VALUE_HERE = _GRADIENT - 1
"""Stands for the value of a context variable, which a node of the context's mapping refers to."""
# Their references are code and names, not data that a program grows.
_NO_HOLDERS = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.CodeType, types.ModuleType, types.MethodType,
    types.MappingProxyType, type, frozenset, weakref.ref, property, staticmethod, classmethod,
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
        firsts: Digests of the beginning; of a gradient how often it was changed where it is, and one.
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

    def as_if_grown(self, before: Slots, after: Slots) -> Slots:
        """Return these slots with what the content of each gained from *before* to *after*, two later moments."""
        if not (len(self.keys) and len(before.keys) and len(after.keys)):
            return self
        was, is_now = _rows_of(before, self.keys), _rows_of(after, self.keys)
        is_same = (was >= 0) & (is_now >= 0) & (before.kinds[was] == after.kinds[is_now])
        gained = np.where(is_same, after.sizes[is_now] - before.sizes[was], 0)
        return replace(self, sizes=self.sizes + gained)

    def moved(self, before: Slots, after: Slots) -> Slots:
        """Return these slots under the owners that *after* has for them, where looking moved some since *before*.

        Whoever asks an object for its ``__dict__`` makes CPython 3.11 and 3.12 move what it holds into that dict.
        """
        rows_after = _rows_of(after, before.keys)  # the dict may stand now where what it holds stood before
        is_other = before.kinds != after.kinds[rows_after] if len(after.keys) else True
        gone = np.flatnonzero((rows_after < 0) | is_other)
        come = np.flatnonzero(~np.isin(after.keys, before.keys))
        place = {int(after.targets[row]): int(row) for row in come}
        rows = _rows_of(before, self.keys)
        result = replace(self, anchors=self.anchors.copy(), owners=self.owners.copy(), ordinals=self.ordinals.copy())
        for row in np.flatnonzero(np.isin(rows, gone) & (rows >= 0)).tolist():
            at = place.get(int(before.targets[rows[row]]))
            if at is not None:
                result.anchors[row], result.owners[row] = after.anchors[at], after.owners[at]
                result.ordinals[row] = after.ordinals[at]
        return result

    def only_of(self, earlier: Slots) -> Slots:
        """Return those of these slots that *earlier* has as well."""
        stay = np.isin(self.keys, earlier.keys)
        return Slots(*(getattr(self, name)[stay] for name in Slots.__slots__))


def find_slots(
    objects: list[object],
    kinds: Addresses,
    followed: Slots | None = None,
    lengths: npt.NDArray[np.int64] | None = None,
    fresh: Addresses | None = None,
) -> Slots:
    """Measure what the references of *objects* point to, where it is a buffer or a sequence of some size.

    Args:
        objects: The whole heap.
        kinds: The addresses of their types.
        followed: The slots that matter, of an earlier moment; None for all. To see the same few again is cheap.
        lengths: Those of the objects that have been measured already, -1 for the others.
        fresh: The objects that the last run has made and left. What takes the place of the like of the run before
            (``state = replace(state, history=...)``) has its slots in the name of whoever refers to it.
    """
    addresses = addresses_of(objects)
    table = KindTable(kinds)
    is_holder = table.mask(lambda of: not any(has_base(of, base) for base in _NO_HOLDERS))
    if followed is None:
        search = _SlotSearch(_Worth(AddressTable(addresses), _may_be_content(objects, table, lengths)))
        known = np.flatnonzero(is_holder)
        holders, anchors = list(compress(objects, is_holder.tobytes())), addresses[is_holder]
    else:
        search = _SlotSearch(_Followed(followed))
        known = positions_of(np.unique(followed.anchors), addresses)
        known = np.sort(known[known >= 0])
        known = known[is_holder[known]]
        holders, anchors = picked(objects, known), addresses[known]
    for start in range(0, len(holders), _BATCH):
        search.through(holders[start : start + _BATCH], anchors[start : start + _BATCH])
    search.gradients_of(picked(objects, known[table.mask(is_tensor_type)[known]]))
    search.values_of_context()
    if fresh is not None and len(fresh) <= _MOST_FRESH:
        rows_of_fresh = positions_of(fresh, addresses)
        search.through_replaced(picked(objects, rows_of_fresh[rows_of_fresh >= 0]), addresses)
    rows = np.array(search.rows, np.int64).reshape(-1, len(Slots.__slots__))
    return Slots(*(np.ascontiguousarray(rows[:, column]) for column in range(rows.shape[1])))


def _may_be_content(
    objects: list[object], table: KindTable, lengths: npt.NDArray[np.int64] | None
) -> npt.NDArray[np.bool_]:
    """Return which of *objects*, by what the collector's own list shows of them, may be what a slot points to."""
    result = table.mask(lambda of: reader_of(of) is not None)
    for kind, least in LEAST_LENGTHS.items():
        is_kind = table.mask_of([kind])
        known = None if lengths is None else lengths[is_kind]
        if known is None or (known < 0).any():
            things: Any = compress(objects, is_kind.tobytes())
            known = np.fromiter(map(len, things), np.int64)
        result[is_kind] = known >= least
    return result


class _Worth:
    """Picks what a first look touches of all references: what may be the content of a slot."""

    def __init__(self, heap: AddressTable, may_be_content: npt.NDArray[np.bool_]) -> None:
        self._heap, self._may_be_content = heap, may_be_content
        self._no_content = np.zeros(N_PLACES, np.int64)  # numbers, words and the like, which much of a heap refers to

    def places(self, _holders: Addresses, addresses: Addresses, _starts: Ints, is_end: npt.NDArray[np.bool_]) -> Ints:
        """Return the positions of those referents at *addresses* that may be what a slot points to."""
        worth = ~is_end
        is_known, vertices = self._heap.look_up(addresses)
        worth[is_known] = self._may_be_content.take(vertices)
        places = np.flatnonzero(worth)
        left = addresses.take(places)
        return places.compress(self._no_content.take(places_of(left)) != left)

    def forget(self, addresses: Addresses) -> None:
        """Touch the objects at *addresses*, which live as long as this search, no more."""
        self._no_content[places_of(addresses)] = addresses


class _Followed:
    """Picks the slots of an earlier look, and the owners of slots that the collector does not know."""

    def __init__(self, slots: Slots) -> None:
        self._owners, self._ordinals = slots.owners, slots.ordinals
        self._unlisted = np.unique(slots.owners[slots.owners != slots.anchors])
        self._may_be_unlisted = np.zeros(N_PLACES, bool)
        self._may_be_unlisted[places_of(self._unlisted)] = True

    def places(self, holders: Addresses, addresses: Addresses, starts: Ints, is_end: npt.NDArray[np.bool_]) -> Ints:
        """Return the positions in *addresses* of what followed slots of *holders* point to, and of such owners."""
        at = positions_of(self._owners, holders)
        places = starts[at] + self._ordinals
        places = places[(at >= 0) & (places < np.flatnonzero(is_end)[at])]
        owners = np.flatnonzero(self._may_be_unlisted.take(places_of(addresses)))
        return np.union1d(places, owners[np.isin(addresses[owners], self._unlisted)])

    def forget(self, addresses: Addresses) -> None:
        """Do nothing: few are touched."""


class _SlotSearch:
    """Reads the references of holders for what slots point to.

    Attributes:
        rows: The slots found, their fields as in `Slots`.
    """

    def __init__(self, choice: _Worth | _Followed) -> None:
        self.rows: list[tuple[int, ...]] = []
        self._choice = choice
        self._readers: dict[int, Callable[[Any], Content | None] | None] = {}
        self._unlisted_seen: set[int] = set()

    def through(self, holders: list[object], anchors: Addresses) -> None:
        """Note the slots of *holders*, and those of the dicts that they hold and the collector does not know."""
        unlisted = self._unlisted_dicts(*self._slots_of(holders, anchors))
        if unlisted:
            self._slots_of([thing for thing, _ in unlisted], np.array([anchor for _, anchor in unlisted], np.int64))

    def gradients_of(self, tensors: list[object]) -> None:
        """Note the sparse gradients of *tensors*: backward adds entries to one that nobody clears.

        The entries are merged by their places, so that nothing at the ends tells of what was there before; the version
        of the gradient does.
        """
        with no_torch_functions():
            for tensor in tensors:
                gradient = gradient_of(tensor)
                n_bytes = 0 if gradient is None else sparse_bytes(gradient)
                if n_bytes >= MIN_BYTES:
                    self.rows.append((
                        id(tensor), id(tensor), _GRADIENT, id(gradient), id(type(gradient)), n_bytes,
                        version_of(gradient) + 1, 0,
                    ))  # fmt: skip

    def values_of_context(self) -> None:
        """Note what the context variables are set to here; each owns its slot.

        The nodes of the mapping that refer to the values are made anew with each change.
        """
        pending = get_referents(contextvars.copy_context())
        while pending:
            node = pending.pop()
            referents = get_referents(node)
            pending += [each for each in referents if is_exactly(each, CONTEXT_NODES)]
            for value, variable in pairwise(referents):  # in this order
                if type(variable) is contextvars.ContextVar:
                    self._note(node, variable, _VALUE_HERE, value)

    def through_replaced(self, fresh: list[object], heap: Addresses) -> None:
        """Note the slots of *fresh* objects in the name of those that refer to them and have been there before."""
        things = [thing for thing in fresh if _may_be_replaced(thing)]
        if not things:
            return
        made = addresses_of(things)
        for holder in gc.get_referrers(*things)[:_MOST_HOLDERS]:
            if (made == id(holder)).any() or not (heap == id(holder)).any():
                continue
            referents: list[object] = get_referents(holder)
            for ordinal in np.flatnonzero(np.isin(addresses_of(referents), made)).tolist():
                self._note_replaced(holder, ordinal, referents[ordinal])

    def _note_replaced(self, holder: object, ordinal: int, thing: object) -> None:
        for owner in (thing, *(one for one in get_referents(thing) if is_own_dict(thing, one))):
            for place, child in enumerate(get_referents(owner)):
                self._note(owner, holder, _REPLACED + hash((ordinal, place)) % _PLACES_REPLACED, child)

    def _note(self, anchor: object, owner: object, ordinal: int, target: object) -> None:
        """Note one slot, where *target* is something that slots are followed for."""
        kind = type(target)
        read = reader_of(kind)
        content = None if read is None else read(target)
        if content is not None and content.size >= LEAST_LENGTHS.get(id(kind), 0):
            self.rows.append((
                id(anchor), id(owner), ordinal, id(target), id(kind), content.size, content.first, content.last,
            ))  # fmt: skip

    def _slots_of(self, holders: list[object], anchors: Addresses) -> tuple[list[object], Addresses, Addresses]:
        """Note the slots of *holders*; return what had to be touched, the types of that, and the anchors."""
        referents, addresses, owners = referents_of(holders)
        is_end = addresses == addresses[-1]
        starts = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(is_end) + 1])
        holder_at = addresses_of(holders)
        places = self._choice.places(holder_at, addresses, starts, is_end)
        places = places[places - starts.take(owners.take(places)) < _MAX_ORDINAL]
        things = picked(referents, places)
        kinds = kinds_of(things)
        for kind, of in types_at(kinds).items():
            if kind not in self._readers:
                self._readers[kind] = reader_of(of)
            read = self._readers[kind]
            chosen = np.flatnonzero(kinds == kind)
            if read is None:
                self._choice.forget(addresses[places[chosen]])
                continue
            if kind in LEAST_LENGTHS:  # most are short: told by one pass in C
                lengths = np.fromiter(map(len, map(things.__getitem__, chosen.tolist())), np.int64, len(chosen))
                if kind in _CONSTANT:
                    self._choice.forget(addresses[places[chosen[lengths < LEAST_LENGTHS[kind]]]])
                chosen = chosen[lengths >= _LEAST_TOUCHED.get(kind, LEAST_LENGTHS[kind])]
            for row in chosen.tolist():
                content = read(things[row])
                if content is not None:
                    place = int(places[row])
                    owner = int(owners[place])
                    self.rows.append((
                        int(anchors[owner]), int(holder_at[owner]), place - int(starts[owner]), id(things[row]), kind,
                        content.size, content.first, content.last,
                    ))  # fmt: skip
        return things, kinds, anchors[owners[places]]

    def _unlisted_dicts(self, things: list[object], kinds: Addresses, anchors: Addresses) -> list[tuple[object, int]]:
        """Return those dicts among *things*, each once and with its anchor, that the collector does not know."""
        found = []
        for row in np.flatnonzero(kinds == id(dict)).tolist():
            if id(things[row]) not in self._unlisted_seen and not gc.is_tracked(things[row]):
                self._unlisted_seen.add(id(things[row]))
                found.append((things[row], int(anchors[row])))
        return found


def _may_be_replaced(thing: object) -> bool:
    kind = type(thing)
    return reader_of(kind) is None and not any(has_base(kind, base) for base in (*_NO_HOLDERS, types.FrameType))


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
    is_short = np.isin(moments[-1].kinds[places[-1]], [id(dict)]) & (sizes[:, -1] < MIN_ENTRIES)
    # Of the many short dicts that are made and go, only those that still get longer are told.
    grown = sizes[:, -1] > np.where(is_short, sizes[:, -2], sizes[:, 0])
    for (before, at_before), (after, at_after) in pairwise(zip(moments, places, strict=True)):
        grown &= (at_before < 0) | _same_content(before, at_before, after, at_after)
    last, at_last = moments[-1], places[-1]
    is_replaced = (last.ordinals >= _REPLACED) & (last.ordinals < _REPLACED + _PLACES_REPLACED)
    return [
        GrownSlot(
            int(last.anchors[row]), int((last.anchors if is_replaced[row] else last.owners)[row]),
            int(last.targets[row]), int(last.kinds[row]), tuple(sizes[i].tolist()),
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
    same_first |= (
        (after.ordinals[at_after] == _GRADIENT)
        & (before.targets[at_before] == after.targets[at_after])
        & (firsts < after.firsts[at_after])
    )
    result: npt.NDArray[np.bool_] = same_kind & (same_object | same_first | same_last)
    return result

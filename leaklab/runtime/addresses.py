"""Turn lists of objects into arrays of addresses, and an address back into its object.

An address is what ``id()`` returns. Reading the addresses of a million objects from the list's own item array costs
3 ms, through ``map(id, ...)`` 60 ms. The layout of a list is checked once against ``id()``; where it differs from what
CPython 3.10 to 3.14 have, the slow way is taken. The types of many objects are numbered, so that a question about
types is asked once for each type.

A faster way was tried and taken back: reading the types from the objects' memory through one array over the whole
address space. An array like that is an object of the heap itself, and whoever met it there and read it crashed.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from leaklab.runtime.objects import type_name

Addresses = npt.NDArray[np.int64]

_ALIGNMENT_BITS = 4  # objects lie at multiples of 16
N_PLACES = 1 << 16
"""So many places has a table that is looked up by some bits of an address."""
_ITEMS_OFFSET = 3 * ctypes.sizeof(ctypes.c_void_p)  # after the reference count, the type and the size


def _read_items(objects: list[object]) -> Addresses:
    items = ctypes.c_void_p.from_address(id(objects) + _ITEMS_OFFSET).value
    if not items or not objects:
        return np.empty(0, np.int64)
    found = np.empty(len(objects), np.int64)
    # Not through an array type of ctypes: each length would make a class, garbage that has to be collected.
    ctypes.memmove(found.ctypes.data, items, found.nbytes)
    return found


def _layout_is_known() -> bool:
    probe: list[object] = [None, "a", 1.5, _read_items, [], {}]
    # The size must stand where it is expected before anything behind it is followed as a pointer.
    size = ctypes.c_ssize_t.from_address(id(probe) + _ITEMS_OFFSET - ctypes.sizeof(ctypes.c_void_p)).value
    return (
        ctypes.sizeof(ctypes.c_void_p) == np.dtype(np.int64).itemsize
        and size == len(probe)
        and _read_items(probe).tolist() == [id(thing) for thing in probe]
    )


FAST = _layout_is_known()


def addresses_of(objects: list[object]) -> Addresses:
    """Return the address of every object, in order, shape ``(len(objects),)``."""
    if FAST:
        return _read_items(objects)
    return np.fromiter(map(id, objects), np.int64, len(objects))


def kinds_of(objects: list[object]) -> Addresses:
    """Return the address of every object's real type, in order, shape ``(len(objects),)``."""
    kinds = list(map(type, objects))
    return addresses_of(cast("list[object]", kinds))


def picked(objects: list[Any], places: Ints) -> list[Any]:
    """Return the objects at *places*, in half the time of a comprehension."""
    wanted = places.tolist()
    return list(operator.itemgetter(*wanted)(objects)) if len(wanted) > 1 else [objects[place] for place in wanted]


def object_at(address: int) -> object:
    """Return the object at *address*; only for an object that is known to be alive."""
    return ctypes.cast(address, ctypes.py_object).value


def places_of(addresses: Addresses) -> Addresses:
    """Return the place of each address in a table of `N_PLACES`; several addresses may share one."""
    places = addresses >> _ALIGNMENT_BITS
    places &= N_PLACES - 1
    return places


def distinct(addresses: Addresses) -> Addresses:
    """Return every address that occurs, once, ascending: ``np.unique`` for arrays that name few, most of them often.

    A million kinds take 3 ms instead of the 13 ms of sorting them.
    """
    places = places_of(addresses)
    winners = np.zeros(N_PLACES, np.int64)
    winners[places] = addresses  # of those that share a place, the last stays
    losers = addresses[winners[places] != addresses]
    return np.unique(np.concatenate([winners[winners != 0], losers]))


def types_at(kinds: Addresses) -> dict[int, type]:
    """Return the distinct types of *kinds* by address; their instances must be alive."""
    return {kind: cast("type", object_at(kind)) for kind in distinct(kinds).tolist()}


Ints = npt.NDArray[Any]
"""Whole numbers of some width: addresses, vertices, counts."""

_CHUNK_BITS = 20  # pymalloc's arenas are 1 MiB, so the chunks of a heap are few and well filled
_SLOT_BITS = 5  # what the collector tracks has a header of 16 bytes before it: no two begin in the same 32
_SLOTS_PER_CHUNK = 1 << (_CHUNK_BITS - _SLOT_BITS)
_HOME_BITS = range(10, 23)
_FEW_WANTED = 1 << 14
_MAX_SLOTS, _MAX_SLOTS_PER_OBJECT = 1 << 24, 24  # beyond both a sorted array is smaller than a direct table


class AddressTable:
    """Position of each address in the array it was made from.

    Addresses of one heap lie close together in few chunks, so there is a slot for every 32 bytes of those chunks. Where
    the addresses are too scattered for that, or two of them share a slot, a sorted array is searched instead.
    """

    def __init__(self, addresses: Ints) -> None:
        """Make the table for *addresses*; of an address given twice, one of its positions counts."""
        self._addresses = addresses
        self._homes = _homes_of(_chunks_of(addresses), len(addresses))
        if self._homes is not None:
            self._slots: Ints = np.zeros((int(self._homes.max()) + _SLOTS_PER_CHUNK), dtype=np.int32)
            own = self._slots_of(addresses, self._homes)
            self._slots[own] = np.arange(len(addresses), dtype=np.int32)
            # Of all positions only that of the first is 0.
            if np.count_nonzero(self._slots) != len(addresses) - 1 or self._slots[own[0]] != 0:
                self._homes = None
        if self._homes is None:
            self._order: Ints = np.argsort(addresses, kind="stable")
            self._sorted: Ints = addresses[self._order]

    @staticmethod
    def _slots_of(addresses: Ints, homes: Ints) -> Ints:
        """Return the slot of each address; one outside the chunks gets any."""
        chunks = addresses >> _CHUNK_BITS
        chunks &= len(homes) - 1
        within = addresses >> _SLOT_BITS
        within &= _SLOTS_PER_CHUNK - 1
        slots: Ints = homes.take(chunks)
        slots += within.astype(slots.dtype, copy=False)
        return slots

    def look_up(self, addresses: Ints) -> tuple[Ints, Ints]:
        """Return whether each of *addresses* is in the table, and the positions of those that are.

        A fifth cheaper than `positions`.
        """
        if len(self._addresses) == 0:
            return np.zeros(len(addresses), dtype=bool), np.zeros(0, dtype=np.int32)
        found = self._candidates(addresses)
        is_known: Ints = self._addresses.take(found) == addresses
        return is_known, np.compress(is_known, found)

    def _candidates(self, addresses: Ints) -> Ints:
        """Return for each of *addresses* the one position where it could be."""
        if self._homes is not None:
            return self._slots.take(self._slots_of(addresses, self._homes))
        places = np.searchsorted(self._sorted, addresses, side="right") - 1
        return self._order.take(np.maximum(places, 0))

    def positions(self, addresses: Ints) -> Ints:
        """Return the position of each of *addresses*, -1 where it is not in the table."""
        if len(self._addresses) == 0:
            return np.full(len(addresses), -1, dtype=np.int32)
        found = self._candidates(addresses)
        # A foreign address lands on a slot that is empty or another's, and so on a position that is not its own.
        return np.where(self._addresses[found] == addresses, found, np.int32(-1))

    def position(self, address: int) -> int:
        """Return the position of one address, -1 where it is not in the table."""
        return int(self.positions(np.array([address], dtype=np.int64))[0])


class JoinedTable(AddressTable):
    """Position of each address in two arrays, one behind the other, of which the first has a table already."""

    def __init__(self, first: AddressTable, addresses: Ints) -> None:
        """Join *first* and a table for *addresses*; of an address that both have, the position in the first counts."""
        super().__init__(addresses)
        self._first = first
        self._n_first = len(first._addresses)  # noqa: SLF001 - of the same class

    def positions(self, addresses: Ints) -> Ints:
        """Return the position of each of *addresses*, -1 where it is in neither."""
        found = self._first.positions(addresses)
        missing = np.flatnonzero(found < 0)
        if len(missing):
            behind = super().positions(addresses[missing])
            found[missing] = np.where(behind < 0, -1, behind + self._n_first)
        return found

    def look_up(self, addresses: Ints) -> tuple[Ints, Ints]:
        """Return whether each of *addresses* is in one of the tables, and the positions of those that are."""
        found = self.positions(addresses)
        return found >= 0, np.compress(found >= 0, found)


def _chunks_of(addresses: Ints) -> Ints:
    """Return the number of every chunk with one of *addresses* in it, ascending.

    Neighbours in a heap are mostly of one chunk: a tenth of the numbers is left to be sorted.
    """
    chunks = addresses >> _CHUNK_BITS
    is_first = np.ones(len(chunks), bool)
    np.not_equal(chunks[1:], chunks[:-1], out=is_first[1:])
    return np.unique(chunks[is_first])


def positions_of(wanted: Addresses, addresses: Addresses) -> Ints:
    """Return the position of each of *wanted* in *addresses*, -1 where it is not there.

    Few of many are found by one look at each of these, without sorting them or making a table of them.
    """
    if len(wanted) > _FEW_WANTED:
        return AddressTable(addresses).positions(wanted)
    may_be_wanted = np.zeros(N_PLACES, bool)
    may_be_wanted[places_of(wanted)] = True
    possible = np.flatnonzero(may_be_wanted.take(places_of(addresses)))
    if not len(possible):
        return np.full(len(wanted), -1)
    possible = possible[np.argsort(addresses[possible])]
    found = possible[np.minimum(np.searchsorted(addresses[possible], wanted), len(possible) - 1)]
    return np.where(addresses[found] == wanted, found, -1)


def _homes_of(chunks: Ints, n_addresses: int) -> Ints | None:
    """Return where the slots of a chunk begin, by the lowest bits of its number; None if no table is worth it.

    A heap has two or three ranges of chunks, far from each other: the fewest bits are taken that tell all chunks apart.
    """
    if len(chunks) * _SLOTS_PER_CHUNK > max(_MAX_SLOTS_PER_OBJECT * n_addresses, _MAX_SLOTS):
        return None
    for bits in _HOME_BITS:
        lowest = chunks & ((1 << bits) - 1)
        if len(np.unique(lowest)) == len(chunks):
            n_slots = len(chunks) * _SLOTS_PER_CHUNK
            homes = np.zeros(1 << bits, dtype=np.int32 if n_slots <= np.iinfo(np.int32).max else np.int64)
            homes[lowest] = np.arange(len(chunks)) * _SLOTS_PER_CHUNK
            return homes
    return None


class KindTable:
    """The types of some objects, which are alive.

    Args:
        kinds: For each object the address of its type.

    Attributes:
        addresses: Of the types, sorted, shape ``(n_types,)``.
        rows: For each object the position of its type, int32.
    """

    def __init__(self, kinds: Addresses) -> None:
        places = places_of(kinds)
        winners = np.zeros(N_PLACES, np.int64)
        winners[places] = kinds  # of types that share a place, the last stays
        losers = np.flatnonzero(winners.take(places) != kinds)
        known = np.flatnonzero(winners)
        self.addresses: Addresses = np.unique(np.concatenate([winners[known], kinds[losers]]))
        row_at = np.zeros(N_PLACES, np.int32)
        row_at[known] = np.searchsorted(self.addresses, winners[known])
        self.rows: npt.NDArray[np.int32] = row_at.take(places)
        self.rows[losers] = np.searchsorted(self.addresses, kinds[losers])

    @cached_property
    def types(self) -> list[type]:
        """The types, in the order of their addresses."""
        return list(types_at(self.addresses).values())

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Their qualified names."""
        return tuple(map(type_name, self.types))

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """How many objects have each type."""
        return np.bincount(self.rows, minlength=len(self.addresses))

    def kinds_of(self, objects: npt.NDArray[np.int64]) -> Addresses:
        """Return the addresses of the types of *objects*, given by their positions."""
        return self.addresses.take(self.rows.take(objects))

    def mask(self, is_wanted: Callable[[type], bool]) -> npt.NDArray[np.bool_]:
        """Return for each object whether its type is wanted."""
        return self._spread(np.fromiter(map(is_wanted, self.types), bool, len(self.types)))

    def mask_by_name(self, is_wanted: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        """Return for each object whether the name of its type is wanted."""
        return self._spread(np.fromiter(map(is_wanted, self.names), bool, len(self.names)))

    def mask_of(self, kinds: Collection[int]) -> npt.NDArray[np.bool_]:
        """Return for each object whether the address of its type is among *kinds*."""
        wanted = frozenset(kinds)
        return self._spread(np.fromiter((kind in wanted for kind in self.addresses.tolist()), bool))

    def _spread(self, is_wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        return is_wanted.take(self.rows)

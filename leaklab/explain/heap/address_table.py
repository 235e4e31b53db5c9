"""Find the number of an object by its address."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[Any]
"""Whole numbers of some width: addresses, vertices, counts."""

_CHUNK_BITS = 20  # pymalloc's arenas are 1 MiB, so the chunks of a heap are few and well filled
_SLOT_BITS = 4  # objects are aligned to 16 bytes
_SLOTS_PER_CHUNK = 1 << (_CHUNK_BITS - _SLOT_BITS)
_HOME_BITS = range(10, 23)
_MAX_SLOTS, _MAX_SLOTS_PER_OBJECT = 1 << 24, 24  # beyond both a sorted array is smaller than a direct table


class AddressTable:
    """Position of each address in the array it was made from.

    Addresses of one heap lie close together in few chunks, so there is a slot for every 16 bytes of those chunks. Where
    the addresses are too scattered or unaligned for that, a sorted array is searched instead.
    """

    def __init__(self, addresses: Ints) -> None:
        """Make the table for *addresses*; of an address given twice, one of its positions counts."""
        self._addresses = addresses
        self._homes = _homes_of(np.unique(addresses >> _CHUNK_BITS), len(addresses))
        if self._homes is not None and not (addresses & ((1 << _SLOT_BITS) - 1)).any():
            self._slots: Ints = np.zeros((int(self._homes.max()) + _SLOTS_PER_CHUNK), dtype=np.int32)
            self._slots[self._slots_of(addresses, self._homes)] = np.arange(len(addresses), dtype=np.int32)
        else:
            self._homes = None
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

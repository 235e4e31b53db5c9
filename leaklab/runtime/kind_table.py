"""Number the types of many objects, so that a question about types is asked once for each type."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property

import numpy as np
import numpy.typing as npt

from leaklab.runtime.addresses import N_PLACES, Addresses, places_of, types_at
from leaklab.runtime.objects import type_name


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

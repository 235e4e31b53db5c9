"""Ask each type once what could be asked of each of its objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from leaklab.addresses import Addresses, distinct, types_at
from leaklab.objects import type_name


@dataclass(frozen=True, slots=True, eq=False)
class KindTable:
    """The types of some objects.

    Attributes:
        addresses: Of the types, sorted, shape ``(n_types,)``.
        types: The types, in the same order.
        names: Their qualified names.
        rows: For each object the position of its type.
    """

    addresses: Addresses
    types: list[type]
    names: tuple[str, ...]
    rows: npt.NDArray[np.int64]

    @classmethod
    def of(cls, kinds: Addresses) -> KindTable:
        """Build the table of *kinds*, the addresses of the types of living objects."""
        table = distinct(kinds)
        types = list(types_at(table).values())
        return cls(table, types, tuple(map(type_name, types)), np.searchsorted(table, kinds))

    def mask(self, is_wanted: Callable[[type], bool]) -> npt.NDArray[np.bool_]:
        """Return for each object whether its type is wanted."""
        return np.fromiter(map(is_wanted, self.types), bool, len(self.types))[self.rows]

    def mask_by_name(self, is_wanted: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        """Return for each object whether the name of its type is wanted."""
        return np.fromiter(map(is_wanted, self.names), bool, len(self.names))[self.rows]

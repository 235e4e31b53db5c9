"""Measure every container of the heap by its length."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.addresses import Addresses, types_at
from leaklab.objects import SIZED_BASES, length_function, mro_of

_FIXED = (tuple, frozenset, str, bytes)  # their length never changes: nothing to follow
# `len` of exactly these runs C code only, and costs less than the type's own function, called by name.
_PLAIN = frozenset(id(base) for base in SIZED_BASES if base not in _FIXED)


@dataclass(frozen=True, slots=True)
class Lengths:
    """Containers alive at one moment; all of shape ``(n,)``, in one order."""

    addresses: Addresses
    kinds: Addresses
    lengths: npt.NDArray[np.int64]

    def length_of(self, address: int) -> int | None:
        """Return the length of the container at *address*, None if there was none."""
        found = np.flatnonzero(self.addresses == address)
        return int(self.lengths[found[0]]) if len(found) else None


def position(stream: io.StringIO | io.BytesIO) -> int:
    """Return how far an in-memory file was written; 0 for a closed one. Moves nothing."""
    try:
        return type(stream).tell(stream)
    except ValueError:
        return 0


def measure_of(kind: type) -> Callable[[Any], int] | None:
    """Return the C function that tells how much an object of *kind* holds, None if it cannot grow or nobody knows."""
    if kind is io.StringIO or kind is io.BytesIO:
        return position
    if any(base is fixed for fixed in _FIXED for base in mro_of(kind)):
        return None
    return length_function(kind)


def container_lengths(objects: list[object], addresses: Addresses, kinds: Addresses) -> Lengths:
    """Measure every list, dict, set, deque, array and in-memory file among *objects*.

    Args:
        objects: Live objects; their types are looked at, never their ``__class__``.
        addresses: Their addresses, shape ``(n,)``.
        kinds: The addresses of their types, shape ``(n,)``.
    """
    measures = {kind: measure for kind, of in types_at(kinds).items() if (measure := measure_of(of)) is not None}
    plain = np.isin(kinds, [kind for kind in measures if kind in _PLAIN])
    # The other types have few objects each: one call per object beats one pass over the heap per type.
    rest = np.isin(kinds, [kind for kind in measures if kind not in _PLAIN])
    plain_things: Any = compress(objects, plain.tobytes())
    plain_lengths = map(len, plain_things)
    rest_lengths = map(_apply, [measures[kind] for kind in kinds[rest].tolist()], compress(objects, rest.tobytes()))
    n_plain, n_rest = int(np.count_nonzero(plain)), int(np.count_nonzero(rest))
    return Lengths(
        addresses=np.concatenate([addresses[plain], addresses[rest]]),
        kinds=np.concatenate([kinds[plain], kinds[rest]]),
        lengths=np.concatenate(
            [np.fromiter(plain_lengths, np.int64, n_plain), np.fromiter(rest_lengths, np.int64, n_rest)]
        ),
    )


def _apply(measure: Callable[[Any], int], thing: object) -> int:
    return measure(thing)


def follow(moments: list[Lengths]) -> tuple[Addresses, Addresses, npt.NDArray[np.int64]]:
    """Follow the containers that live at every one of *moments*, the first may be missing.

    Returns:
        Addresses ``(n,)``, kinds ``(n,)`` and lengths ``(n, n_moments)`` of those whose length differs between the
        first and the last moment. A container born after the first moment counts as empty there.
    """
    last = moments[-1]
    table = np.zeros((len(last.addresses), len(moments)), np.int64)
    alive = np.ones(len(last.addresses), bool)
    for column, moment in enumerate(moments):
        if not len(moment.addresses):
            alive &= column == 0
            continue
        order = np.argsort(moment.addresses)
        places = order[np.minimum(np.searchsorted(moment.addresses, last.addresses, sorter=order), len(order) - 1)]
        same = (moment.addresses[places] == last.addresses) & (moment.kinds[places] == last.kinds)
        table[same, column] = moment.lengths[places[same]]
        if column:
            alive &= same
    grown = alive & (table[:, -1] > table[:, 0])
    return last.addresses[grown], last.kinds[grown], table[grown]

"""Read again, long after a check, how long the containers are that it found to grow; nothing of theirs is held."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

import numpy as np

from leaklab.collect.checkpoint import measure_of
from leaklab.runtime.addresses import addresses_of, kinds_of
from leaklab.runtime.gc_control import gc_paused, user_has_frozen
from leaklab.runtime.kind_table import KindTable
from leaklab.runtime.objects import is_tensor_type

_N_LINKS = 3
"""So far from what grows its container is looked for: an entry, its container, the object whose attribute that is."""


class KnownPlace(Protocol):
    """A place that grows."""

    @property
    def fingerprint(self) -> str:
        """Of what grows there."""

    @property
    def chain(self) -> tuple[int, ...]:
        """Addresses from the first object of its path to what grows, or to its newest entry."""

    @property
    def grows(self) -> bool:
        """Whether the last object grows itself."""


class HolderLengths:
    """Knows growing containers by their addresses and types, until they die."""

    def __init__(self) -> None:
        self._chains: dict[str, tuple[int, ...]] = {}
        self._kinds: dict[str, tuple[int, int]] = {}
        self._lasting: set[str] = set()

    def note(self, places: Iterable[KnownPlace]) -> None:
        """Remember *places* that were found to grow."""
        for place in places:
            self._chains[place.fingerprint] = (place.chain if place.grows else place.chain[:-1])[-_N_LINKS:]
            self._kinds.pop(place.fingerprint, None)
            self._lasting.discard(place.fingerprint)

    def keep(self, fingerprints: Collection[str]) -> None:
        """Forget all places but those of *fingerprints*."""
        self._chains = {key: chain for key, chain in self._chains.items() if key in fingerprints}
        self._kinds = {key: kind for key, kind in self._kinds.items() if key in fingerprints}
        self._lasting.intersection_update(fingerprints)

    def read(self) -> Mapping[str, int]:
        """Return the length of the container of each place, 0 for one that was read twice before and is dead.

        One that is dead when it is first read again may be made anew at every step, longer each time. Places without a
        container are left out, and all that cannot be told where the user has frozen objects. Lists the heap, at a
        tenth of what a full collection costs; no check may have frozen it.
        """
        wanted = np.array(sorted({address for chain in self._chains.values() for address in chain}), np.int64)
        if not len(wanted):
            return {}
        with gc_paused():
            objects = gc.get_objects()
            rows = np.flatnonzero(np.isin(addresses_of(objects), wanted)).tolist()
            measured = {id(objects[row]): _length_of(objects[row]) for row in rows}
            objects.clear()
        lengths = dict.fromkeys(() if user_has_frozen() else self._lasting, 0)
        for fingerprint, chain in self._chains.items():
            for address in reversed(chain):
                found = measured.get(address)
                if found is not None:
                    kind, length = found
                    if fingerprint not in self._kinds:
                        self._kinds[fingerprint] = address, kind
                        lengths[fingerprint] = length
                    elif self._kinds[fingerprint] == (address, kind):
                        self._lasting.add(fingerprint)
                        lengths[fingerprint] = length
                    break
        return lengths


def count_tensors() -> int:
    """Return how many tensors Python knows; lists the heap, as `HolderLengths.read` does."""
    with gc_paused():
        objects = gc.get_objects()
        kinds = kinds_of(objects)
        objects.clear()
    return int(KindTable(kinds).mask(is_tensor_type).sum())


def _length_of(thing: object) -> tuple[int, int] | None:
    measure = measure_of(type(thing))
    return None if measure is None else (id(type(thing)), measure(thing))

"""Keep the levels of memory over a loop of any length, in a table that never gets larger.

The lengths of containers that a check found to grow are read on, long after it; nothing of theirs is held.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from leaklab.measure.cheap_counts import native_heap_bytes
from leaklab.measure.checkpoint import measure_of
from leaklab.measure.gauges import accelerator_levels, rss_bytes
from leaklab.model.loop import Levels
from leaklab.runtime.addresses import KindTable, addresses_of, kinds_of
from leaklab.runtime.gc_control import gc_paused, user_has_frozen
from leaklab.runtime.objects import is_tensor_type
from leaklab.runtime.referents import get_referents

N_KEPT = 256
"""So many samples fit; when they are there, the distance that samples keep from each other doubles."""

_UNKNOWN = -1.0
_STEP, _SECONDS, _HEAP, _RSS, _ALLOCATED, _RESERVED = range(6)

Column = npt.NDArray[np.float64]


class LevelHistory:
    """Levels of memory after steps of a loop: at most `N_KEPT` of them, evenly spread, the first and the latest always.

    Kept as numbers in one array that exists before the first step: as objects, the samples would be what grows from
    step to step.
    """

    def __init__(self) -> None:
        self._rows = np.full((N_KEPT, 6), _UNKNOWN)
        self._n = 0
        self._spacing = 1.0
        self._n_thinned = 0

    def __len__(self) -> int:
        return self._n

    @property
    def spacing(self) -> int:
        """Steps that two samples are apart at least; only the latest may follow its neighbour sooner."""
        return int(self._spacing)

    def note(self, step: int, seconds: float, own: tuple[int, int] = (0, 0)) -> None:
        """Read the levels after *step*: 20 microseconds of the processor, a few more for each accelerator.

        Nothing is initialised by it, and no object of Python stays.

        Args:
            step: Not below that of an earlier note; such a one is left out.
            seconds: Since the loop began.
            own: Bytes of malloc's heap, and of the resident set, that whoever watches has taken: they are left out.
        """
        rows = self._rows
        if self._n and step < rows[self._n - 1, _STEP]:
            return
        n = self._row_for(step)
        heap, accelerator = native_heap_bytes(), accelerator_levels()
        allocated, reserved = (_UNKNOWN, _UNKNOWN) if accelerator is None else accelerator
        own_heap, own_rss = own
        heap_level = _UNKNOWN if heap is None else max(heap - own_heap, 0)
        rows[n] = (step, seconds, heap_level, max(rss_bytes() - own_rss, 0), allocated, reserved)
        self._n = n + 1

    def heap(self) -> tuple[Column, Column]:
        """Return the steps, and what malloc had handed out after each; nothing where the system does not tell."""
        return self._series(_HEAP)

    def rss(self) -> tuple[Column, Column]:
        """Return the steps, and the resident set of the process after each."""
        return self._series(_RSS)

    def accelerator(self) -> tuple[Column, Column]:
        """Return the steps, and what was allocated on all accelerators; nothing for the steps before the first use."""
        return self._series(_ALLOCATED)

    def seconds(self) -> tuple[Column, Column]:
        """Return the steps, and the seconds since the loop began."""
        return self._series(_SECONDS)

    def levels(self) -> Levels:
        """Return the samples as a record."""
        columns = self._copy().T
        steps, heap, rss, allocated, reserved = (
            tuple(map(int, columns[i])) for i in (_STEP, _HEAP, _RSS, _ALLOCATED, _RESERVED)
        )
        return Levels(steps, tuple(columns[_SECONDS].tolist()), heap, rss, allocated, reserved)

    def _series(self, column: int) -> tuple[Column, Column]:
        rows = self._copy()
        known = rows[rows[:, column] != _UNKNOWN]
        return known[:, _STEP], known[:, column]

    def _copy(self) -> npt.NDArray[np.float64]:
        """Return the samples; read again if the loop thinned them out meanwhile, which another thread may see."""
        while True:
            before = self._n_thinned
            rows = self._rows[: self._n].copy()
            if before == self._n_thinned:
                return rows

    def _row_for(self, step: int) -> int:
        """Return the row for *step*: the latest sample gives its own away if it is too close to the one before it."""
        if self._n == N_KEPT and not self._is_latest_too_close():
            self._thin()
        if self._n and step == self._rows[self._n - 1, _STEP]:
            return self._n - 1
        return self._n - self._is_latest_too_close()

    def _is_latest_too_close(self) -> bool:
        if self._n < 2:  # noqa: PLR2004 - the first sample has none before it
            return False
        before, latest = self._rows[self._n - 2 : self._n, _STEP]
        return bool(latest - before < self._spacing)

    def _thin(self) -> None:
        """Double the spacing until half of the rows are free."""
        self._n_thinned += 1
        steps = self._rows[:, _STEP]
        kept = list(range(N_KEPT))
        while len(kept) > N_KEPT // 2 + 1:
            self._spacing *= 2
            kept = _spread(steps, kept[:-1], self._spacing) + kept[-1:]
        self._rows[: len(kept)] = self._rows[kept]
        self._n = len(kept)
        self._n_thinned += 1


def _spread(steps: Column, candidates: list[int], spacing: float) -> list[int]:
    """Return the first of *candidates* and each one that is *spacing* steps after the one kept before it."""
    kept = candidates[:1]
    for candidate in candidates[1:]:
        if steps[candidate] - steps[kept[-1]] >= spacing:
            kept.append(candidate)
    return kept


DEAD = -1
"""The length of a container that is not there any more."""

_N_LINKS = 3
"""So far above a container is what it is found by: its owner, and the dict in which that one has its attributes."""


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


LengthsAfterRuns: TypeAlias = Mapping[int, Sequence[tuple[int, int]]]
"""How long containers were, by their addresses: pairs of a run and the length after it."""


class HolderLengths:
    """Knows growing containers by their addresses and types, until they die.

    Attributes:
        seen: How long those of the last check were after some of its runs, in pairs of both, by fingerprint.
    """

    def __init__(self) -> None:
        self.seen: dict[str, Sequence[tuple[int, int]]] = {}
        self._chains: dict[str, tuple[int, ...]] = {}
        self._kinds: dict[str, int] = {}
        self._lasting: set[str] = set()

    def note(self, places: Iterable[KnownPlace], lengths: LengthsAfterRuns = MappingProxyType({})) -> None:
        """Remember *places* that were found to grow, and what the *lengths* of containers were, by address."""
        self.seen = {}
        for place in places:
            chain = place.chain if place.grows else place.chain[:-1]
            self._chains[place.fingerprint] = chain[-_N_LINKS:]
            if chain and chain[-1] in lengths:
                self.seen[place.fingerprint] = lengths[chain[-1]]
            self._kinds.pop(place.fingerprint, None)
            self._lasting.discard(place.fingerprint)

    def keep(self, fingerprints: Collection[str]) -> None:
        """Forget all places but those of *fingerprints*."""
        self._chains = {key: chain for key, chain in self._chains.items() if key in fingerprints}
        self._kinds = {key: kind for key, kind in self._kinds.items() if key in fingerprints}
        self._lasting.intersection_update(fingerprints)

    def read(self) -> Mapping[str, int]:
        """Return the length of the container of each place, `DEAD` for one that was read twice before.

        One that is dead when it is first read again may be made anew at every step, longer each time. Places without a
        container are left out, and all that cannot be told where the user has frozen objects. Lists the heap, at a
        tenth of what a full collection costs; no check may have frozen it.
        """
        measured = self._measured()
        lengths = dict.fromkeys(() if user_has_frozen() else self._lasting, DEAD)
        for fingerprint, chain in self._chains.items():
            # What is above has another length: an object keeps its attributes, whatever each of them is replaced by.
            kind, length = measured.get(chain[-1]) or (0, 0) if chain else (0, 0)
            if not kind:
                continue
            if fingerprint not in self._kinds:
                self._kinds[fingerprint] = kind
                lengths[fingerprint] = length
            elif self._kinds[fingerprint] == kind:
                self._lasting.add(fingerprint)
                lengths[fingerprint] = length
        return lengths

    def gone(self, fingerprints: Collection[str]) -> set[str]:
        """Return those of *fingerprints* whose containers are known and dead; as for `read`."""
        known = {key: chain for key in fingerprints if (chain := self._chains.get(key))}
        if not known or user_has_frozen():
            return set()
        measured = self._measured()
        return {key for key, chain in known.items() if chain[-1] not in measured}

    def _measured(self) -> dict[int, tuple[int, int] | None]:
        """Return type and length of what is alive on the chains, by its address; None for what has no length."""
        wanted = np.array(sorted({address for chain in self._chains.values() for address in chain}), np.int64)
        if not len(wanted):
            return {}
        with gc_paused():
            objects = gc.get_objects()
            rows = np.flatnonzero(np.isin(addresses_of(objects), wanted)).tolist()
            found = {id(objects[row]): objects[row] for row in rows}
            objects.clear()
            # A dict of nothing but numbers, words and arrays is not listed before CPython 3.14: found by what has it.
            for outer, inner in {link for chain in self._chains.values() for link in pairwise(chain)}:
                if inner not in found and outer in found:
                    found.update((id(thing), thing) for thing in get_referents(found[outer]) if id(thing) == inner)
            return {address: _length_of(thing) for address, thing in found.items()}


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

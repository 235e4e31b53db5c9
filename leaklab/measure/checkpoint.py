"""Measure the whole heap at one moment: types, containers, slots, autograd nodes, threads."""

from __future__ import annotations

import gc
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.measure.registries import entry_counts
from leaklab.measure.slots import Slots, find_slots
from leaklab.runtime.addresses import Addresses, Ints, KindTable, addresses_of, kinds_of, positions_of
from leaklab.runtime.gc_control import gc_paused, user_has_frozen
from leaklab.runtime.objects import SIZED_BASES, has_base, is_tensor_type, length_function
from leaklab.runtime.referents import get_referents

_FIXED = (tuple, frozenset, str, bytes)  # their length never changes: nothing to follow
_BLOCK = 1 << 16
_MOST_GAPS = 1 << 10
"""Where more has died or was born in between, the rest is looked up."""
# `len` of exactly these runs C code only, and costs less than the type's own function, called by name.
_PLAIN = frozenset(id(base) for base in SIZED_BASES if base not in _FIXED)


@dataclass(frozen=True, slots=True)
class Lengths:
    """Containers alive at one moment; all of shape ``(n,)``, in one order."""

    addresses: Addresses
    kinds: Addresses
    lengths: npt.NDArray[np.int64]

    def lengths_of(self, addresses: Addresses) -> npt.NDArray[np.int64]:
        """Return the lengths of the containers at *addresses*, -1 where there was none, shape ``(len(addresses),)``."""
        rows = positions_of(addresses, self.addresses)
        return np.where(rows >= 0, self.lengths.take(rows, mode="clip"), -1) if len(self.lengths) else rows

    def as_if_grown(self, before: Lengths, after: Lengths) -> Lengths:
        """Return these lengths with what each container gained from *before* to *after*, two later moments."""
        was, is_now = before.lengths_of(self.addresses), after.lengths_of(self.addresses)
        gained = np.where((was >= 0) & (is_now >= 0), is_now - was, 0)
        return Lengths(self.addresses, self.kinds, self.lengths + gained)

    def only_of(self, earlier: Lengths) -> Lengths:
        """Return those of these containers that *earlier* has as well."""
        stay = np.isin(self.addresses, earlier.addresses)
        return Lengths(self.addresses[stay], self.kinds[stay], self.lengths[stay])


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
    if any(has_base(kind, fixed) for fixed in _FIXED):
        return None
    return length_function(kind)


def container_lengths(objects: list[object], addresses: Addresses, table: KindTable) -> Lengths:
    """Measure every list, dict, set, deque, array and in-memory file among *objects*.

    Args:
        objects: Live objects; their types are looked at, never their ``__class__``.
        addresses: Their addresses, shape ``(n,)``.
        table: Their types.
    """
    rows, lengths = _measured(objects, table)
    return Lengths(addresses[rows], table.kinds_of(rows), lengths)


def _measured(objects: list[object], table: KindTable) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the positions of what can grow among *objects*, and how much each of them holds."""
    functions = [measure_of(of) for of in table.types]
    measures = {
        kind: measure for kind, measure in zip(table.addresses.tolist(), functions, strict=True) if measure is not None
    }
    is_plain = table.mask_of(measures.keys() & _PLAIN)
    plain = np.flatnonzero(is_plain)
    # The other types have few objects each: one call per object beats one pass over the heap per type.
    rest = np.flatnonzero(table.mask_of(measures.keys() - _PLAIN))
    plain_things: Any = compress(objects, is_plain.tobytes())
    plain_lengths = np.fromiter(map(len, plain_things), np.int64, len(plain))
    rest_kinds = table.kinds_of(rest).tolist()
    rest_lengths = [measures[kind](objects[row]) for kind, row in zip(rest_kinds, rest.tolist(), strict=True)]
    return np.concatenate([plain, rest]), np.concatenate([plain_lengths, np.array(rest_lengths, np.int64)])


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
        rows = _rows_in(moment, last)
        table[:, column] = np.where(rows >= 0, moment.lengths.take(rows, mode="clip"), 0) if len(moment.lengths) else 0
        if column:
            alive &= rows >= 0
    grown = alive & (table[:, -1] > table[:, 0])
    return last.addresses[grown], last.kinds[grown], table[grown]


def _rows_in(moment: Lengths, last: Lengths) -> Ints:
    """Return the row in *moment* of each container of *last*, -1 where it was not there."""
    rows = _aligned(moment.addresses, last.addresses)
    if len(moment.kinds):
        rows[moment.kinds.take(rows, mode="clip") != last.kinds] = -1
    return rows


def _aligned(before: Addresses, after: Addresses) -> npt.NDArray[np.int64]:
    """Return the position in *before* of each address of *after*, -1 where it is not there; each has an address once.

    The collector keeps its order, but for few: one that has died is missing, and the ones born in a phase come first.
    So most are found by comparing blocks side by side, and only what is in no such block is looked up.
    """
    rows = np.full(len(after), -1)
    at_before = at_after = n_gaps = 0
    missed: list[Ints] = []
    while at_before < len(before) and at_after < len(after) and n_gaps < _MOST_GAPS:
        here, there = after[at_after : at_after + _BLOCK], before[at_before : at_before + _BLOCK]
        n_both = min(len(here), len(there))
        differs = here[:n_both] != there[:n_both]
        n_same = int(differs.argmax()) if differs.any() else n_both
        rows[at_after : at_after + n_same] = np.arange(at_before, at_before + n_same)
        at_before, at_after = at_before + n_same, at_after + n_same
        if n_same < n_both:
            n_gaps += 1
            died, born = np.flatnonzero(there == here[n_same]), np.flatnonzero(here == there[n_same])
            if len(born):
                at_after += int(born[0]) - n_same
            else:
                n_gone = int(died[0]) - n_same if len(died) else 1
                missed.append(np.arange(at_before, at_before + n_gone))
                at_before += n_gone
                at_after += 0 if len(died) else 1
    candidates = np.concatenate([*missed, np.arange(at_before, len(before))])
    wanted = np.flatnonzero(rows < 0)
    found = positions_of(after[wanted], before[candidates])
    rows[wanted] = np.where(found >= 0, candidates.take(found, mode="clip"), -1) if len(candidates) else -1
    return rows


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The heap between two phases of runs.

    Attributes:
        after_run: Measured runs so far.
        kinds: Addresses of the types alive, shape ``(n_kinds,)``, sorted.
        counts: Objects of each of them, shape ``(n_kinds,)``.
        lengths: Every container by its length.
        slots: Every slot that points to a buffer or a longer sequence; None where these were not looked at.
        graph_nodes: Autograd nodes reachable from the tensors of the heap; a lower bound if the graph is too large.
        n_threads: Living threads.
        n_registered: Entries of each of `leaklab.measure.registries.REGISTRIES`, shape ``(n_registries,)``.
        kept_kinds: Addresses of the types of all that the measured runs so far have left, shape ``(n_kept_kinds,)``.
        kept_counts: So many of each of them, shape ``(n_kept_kinds,)``.
    """

    after_run: int
    kinds: Addresses
    counts: npt.NDArray[np.int64]
    lengths: Lengths
    slots: Slots | None
    graph_nodes: int
    n_threads: int
    n_registered: npt.NDArray[np.int64]
    kept_kinds: Addresses = field(default_factory=lambda: np.empty(0, np.int64))
    kept_counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def having_kept(self, kinds: Addresses, counts: npt.NDArray[np.int64]) -> Checkpoint:
        """Return this checkpoint with what the runs had left, by its types."""
        return replace(self, kept_kinds=kinds, kept_counts=counts)

    def n_kept_of(self, kind: int) -> int:
        """Return how many objects of the type at address *kind* the measured runs had left."""
        return int(self.kept_counts[self.kept_kinds == kind].sum())

    def count_of(self, kind: int) -> int:
        """Return how many objects of the type at address *kind* were alive."""
        place = int(np.searchsorted(self.kinds, kind))
        return int(self.counts[place]) if place < len(self.kinds) and self.kinds[place] == kind else 0

    def moved(self, before: Checkpoint, after: Checkpoint) -> Checkpoint:
        """Return this checkpoint with its slots under the owners that they had in *after*, not in *before*."""
        if self.slots is None or before.slots is None or after.slots is None:
            return self
        return replace(self, slots=self.slots.moved(before.slots, after.slots))

    def as_if_grown(self, before: Checkpoint, after: Checkpoint) -> Checkpoint:
        """Return this checkpoint with what each container gained from *before* to *after*, two later moments."""
        slots = self.slots
        if slots is not None and before.slots is not None and after.slots is not None:
            slots = slots.as_if_grown(before.slots, after.slots)
        return replace(self, lengths=self.lengths.as_if_grown(before.lengths, after.lengths), slots=slots)

    def only_of(self, earlier: Checkpoint) -> Checkpoint:
        """Return this checkpoint with those containers only that *earlier* has as well."""
        slots = self.slots if self.slots is None or earlier.slots is None else self.slots.only_of(earlier.slots)
        return replace(self, lengths=self.lengths.only_of(earlier.lengths), slots=slots)


def heap_objects(*, frozen_too: bool) -> list[object]:
    """Return every object the collector knows; *frozen_too* adds those that the user froze and something refers to."""
    objects = gc.get_objects()
    if frozen_too:
        objects.extend(_frozen_objects(objects))
    return objects


@contextmanager
def whole_heap() -> Iterator[list[object]]:
    """Borrow every object of the heap; the list is emptied on exit, and no automatic collection runs inside."""
    with gc_paused():
        objects = heap_objects(frozen_too=user_has_frozen())
        try:
            yield objects
        finally:
            objects.clear()


def _frozen_objects(objects: list[object]) -> list[object]:
    """Follow the references of *objects* to tracked objects that are not among them."""
    seen = set(addresses_of(objects).tolist())
    seen.add(id(objects))
    found: list[object] = []
    frontier: list[object] = objects
    while frontier:
        referents = get_referents(*frontier)
        fresh = dict(zip(map(id, referents), referents, strict=True))
        frontier = [thing for address, thing in fresh.items() if address not in seen and gc.is_tracked(thing)]
        frontier = [thing for thing in frontier if thing is not found and thing is not referents]
        seen.update(map(id, frontier))
        found.extend(frontier)
    return found


def take_checkpoint(
    after_run: int,
    objects: list[object],
    *,
    with_slots: bool = True,
    followed: Slots | None = None,
    fresh: Addresses | None = None,
) -> tuple[Checkpoint, Addresses, Addresses]:
    """Measure *objects*, the whole heap; also return their addresses and those of their types.

    Args:
        after_run: Measured runs so far.
        objects: All of them.
        with_slots: Whether to look at buffers.
        followed: As for `find_slots`.
        fresh: Likewise.
    """
    addresses, kinds = addresses_of(objects), kinds_of(objects)
    table = KindTable(kinds)
    rows, lengths = _measured(objects, table)
    length_of = np.full(len(objects), -1)
    length_of[rows] = lengths
    checkpoint = Checkpoint(
        after_run=after_run,
        kinds=table.addresses,
        counts=table.counts,
        lengths=Lengths(addresses[rows], table.kinds_of(rows), lengths),
        slots=find_slots(objects, kinds, followed, length_of, fresh) if with_slots else None,
        graph_nodes=_count_graph_nodes(objects, table),
        n_threads=threading.active_count(),
        n_registered=entry_counts(),
    )
    return checkpoint, addresses, kinds


def _count_graph_nodes(objects: list[object], table: KindTable) -> int:
    tensors = [objects[row] for row in np.flatnonzero(table.mask(is_tensor_type)).tolist()]
    if not tensors:
        return 0
    from leaklab.runtime.autograd_graph import count_nodes, is_node_type  # noqa: PLC0415 - needs torch, which has tensors to show here

    return count_nodes(tensors, [objects[row] for row in np.flatnonzero(table.mask(is_node_type)).tolist()])

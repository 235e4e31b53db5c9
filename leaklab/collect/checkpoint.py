"""Measure the whole heap at one moment: types, containers, slots, tensors, threads."""

from __future__ import annotations

import gc
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.collect.census import Census
from leaklab.collect.registries import entry_counts
from leaklab.collect.slots import Slots, find_slots
from leaklab.runtime.addresses import Addresses, addresses_of, get_referents, kinds_of, types_at
from leaklab.runtime.gc_control import gc_paused, user_has_frozen
from leaklab.runtime.objects import SIZED_BASES, has_base, length_function, loaded_type, mro_of
from leaklab.runtime.sizes import storage_bytes

_FIXED = (tuple, frozenset, str, bytes)  # their length never changes: nothing to follow
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
        if not len(self.addresses):
            return np.full(len(addresses), -1)
        order = np.argsort(self.addresses)
        places = np.minimum(np.searchsorted(self.addresses, addresses, sorter=order), len(order) - 1)
        found: npt.NDArray[np.int64] = np.where(
            self.addresses[order[places]] == addresses, self.lengths[order[places]], -1
        )
        return found


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


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The heap between two phases of runs.

    Attributes:
        after_run: Measured runs so far.
        kinds: Addresses of the types alive, shape ``(n_kinds,)``, sorted.
        counts: Objects of each of them, shape ``(n_kinds,)``.
        lengths: Every container by its length.
        slots: Every slot that points to a buffer or a longer sequence; None where these were not looked at.
        tensor_bytes: Bytes of all storages that tensors of the heap own, each counted once.
        graph_nodes: Autograd nodes reachable from the tensors of the heap; a lower bound if the graph is too large.
        n_threads: Living threads.
        n_registered: Entries of each of `leaklab.collect.registries.REGISTRIES`, shape ``(n_registries,)``.
    """

    after_run: int
    kinds: Addresses
    counts: npt.NDArray[np.int64]
    lengths: Lengths
    slots: Slots | None
    tensor_bytes: int
    graph_nodes: int
    n_threads: int
    n_registered: npt.NDArray[np.int64]

    def count_of(self, kind: int) -> int:
        """Return how many objects of the type at address *kind* were alive."""
        place = int(np.searchsorted(self.kinds, kind))
        return int(self.counts[place]) if place < len(self.kinds) and self.kinds[place] == kind else 0


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


def take_checkpoint(after_run: int, objects: list[object], *, with_slots: bool = True) -> tuple[Checkpoint, Census]:
    """Measure *objects*, the whole heap, *with_slots* or without; also return who they are, as a sorted census."""
    addresses, kinds = addresses_of(objects), kinds_of(objects)
    distinct, counts = np.unique(kinds, return_counts=True)
    tensors = list(compress(objects, _tensor_mask(kinds).tobytes()))
    checkpoint = Checkpoint(
        after_run=after_run,
        kinds=distinct,
        counts=counts,
        lengths=container_lengths(objects, addresses, kinds),
        slots=find_slots(objects, kinds) if with_slots else None,
        tensor_bytes=sum(storage_bytes(tensors).values()),
        graph_nodes=_count_graph_nodes(objects, kinds, tensors),
        n_threads=threading.active_count(),
        n_registered=entry_counts(),
    )
    order = np.argsort(addresses)
    return checkpoint, Census(addresses[order], kinds[order], np.zeros(len(order), bool))


def _count_graph_nodes(objects: list[object], kinds: Addresses, tensors: list[object]) -> int:
    if not tensors:
        return 0
    from leaklab.runtime.autograd_graph import count_nodes, is_node_type  # noqa: PLC0415 - needs torch, which has tensors to show here

    node_kinds = [kind for kind, of in types_at(kinds).items() if is_node_type(of)]
    return count_nodes(tensors, list(compress(objects, np.isin(kinds, node_kinds).tobytes())))


def _tensor_mask(kinds: Addresses) -> npt.NDArray[np.bool_]:
    tensor = loaded_type("torch", "Tensor")
    if tensor is None:
        return np.zeros(len(kinds), bool)
    return np.isin(kinds, [kind for kind, of in types_at(kinds).items() if has_base(of, tensor)])

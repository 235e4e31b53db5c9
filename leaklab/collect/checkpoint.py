"""Measure the whole heap at one moment: types, containers, slots, tensors, threads."""

from __future__ import annotations

import gc
import threading
from dataclasses import dataclass
from itertools import compress

import numpy as np
import numpy.typing as npt

from leaklab.addresses import Addresses, addresses_of, kinds_of, types_at
from leaklab.collect.census import Census
from leaklab.collect.containers import Lengths, container_lengths
from leaklab.collect.slots import Slots, find_slots
from leaklab.objects import has_base, loaded_type
from leaklab.tensors import storage_bytes


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The heap between two phases of runs.

    Attributes:
        after_run: Measured runs so far.
        kinds: Addresses of the types alive, shape ``(n_kinds,)``, sorted.
        counts: Objects of each of them, shape ``(n_kinds,)``.
        lengths: Every container by its length.
        slots: Every slot that points to a buffer or a longer sequence.
        tensor_bytes: Bytes of all storages that tensors of the heap own, each counted once.
        graph_nodes: Autograd nodes reachable from the tensors of the heap; a lower bound if the graph is too large.
        n_threads: Living threads.
    """

    after_run: int
    kinds: Addresses
    counts: npt.NDArray[np.int64]
    lengths: Lengths
    slots: Slots
    tensor_bytes: int
    graph_nodes: int
    n_threads: int

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


def _frozen_objects(objects: list[object]) -> list[object]:
    """Follow the references of *objects* to tracked objects that are not among them."""
    seen = set(addresses_of(objects).tolist())
    seen.add(id(objects))
    found: list[object] = []
    frontier: list[object] = objects
    while frontier:
        referents = gc.get_referents(*frontier)
        fresh = dict(zip(map(id, referents), referents, strict=True))
        frontier = [thing for address, thing in fresh.items() if address not in seen and gc.is_tracked(thing)]
        frontier = [thing for thing in frontier if thing is not found and thing is not referents]
        seen.update(map(id, frontier))
        found.extend(frontier)
    return found


def take_checkpoint(after_run: int, objects: list[object]) -> tuple[Checkpoint, Census]:
    """Measure *objects*, the whole heap; also return who they are, as a sorted census."""
    addresses, kinds = addresses_of(objects), kinds_of(objects)
    distinct, counts = np.unique(kinds, return_counts=True)
    tensors = list(compress(objects, _tensor_mask(kinds).tobytes()))
    checkpoint = Checkpoint(
        after_run=after_run,
        kinds=distinct,
        counts=counts,
        lengths=container_lengths(objects, addresses, kinds),
        slots=find_slots(objects, kinds),
        tensor_bytes=sum(storage_bytes(tensors).values()),
        graph_nodes=_count_graph_nodes(objects, kinds, tensors),
        n_threads=threading.active_count(),
    )
    order = np.argsort(addresses)
    return checkpoint, Census(addresses[order], kinds[order], np.zeros(len(order), bool))


def _count_graph_nodes(objects: list[object], kinds: Addresses, tensors: list[object]) -> int:
    if not tensors:
        return 0
    from leaklab.graph_walk import count_nodes, is_node_type  # noqa: PLC0415 - needs torch, which has tensors to show here

    node_kinds = [kind for kind, of in types_at(kinds).items() if is_node_type(of)]
    return count_nodes(tensors, list(compress(objects, np.isin(kinds, node_kinds).tobytes())))


def _tensor_mask(kinds: Addresses) -> npt.NDArray[np.bool_]:
    tensor = loaded_type("torch", "Tensor")
    if tensor is None:
        return np.zeros(len(kinds), bool)
    return np.isin(kinds, [kind for kind, of in types_at(kinds).items() if has_base(of, tensor)])

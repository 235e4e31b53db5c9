"""Read, between the runs of a trial, how much is alive: all objects, all memory, every container by its length."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np

from leaklab.collect.checkpoint import Lengths, container_lengths, take_checkpoint
from leaklab.collect.gauges import accelerator_bytes, native_heap_bytes
from leaklab.collect.process_counts import Children, count_descriptors
from leaklab.runtime.addresses import addresses_of, kinds_of
from leaklab.runtime.gc_control import collect_quietly
from leaklab.runtime.kind_table import KindTable

Heap = Callable[[], AbstractContextManager[list[object]]]
"""Lends every object of the heap."""
N_LOOKS = 3
_COLUMNS = ("objects", "native", "accelerator", "blocks", "descriptors", "children", "nodes", "registered", "threads")
_N_CHEAP = 6
"""So many of them are read at every look, the others before and behind only."""
_N_LENGTHS = 3
"""So often containers are measured: before, between the halves, and behind them."""
_ROOM = 1.5
"""For so many times the containers that there are when the runs begin, room is made."""


@dataclass(frozen=True, slots=True)
class LevelGain:
    """What some runs added, in their first and in their second half.

    Attributes:
        n_runs: So many runs are in both halves together, as many in each.
        objects: Objects that the collector follows.
        native: Bytes that malloc has handed out.
        accelerator: Bytes on accelerators.
        blocks: Blocks of Python's own allocator, which objects are in that no collector follows.
        descriptors: Open file descriptors.
        children: Child processes.
        nodes: Autograd nodes, those of both halves together in the second.
        registered: Entries of registries that Python does not show, the same way.
        threads: Threads, the same way.
        containers: Entries that containers got, in one run more, by the address of the container; of those that got
            some in either half.
    """

    n_runs: int
    objects: tuple[float, float]
    native: tuple[float, float]
    accelerator: tuple[float, float]
    blocks: tuple[float, float]
    descriptors: tuple[float, float]
    children: tuple[float, float]
    nodes: tuple[float, float]
    registered: tuple[float, float]
    threads: tuple[float, float]
    containers: dict[int, int]

    def per_run(self, name: str) -> float:
        """Return what each run added of *name*, below 0 where that went down."""
        gains: tuple[float, float] = getattr(self, name)
        return sum(gains) / self.n_runs

    def steady(self, name: str) -> float:
        """Return what each run added of *name* in the half that added less, if something was added in both."""
        halves: tuple[float, float] = getattr(self, name)
        return 2 * min(halves) / self.n_runs if min(halves) > 0 else self.per_run(name)

    def without(self, control: LevelGain, reference: LevelGain) -> LevelGain:
        """Return this gain without what *control* has added more than *reference* in the same half.

        Both are of the unchanged program: the difference is what the trial itself keeps alive.
        """
        halves = {
            name: tuple(
                mine - max(its - usual, 0.0)
                for mine, its, usual in zip(*(getattr(one, name) for one in (self, control, reference)), strict=True)
            )
            for name in _COLUMNS
        }
        return LevelGain(self.n_runs, containers=self.containers, **halves)


class LevelReader:
    """Reads three times: before the runs, between their halves, and behind them; one more run comes before the first.

    All records are numbers in arrays that are made before the first look: as objects, they would be counted.

    Args:
        heap: Lends the heap.
        collects: Whether garbage is collected before each look.
    """

    def __init__(self, heap: Heap, *, collects: bool) -> None:
        self._heap, self._collects = heap, collects
        self._rows = np.zeros((N_LOOKS, len(_COLUMNS)))
        room = int(_ROOM * len(gc.get_objects()))
        self._lengths = np.empty((_N_LENGTHS, 2, room), np.int64)
        self._settled = np.zeros((N_LOOKS - 1, 2))
        self._n_containers = np.zeros(_N_LENGTHS, np.int64)
        self._n_looks = 0
        self._children = Children()

    def begin(self) -> None:
        """Read what costs more: once now, and once at the last look.

        To look at a graph or a tensor makes Python objects for it. A run comes between this and the first look: what
        it lets go of would otherwise seem to be given back by the first half.
        """
        self._collect()
        self._look_at_all(0)

    def note_first_run(self) -> None:
        """Read memory behind the first run of a half: it takes what malloc has lost to the look before it."""
        if self._collects:
            gc.collect(1)
        self._settled[self._n_looks - 1] = native_heap_bytes() or 0, accelerator_bytes() or 0

    def look(self) -> None:
        """Read the levels."""
        self._collect()
        # Right behind a full collection the lists of free objects are empty, whose blocks count as handed out.
        row = self._rows[self._n_looks]
        row[1:4] = native_heap_bytes() or 0, accelerator_bytes() or 0, sys.getallocatedblocks()
        row[4:_N_CHEAP] = count_descriptors(), len(self._children.numbers())
        with self._heap() as objects:
            row[0] = len(objects)
            if self._n_looks == 1:
                addresses = addresses_of(objects)
                self._keep(container_lengths(objects, addresses, KindTable(kinds_of(objects))), 1)
        self._n_looks += 1
        if self._n_looks == N_LOOKS:
            self._look_at_all(1)

    def _collect(self) -> None:
        if self._collects:
            collect_quietly()

    def _look_at_all(self, place: int) -> None:
        with self._heap() as objects:
            checkpoint, _addresses, _kinds = take_checkpoint(0, objects, with_slots=False)
        registered = np.maximum(checkpoint.n_registered, 0).sum()
        self._rows[2 * place : 2 * place + 2, _N_CHEAP:] = checkpoint.graph_nodes, registered, checkpoint.n_threads
        self._keep(checkpoint.lengths, 2 * place)

    def _keep(self, lengths: Lengths, place: int) -> None:
        n = min(len(lengths.addresses), self._lengths.shape[-1])
        self._lengths[place, 0, :n] = lengths.addresses[:n]
        self._lengths[place, 1, :n] = lengths.lengths[:n]
        self._n_containers[place] = n

    def gain(self, n_runs: int) -> LevelGain:
        """Return what *n_runs* runs added, half of them before the second of the three looks."""
        self._rows[-1, _N_CHEAP:] -= (self._rows[-1, _N_CHEAP:] - self._rows[0, _N_CHEAP:]) / (n_runs + 1)
        halves = [(after - before).tolist() for before, after in pairwise(self._rows)]
        values = {name: (first, second) for name, first, second in zip(_COLUMNS, *halves, strict=True)}
        in_half = n_runs / 2
        memory = (self._rows[1:, 1:3] - self._settled) * in_half / (in_half - 1)
        values["native"], values["accelerator"] = map(tuple, memory.T.tolist())
        return LevelGain(n_runs=n_runs, containers=self._grown(), **values)

    def _grown(self) -> dict[int, int]:
        """Return the containers that are longer at each of the three looks than at the one before.

        Where one is freed, another soon has its address: what seems to be longer once may be another one.
        """
        found = [self._lengths[look, :, :n] for look, n in enumerate(self._n_containers.tolist())]
        common = reduce(np.intersect1d, [addresses for addresses, _ in found])
        lengths = []
        for addresses, of_each in found:
            order = np.argsort(addresses)
            lengths.append(of_each[order[np.searchsorted(addresses, common, sorter=order)]])
        longer = np.flatnonzero((lengths[1] > lengths[0]) & (lengths[2] > lengths[1]))
        gained = lengths[2] - lengths[0]
        return dict(zip(common[longer].tolist(), gained[longer].tolist(), strict=True))

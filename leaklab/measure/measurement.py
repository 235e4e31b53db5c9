"""Measure phases of runs: a checkpoint of the whole heap, then cheap censuses, then a checkpoint again."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from leaklab.measure.census import Baseline, Census, FrozenCensus, RefreezingCensus, ScanCensus
from leaklab.measure.cheap_counts import python_blocks
from leaklab.measure.checkpoint import Checkpoint, heap_objects, take_checkpoint
from leaklab.measure.gauges import Meters
from leaklab.measure.process_counts import ProcessCounts
from leaklab.measure.slots import Slots, grown_slots
from leaklab.runtime.addresses import Addresses, addresses_of, kinds_of, positions_of
from leaklab.runtime.gc_control import OLD, YOUNG, collect_quietly, gc_paused
from leaklab.runtime.graph_marks import UNSET, GraphMarks

_NONE = np.empty(0, np.int64)
_LEAST_RISE = 128
"""Bytes per run of malloc's level: the records of the runs themselves make it rise by up to 120."""
_LEAST_BLOCKS, _BLOCKS_NOISE = 0.5, 8
"""Blocks of Python's own allocator, per run and in the second half of any phase: an entry of a table of texts and
numbers takes one or more. Where nothing stays the level rises there by 0 to 6: a collection empties CPython's free
lists, and the first runs behind it fill them again (by 2 blocks a run, longest in the first check of a process)."""
_BLOCKS_OF_COHORT = 2
"""Blocks of Python's own allocator that the records of a run take: two arrays, whose data lie elsewhere."""
_FEWEST_LOOKS = 2
_ENOUGH_LOOKS = 3
"""After so many looks no slot accumulates that had not begun to."""
_FOLLOWED_RUNS = 8
"""A buffer that is too small to be followed after so many runs is nobody's leak: later looks need not find it."""
MOST_OF_MEMORY = 0.1
"""Runs stop once what they keep has taken so much of the memory that was free: the check must not fill the machine."""
_NODE_WEIGHT = 5
"""An autograd node costs the explanation as much as several objects."""


class Cohorts:
    """The objects that each measured run bore.

    The lists are as long as they will ever be, and hold only arrays, which the collector does not track: as objects,
    these records would be found by the very census that they record.

    Attributes:
        n_runs: Runs recorded so far.
        n_bytes: The native memory that the records take.
    """

    def __init__(self, max_runs: int) -> None:
        self._addresses: list[Addresses] = [_NONE] * max_runs
        self._kinds: list[Addresses] = [_NONE] * max_runs
        self._last_addresses, self._last_kinds = _NONE, _NONE
        self.n_runs = 0
        self.n_bytes = 0

    def start_phase(self) -> None:
        """Forget the last census: a new baseline makes everything alive old."""
        self._last_addresses, self._last_kinds = _NONE, _NONE

    def add(self, census: Census) -> int:
        """Make what the last census did not show the next cohort; return its size.

        An object that took the address of one of the same type that died in the same run, and that the census does not
        know to be young, is taken for that one.
        """
        old = _places(census, self._last_addresses, self._last_kinds)
        new = ~old | census.young
        if new.any():
            self._addresses[self.n_runs] = census.addresses[new]
            self._kinds[self.n_runs] = census.kinds[new]
            self.n_bytes += 2 * self._kinds[self.n_runs].nbytes
        self._last_addresses, self._last_kinds = census.addresses, census.kinds
        self.n_runs += 1
        return int(new.sum())

    def keep_alive_ones(self, heap: Addresses, heap_kinds: Addresses) -> None:
        """Drop the objects that are not among the addresses of the whole *heap* any more, of types *heap_kinds*."""
        addresses, kinds, runs = self.members()
        if not len(addresses):
            return
        at = positions_of(addresses, heap)
        alive = (at >= 0) & (heap_kinds.take(at, mode="clip") == kinds)
        newest_first = np.flatnonzero(alive)[np.lexsort((-runs[alive], addresses[alive]))]
        own = addresses[newest_first]
        is_newest = np.ones(len(own), bool)  # an address belongs to the newest cohort that has it
        is_newest[1:] = own[1:] != own[:-1]
        kept = np.sort(newest_first[is_newest])
        borders = np.searchsorted(runs[kept], np.arange(self.n_runs + 1))
        for run in range(self.n_runs):
            places = kept[borders[run] : borders[run + 1]]
            self._addresses[run], self._kinds[run] = addresses[places], kinds[places]
        self.n_bytes = 2 * kinds[kept].nbytes

    @property
    def newest(self) -> Addresses:
        """Addresses of what the last run has left."""
        return self._addresses[self.n_runs - 1] if self.n_runs else _NONE

    def sizes(self) -> tuple[int, ...]:
        """Return how many objects each cohort holds."""
        return tuple(len(cohort) for cohort in self._addresses[: self.n_runs])

    def members(self) -> tuple[Addresses, Addresses, npt.NDArray[np.int64]]:
        """Return the addresses, the kinds and the run indices (0-based) of all cohorts, one row an object."""
        runs = np.repeat(np.arange(self.n_runs), self.sizes())
        if not self.n_runs:
            return _NONE, _NONE, runs
        return np.concatenate(self._addresses[: self.n_runs]), np.concatenate(self._kinds[: self.n_runs]), runs

    def counts(self) -> tuple[Addresses, npt.NDArray[np.int64]]:
        """Return the types of all objects of all cohorts, by their addresses, and how many there are of each."""
        kinds, counts = np.unique(np.concatenate([_NONE, *self._kinds[: self.n_runs]]), return_counts=True)
        return kinds, counts

    def by_kind(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield each kind's address with its count in every cohort."""
        _addresses, kinds, runs = self.members()
        for kind in np.unique(kinds):
            yield int(kind), tuple(np.bincount(runs[kinds == kind], minlength=self.n_runs).tolist())


def _places(census: Census, addresses: Addresses, kinds: Addresses) -> npt.NDArray[np.bool_]:
    """Return for each object of *census* whether the sorted *addresses* have it, with the same kind."""
    if not len(addresses):
        return np.zeros(len(census.addresses), bool)
    places = np.minimum(np.searchsorted(addresses, census.addresses), len(addresses) - 1)
    found: npt.NDArray[np.bool_] = (addresses[places] == census.addresses) & (kinds[places] == census.kinds)
    return found


class Measurement:
    """Everything counted during the measured runs.

    Args:
        max_runs: As many runs as can be recorded.
        taker: The way to see what was born.
        collects: Whether garbage is collected before counting.
        frozen_too: Whether objects frozen by the user belong to the heap that checkpoints measure.
        is_short: Whether too few runs are to be made to do without the slots of the baseline.
        has_collected: Whether all garbage has just been collected.

    Attributes:
        has_unread_rise: Whether malloc's level has risen and buffers were not looked at often enough to say why.
    """

    def __init__(
        self,
        max_runs: int,
        taker: Baseline,
        *,
        collects: bool,
        frozen_too: bool,
        is_short: bool = True,
        has_collected: bool = False,
    ) -> None:
        self.cohorts = Cohorts(max_runs)
        self.meters = Meters(max_runs)
        self.counts = ProcessCounts(max_runs)
        self.checkpoints: list[Checkpoint] = []
        self._marks = np.full(3, UNSET)  # not as an object: it would be listed as born in the run
        self.collects = collects
        self._taker = taker
        self._frozen_too = frozen_too
        self._is_short = is_short
        self._has_collected = has_collected
        self._in_phase = False
        self._phase_starts_at = 0
        self._blocks_after = np.zeros(max_runs + 1, np.int64)  # each run, in Python's own allocator
        self._cpu_start, self._cpu_seconds = 0.0, np.zeros(max_runs + 1)
        self._block_rise = 0.0
        self.has_unread_rise = False

    @property
    def graph_marks(self) -> GraphMarks:
        """Where in torch's numbering of nodes the runs began."""
        return GraphMarks(*self._marks.tolist())

    @property
    def may_collect(self) -> bool:
        """Whether a collection now changes nothing that the user asked for: not where the cell freezes its objects."""
        return not isinstance(self._taker, RefreezingCensus)

    @property
    def n_runs(self) -> int:
        """Measured runs so far."""
        return self.cohorts.n_runs

    @property
    def n_kept(self) -> int:
        """Objects and autograd nodes that the measured runs have left so far, as of the last checkpoint."""
        nodes = self.checkpoints[-1].graph_nodes - self.checkpoints[0].graph_nodes if self.checkpoints else 0
        return sum(self.cohorts.sizes()) + _NODE_WEIGHT * max(nodes, 0)

    def would_keep(self, n_runs: int) -> float:
        """Return how much there would be to explain after *n_runs* more runs, as `n_kept` counts it."""
        return self.n_kept * (1 + n_runs / max(self.n_runs, 1))

    def open_phase(self) -> None:
        """Start a phase: everything alive now is old."""
        if not self.checkpoints:
            self._check_heap()
        self.cohorts.start_phase()
        self._taker.begin()
        self._in_phase = True
        self._phase_starts_at = self.n_runs
        if not self.n_runs:
            self.meters.read(0, 0.0, 0)
            self.counts.read(0)

    def start_run(self) -> None:
        """Note that a run starts."""
        self._marks[:] = self.graph_marks.next_run()
        self._taker.mark()
        self._cpu_start = time.process_time()

    def finish_run(self, seconds: float, noted_bytes: int = 0) -> None:
        """Count what the run bore; raises `DisturbedError` if the cell froze or thawed objects.

        *noted_bytes* are what notes of ours on the runs take in the native heap by now.
        """
        cpu_seconds = time.process_time() - self._cpu_start
        n_born = self.cohorts.add(self._taker.take())
        self.meters.read(self.n_runs, seconds, n_born, self.cohorts.n_bytes + noted_bytes)
        self.counts.read(self.n_runs)
        self._blocks_after[self.n_runs] = python_blocks()
        self._cpu_seconds[self.n_runs] = cpu_seconds

    def cpu_seconds(self, n_runs: int) -> list[float]:
        """Return the processor time that each of the first *n_runs* runs took, of all threads."""
        seconds: list[float] = self._cpu_seconds[1 : n_runs + 1].tolist()
        return seconds

    def full_words(self) -> str:
        """Return what the runs have taken so much of that no more should be made; empty as long as they have not."""
        if self.meters.share_taken(self.n_runs) > MOST_OF_MEMORY:
            return f"{MOST_OF_MEMORY:.0%} of the memory that was free at the start"
        return self.counts.full_words(self.n_runs)

    def close_phase(self) -> None:
        """End a phase: thaw the baseline, collect, measure the heap, drop the dead from the cohorts."""
        self._block_rise = self._blocks_per_run()
        self.abandon()
        self.meters.read_blocks(self.n_runs)
        if self.n_runs and (not self.checkpoints or self.checkpoints[-1].after_run != self.n_runs):
            self._check_heap()

    def look_again(self) -> None:
        """Measure the heap anew behind a phase: what was done with it since is no run's doing.

        A container that has grown meanwhile (the cache of regular expressions, as whoever looks compiles some) counts
        as if it had been so much longer all the time, and one that is new is not followed.
        """
        with self.meters.leaving_out():
            if self.collects:
                collect_quietly(YOUNG)  # garbage of the look would be given back in a run
        before = self.checkpoints.pop()
        self._check_heap(before)
        with self.meters.leaving_out():
            after = self.checkpoints.pop()
            self.checkpoints[:] = [one.moved(before, after) for one in self.checkpoints]
            before = before.moved(before, after)
            self.checkpoints[:] = [one.as_if_grown(before, after) for one in self.checkpoints]
            self.checkpoints.append(after.only_of(before))
            del before, after

    def abandon(self) -> None:
        """Give the baseline up, measuring nothing; does nothing outside a phase."""
        if self._in_phase:
            self._in_phase = False
            self._taker.end()

    @contextmanager
    def heap(self) -> Iterator[list[object]]:
        """Borrow every object of the heap; the list is emptied on exit, and no automatic collection runs inside."""
        with gc_paused(), thawed(self._taker):
            objects = heap_objects(frozen_too=self._frozen_too)
            try:
                yield objects
            finally:
                objects.clear()

    @contextmanager
    def young(self) -> Iterator[list[object]]:
        """Borrow, while a phase is open, at least every object born in it; cheap where the baseline is frozen."""
        with gc_paused(), thawed(self._taker):
            objects = gc.get_objects()
            try:
                yield objects
            finally:
                objects.clear()

    def forget_the_dead(self) -> None:
        """Drop from the cohorts what is not alive any more; no phase is open."""
        with self.heap() as objects:
            self.cohorts.keep_alive_ones(addresses_of(objects), kinds_of(objects))

    def _check_heap(self, again: Checkpoint | None = None) -> None:
        if self.collects and again is None:
            collect_quietly(YOUNG if self._has_collected else OLD)
            self._has_collected = False
        recorded = self.cohorts.n_bytes
        with self.meters.leaving_out():
            has_risen = self._may_hide_growth()
            with_slots = has_risen and (self._is_short or self.n_runs >= _FOLLOWED_RUNS)
            with_slots = with_slots if again is None else again.slots is not None
            with self.heap() as objects:
                checkpoint, addresses, kinds = take_checkpoint(
                    self.n_runs,
                    objects,
                    with_slots=with_slots,
                    followed=None if again is not None else self._followed_slots(),  # looking may have moved some
                    fresh=self.cohorts.newest,
                )
            self.cohorts.keep_alive_ones(addresses, kinds)
            self.checkpoints.append(checkpoint.having_kept(*self.cohorts.counts()))
            self.has_unread_rise = has_risen and len(self._looks_at_slots()) < _FEWEST_LOOKS
            # Still alive here, the list of the whole heap would be left out for good: 4 MiB less at every look.
            del addresses, kinds
        self.meters.own_bytes += recorded - self.cohorts.n_bytes

    def _may_hide_growth(self) -> bool:
        """Return whether buffers may have grown, which no collector lists: they are the most expensive to look for.

        All of them lie in malloc's heap, whose level is exact, on an accelerator, or in blocks of Python's own. A
        container that doubles its table rests between two doublings: its rise counts from the first look, not only from
        the last one.
        """
        heap = self.meters.heap(self.n_runs) if self.n_runs else None
        if heap is None:
            return bool(self.n_runs) or self._is_short
        looks = self._looks_at_slots()
        has_grown = len(looks) >= _FEWEST_LOOKS and bool(grown_slots(looks))
        if has_grown or len(looks) >= _ENOUGH_LOOKS:
            return has_grown  # what has grown once is looked at until it is known how that goes on
        device = self.meters.accelerator(self.n_runs)
        last = self.checkpoints[-1].after_run
        if self._block_rise >= _LEAST_BLOCKS:
            return True  # the collector does not list a dict of texts and numbers either, before CPython 3.14
        return any(
            heap[-1] - heap[before] >= _LEAST_RISE * (self.n_runs - before)
            for before in (self.checkpoints[0].after_run, last)
        ) or (device is not None and device[-1] > device[last])

    def _blocks_per_run(self) -> float:
        """Return by how many blocks of Python's own allocator the level rose per run of this phase, noise taken off.

        In its second half: what was garbage when the phase began, and what the first runs fill, is in both figures.
        """
        middle = (self._phase_starts_at + 1 + self.n_runs) // 2
        n_runs = self.n_runs - middle
        if n_runs < 1:
            return 0.0
        own = _BLOCKS_OF_COHORT * sum(1 for size in self.cohorts.sizes()[middle:] if size)
        return (python_blocks() - int(self._blocks_after[middle]) - own - _BLOCKS_NOISE) / n_runs

    def _looks_at_slots(self) -> list[Slots]:
        return [checkpoint.slots for checkpoint in self.checkpoints if checkpoint.slots is not None]

    def _followed_slots(self) -> Slots | None:
        """Return the slots that a further look has to see again; None for all.

        What the second look does not show grows at no later one; nor does what an early first look would show only.
        """
        looks = [checkpoint for checkpoint in self.checkpoints if checkpoint.slots is not None]
        is_enough = len(looks) >= _FEWEST_LOOKS or (looks and looks[0].after_run >= _FOLLOWED_RUNS)
        return looks[-1].slots if is_enough else None


@contextmanager
def thawed(taker: Baseline) -> Iterator[None]:
    """Where the cell freezes in every run, thaw for a moment: frozen holders answer no question."""
    if not isinstance(taker, RefreezingCensus):
        yield
        return
    gc.unfreeze()
    try:
        yield
    finally:
        gc.freeze()


def choose_baseline(*, user_froze: bool, cell_freezes: bool, collects: bool) -> Baseline:
    """Return the cheapest census that sees everything and leaves the user's frozen objects frozen."""
    if cell_freezes:
        return RefreezingCensus()
    if user_froze:
        return ScanCensus(collects=collects)
    return FrozenCensus(collects=collects)


__all__ = ["Census", "Measurement", "choose_baseline", "thawed"]

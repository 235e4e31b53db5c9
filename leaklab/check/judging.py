"""Ask the rules of `leaklab.decide` about everything that `leaklab.measure` counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import Any, Generic, TypeVar

import numpy as np

from leaklab.decide.growth import (
    ACCELERATOR_FLOOR_BYTES,
    CREEP_FLOOR_BYTES,
    NATIVE_FLOOR_BYTES,
    REMADE_FLOOR,
    Growth,
    judge_checkpoints,
    judge_slowdown,
)
from leaklab.decide.per_run_level import judge_per_run_bytes
from leaklab.decide.survivors import judge_survivors, survivors_of_level
from leaklab.measure.checkpoint import follow
from leaklab.measure.measurement import Measurement
from leaklab.measure.process_counts import CHILDREN, DESCRIPTORS, Counted
from leaklab.measure.registries import REGISTRIES, UNKNOWN, Registry
from leaklab.measure.slots import GrownSlot, grown_slots
from leaklab.model import Outcome
from leaklab.runtime.addresses import types_at
from leaklab.runtime.autograd_graph import is_lower_bound
from leaklab.runtime.objects import is_tensor_type, type_name

_PACE_DOUBT = 0.1
"""By this share a leak and the registry that keeps it may differ between two checkpoints."""
_FEWEST_ENTRIES = 2
"""A registry that gets less before the last phase keeps pace with anything."""

_PHASES_OF_STILL, _STILL, _LEAST_DUE = 2, 0.25, 4
"""What in two phases gains less than so much of what it should, and that is so many objects, stands still."""
_LEAST_STILL = 3
"""So often in a row there must be as many objects of a type, and since the first half of the runs."""
_LEAST_LOOKS, _SURE_LOOKS = 4, 6
"""What is made anew in every run comes in numbers of its own: two of them that rise are nothing yet, and a few more
rise by chance as well, where their last paces differ too much."""
_PACES, _UNEVEN = 3, 2.0

_GROWING = (Outcome.LEAK, Outcome.INCONCLUSIVE)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Grown(Generic[T]):
    """Something that was counted again and again.

    Attributes:
        what: What it is; types and containers by their addresses.
        series: How many each run left, or how large it was at every checkpoint.
        growth: The judgement on that.
    """

    what: T
    series: tuple[int, ...]
    growth: Growth


@dataclass(frozen=True, slots=True)
class GrownRegistry:
    """A registry that Python does not show, with the number of its entries at every checkpoint."""

    registry: Registry
    counts: tuple[int, ...]

    @property
    def words(self) -> str:
        """How it grew, for a reason."""
        return f"{self.registry.words} grew meanwhile: {' -> '.join(f'{count:,}' for count in self.counts)} entries"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What grows, and how sure that is.

    Attributes:
        at_runs: The measured runs after which checkpoints were taken.
        kinds: For each type its survivors per run.
        remade: Types (by address) of which there are more and more, though no run's objects survive the next: whoever
            keeps them makes all of them anew.
        containers: Containers that are longer at the end than at the start.
        slots: Slots whose content accumulates.
        graph: Autograd nodes in the heap.
        native: The native heap; None where the system does not tell.
        accelerator: Allocated accelerator memory; None without one.
        creeping: The native heap by a floor at which caches may be what grows: no leak by itself, but a reason to look
            for what is replaced by something larger.
        slowdown: So many times as long as at the start takes a run at the end; None if runs do not get slower.
        registries: Those that are longer at the end than at the start.
        runs_with_slots: Those of *at_runs* at which slots were looked at; None: all.
        has_unread_rise: Whether malloc's level has risen and buffers are still to be looked at.
        counts: File descriptors and child processes, as far as the system tells.
        alive: For each type of which older runs left something: so many lived at each checkpoint of all that runs left.
        in_all: For each of these types: so many lived at each checkpoint, older ones too.
    """

    at_runs: tuple[int, ...]
    kinds: dict[int, Grown[int]]
    remade: dict[int, Growth]
    containers: tuple[Grown[int], ...]
    slots: tuple[Grown[GrownSlot], ...]
    graph: Growth
    native: Growth | None
    accelerator: Growth | None
    creeping: Growth | None = None
    slowdown: float | None = None
    registries: tuple[GrownRegistry, ...] = ()
    runs_with_slots: tuple[int, ...] | None = None
    has_unread_rise: bool = False
    counts: tuple[Grown[Counted], ...] = ()
    alive: dict[int, tuple[int, ...]] = field(default_factory=dict)
    in_all: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def slot_runs(self) -> tuple[int, ...]:
        """The measured runs after which slots were looked at."""
        return self.at_runs if self.runs_with_slots is None else self.runs_with_slots

    @property
    def lengths(self) -> dict[int, tuple[tuple[int, int], ...]]:
        """How long what got longer was, by its address: pairs of a run and the length after it."""
        # Slots are looked at more rarely: what is a container as well has the lengths of that.
        slots = ((grown.what.target, grown.series, self.slot_runs) for grown in self.slots)
        grown = (*slots, *((grown.what, grown.series, self.at_runs) for grown in self.containers))
        return {
            address: tuple((run, length) for run, length in zip(runs, series, strict=True) if length >= 0)
            for address, series, runs in grown
        }

    def all_growths(self) -> list[Growth]:
        """Return every judgement, of whatever was counted."""
        counted: Sequence[Grown[Any]] = (*self.kinds.values(), *self.containers, *self.slots, *self.counts)
        growths = [each.growth for each in counted]
        growths += self.remade.values()
        growths += [growth for growth in (self.graph, self.native, self.accelerator) if growth is not None]
        return growths

    def is_replaced(self, kind: int, growth: Growth) -> bool:
        """Return whether as many objects of a type are alive as before, though runs leave some: new ones take places.

        A list of the best that is made anew in every run has no length that could be followed, and keeps some of each.
        """
        totals = self.alive.get(kind, ())
        if growth.outcome is not Outcome.LEAK or len(totals) <= _PHASES_OF_STILL:
            return False
        rate = self.kinds[kind].growth.rate
        steps = list(pairwise(zip(self.at_runs[-len(totals) :], totals, strict=True)))[-_PHASES_OF_STILL:]
        expected = [rate * (runs - runs_before) for (runs_before, _), (runs, _) in steps]
        gained = [total - total_before for (_, total_before), (_, total) in steps]
        is_still = all(more <= _STILL * due for more, due in zip(gained, expected, strict=True))
        return is_still and sum(expected) >= _LEAST_DUE

    def stands_still(self, kind: int, n_here: int) -> bool:
        """Return whether there are no more objects of a type than before the second half of the runs.

        What some runs leave, and later runs put other things in the place of, is then no growth that began late. Of all
        objects of the type there must be as many at each of the last checkpoints; of those that the runs left, as many
        halfway as at the end are enough where most of them are in one place. A peak before that says nothing.

        Args:
            kind: Address of the type.
            n_here: So many of these objects are in the place in question.
        """
        kept = self.alive.get(kind, ())
        halfway = self.at_runs[-1] / 2
        before = [number for number, run in enumerate(self.at_runs) if 0 < run <= halfway]
        if not kept or not before:
            return False
        in_all = self.in_all[kind]
        n_constant = sum(1 for _ in takewhile(lambda total: total == in_all[-1], reversed(in_all)))
        is_constant = n_constant >= max(_LEAST_STILL, len(in_all) - before[-1])
        return is_constant or (2 * n_here >= kept[-1] and kept[before[-1]] >= kept[-1])

    def takes_places(self, kind: int, growth: Growth) -> bool:
        """Return whether there are no more objects of a type than at the start, though runs leave some of it.

        A world in which agents die and others are born keeps as many: those of the first runs go later.
        """
        first, *_, last = self.in_all.get(kind, (0, 0))
        if growth.outcome is not Outcome.LEAK or not first:
            return False
        due = self.kinds[kind].growth.rate * (self.at_runs[-1] - self.at_runs[0])
        return last - first <= _STILL * due and due >= _LEAST_DUE

    def growth_of(self, kind: int, kept: tuple[int, ...]) -> Growth:
        """Return the judgement on a type of which the heap shows *kept* per run; judged anew if others were counted."""
        counted = self.kinds.get(kind)
        return counted.growth if counted is not None and counted.series == kept else judge_survivors(kept)

    def piles(self) -> tuple[tuple[str, float], ...]:
        """Return the types that pile up with what each run leaves of them: tensors first, then the most."""
        rates = {kind: grown.growth.rate for kind, grown in self.kinds.items() if grown.growth.outcome in _GROWING}
        types = types_at(np.array(sorted(kind for kind, rate in rates.items() if rate > 0), np.int64))
        order = sorted(types, key=lambda kind: (not is_tensor_type(types[kind]), -rates[kind]))
        return tuple((type_name(types[kind]), rates[kind]) for kind in order)

    @property
    def longer(self) -> frozenset[int]:
        """Addresses of the containers that are certain to get longer."""
        return frozenset(grown.what for grown in self.containers if grown.growth.outcome is Outcome.LEAK)

    @property
    def growing(self) -> bool:
        """Whether anything seems to grow."""
        return self.has_unread_rise or any(growth.outcome in _GROWING for growth in self.all_growths())

    @property
    def says_anything(self) -> bool:
        """Whether there is growth to explain, be it a leak, bounded or undecided."""
        return self.creep > 0 or any(growth.outcome is not Outcome.CLEAN for growth in self.all_growths())

    @property
    def creep(self) -> float:
        """Bytes that every run adds to the native heap, however few; 0 where that is not steady."""
        return self.creeping.rate if self.creeping is not None and self.creeping.outcome is Outcome.LEAK else 0.0

    @property
    def is_open(self) -> bool:
        """Whether more runs could answer a question."""
        return any(growth.outcome is Outcome.INCONCLUSIVE for growth in self.all_growths())

    @property
    def is_open_of_memory(self) -> bool:
        """Whether more runs could tell whether memory grows."""
        levels = [growth for growth in (self.native, self.accelerator) if growth is not None]
        return self.has_unread_rise or any(growth.outcome is Outcome.INCONCLUSIVE for growth in levels)

    @property
    def has_paused(self) -> bool:
        """Whether the runs since the last that left something of a type are more than ever lay between two that did."""
        for kept in (grown.series for grown in self.kinds.values() if grown.growth.outcome is Outcome.LEAK):
            hits = [run for run, count in enumerate(kept) if count]
            if hits and len(kept) - hits[-1] > max((later - run for run, later in pairwise(hits)), default=1):
                return True
        return False

    @property
    def is_certain(self) -> bool:
        """Whether something leaks, whatever else is in doubt."""
        return any(growth.outcome is Outcome.LEAK for growth in self.all_growths())

    def suspect(self, kept: tuple[int, ...] = (), *, has_callables: bool = True) -> GrownRegistry | None:
        """Return the one registry that grows as a leak does whose holder is not seen; None if it is none or several.

        Args:
            kept: The leak's objects per run; empty for memory, whose level between two checkpoints is too noisy.
            has_callables: Whether callbacks may be among what leaks.
        """
        found = [
            grown
            for grown in self.registries
            if (has_callables or not grown.registry.has_callables)
            and (self._keeps_pace(kept, grown.counts) if kept else self._is_steady(grown.counts))
        ]
        return found[0] if len(found) == 1 else None

    def _is_steady(self, counts: tuple[int, ...]) -> bool:
        return judge_checkpoints(counts, self.at_runs).outcome is Outcome.LEAK

    def _keeps_pace(self, kept: tuple[int, ...], counts: tuple[int, ...]) -> bool:
        """Return whether for every entry that was added between two checkpoints as many objects were left.

        What the last run left is the newest of its kind, and not in *kept*: its entries may be too many.
        """
        made = [sum(kept[first:last]) for first, last in pairwise(self.at_runs)]
        added = [after - before for before, after in pairwise(counts)]
        if sum(added[:-1]) < _FEWEST_ENTRIES:
            return False
        per_entry = sum(made[:-1]) / sum(added[:-1])
        per_run = max(rows / (last - first) for rows, (first, last) in zip(added, pairwise(self.at_runs), strict=True))
        too_many = added[-1] * per_entry - made[-1]
        return (
            bool(per_entry)
            and any(abs(share - round(share)) <= _PACE_DOUBT for share in (per_entry, 1 / per_entry))
            and all(abs(n - rows * per_entry) <= _PACE_DOUBT * n for n, rows in zip(made[:-1], added[:-1], strict=True))
            and -_PACE_DOUBT * made[-1] <= too_many <= max(per_run, 1) * per_entry
        )


def judge(measurement: Measurement) -> Judgement:
    """Judge what *measurement* has counted so far; its last phase is closed."""
    checkpoints = measurement.checkpoints
    at_runs = tuple(checkpoint.after_run for checkpoint in checkpoints)
    n_runs = measurement.n_runs
    heap, accelerator = measurement.meters.heap(n_runs), measurement.meters.accelerator(n_runs)
    kinds = {kind: Grown(kind, kept, judge_survivors(kept)) for kind, kept in measurement.cohorts.by_kind()}
    native = None if heap is None else judge_per_run_bytes(heap, floor_per_run=NATIVE_FLOOR_BYTES)
    device = None if accelerator is None else judge_per_run_bytes(accelerator, floor_per_run=ACCELERATOR_FLOOR_BYTES)
    left = [kind for kind, grown in kinds.items() if any(grown.series[:-1])]
    return Judgement(
        at_runs=at_runs,
        kinds=kinds,
        alive={kind: tuple(checkpoint.n_kept_of(kind) for checkpoint in checkpoints) for kind in left},
        in_all={kind: tuple(checkpoint.count_of(kind) for checkpoint in checkpoints) for kind in left},
        remade=dict(_judge_totals(measurement, at_runs)),
        containers=_judge_containers(measurement, at_runs),
        slots=_judge_slots(measurement),
        runs_with_slots=tuple(checkpoint.after_run for checkpoint in checkpoints if checkpoint.slots is not None),
        graph=_judge_graph([checkpoint.graph_nodes for checkpoint in checkpoints], at_runs, (native, device)),
        native=native,
        creeping=None if heap is None else judge_per_run_bytes(heap, floor_per_run=CREEP_FLOOR_BYTES),
        accelerator=device,
        slowdown=judge_slowdown(measurement.meters.seconds(n_runs), measurement.cpu_seconds(n_runs)),
        registries=tuple(_grown_registries(measurement)),
        has_unread_rise=measurement.has_unread_rise,
        counts=tuple(_judge_counts(measurement)),
    )


def _judge_graph(levels: Sequence[int], at_runs: Sequence[int], memories: Iterable[Growth | None]) -> Growth:
    """Judge the numbers of autograd nodes: those that are too large to be counted tell nothing, but memory does.

    Args:
        levels: At each checkpoint; from some thousands on these are lower bounds.
        at_runs: The measured runs after which they were taken.
        memories: How the memory grows in which graphs live.
    """
    goes_on = any(memory is not None and memory.outcome is Outcome.LEAK for memory in memories)
    full = next((n for n, level in enumerate(levels) if is_lower_bound(level)), None)
    if full == 0 and goes_on:  # whether it is a graph that grows, its newest nodes tell
        return Growth(Outcome.LEAK, 0.0, f"{levels[0]:,} nodes or more from the start: too many to be counted")
    if not full or levels[full] <= levels[0]:
        return judge_checkpoints(levels, at_runs)
    known = " -> ".join(f"{level:,}" for level in levels[:full])
    reason = (
        f"{known} -> {levels[full]:,} or more after {', '.join(map(str, at_runs[: full + 1]))} runs: too many to be "
        "counted since then"
    )
    rate = (levels[full] - levels[0]) / at_runs[full]
    return Growth(Outcome.LEAK if goes_on else Outcome.INCONCLUSIVE, rate, reason)


def _judge_counts(measurement: Measurement) -> Iterator[Grown[Counted]]:
    for counted in (CHILDREN, DESCRIPTORS):
        levels = measurement.counts.levels(counted, measurement.n_runs)
        if levels is not None:
            kept = survivors_of_level(levels)
            if any(kept[:-1]):
                yield Grown(counted, kept, judge_survivors(kept))


def _grown_registries(measurement: Measurement) -> Iterator[GrownRegistry]:
    columns = zip(*(checkpoint.n_registered.tolist() for checkpoint in measurement.checkpoints), strict=False)
    for registry, counts in zip(REGISTRIES, columns, strict=False):  # another one may have been added meanwhile
        if UNKNOWN not in counts and counts[-1] > counts[0]:
            yield GrownRegistry(registry, counts)


def _judge_totals(measurement: Measurement, at_runs: tuple[int, ...]) -> Iterator[tuple[int, Growth]]:
    """Judge how many objects of each type there are at the checkpoints, where none of them is an old run's."""
    for kind, kept in measurement.cohorts.by_kind():
        if kept[-1] and not any(kept[:-1]):
            totals = [checkpoint.count_of(kind) for checkpoint in measurement.checkpoints]
            growth = judge_checkpoints(totals, at_runs, floor_per_run=REMADE_FLOOR)
            why = "too few measurements" if len(at_runs) < _LEAST_LOOKS else _uneven_words(totals, at_runs)
            if growth.outcome is Outcome.LEAK and why:
                growth = Growth(Outcome.INCONCLUSIVE, growth.rate, f"{growth.reason}: {why}")
            if growth.outcome in _GROWING:
                yield kind, growth


def _uneven_words(totals: Sequence[int], at_runs: Sequence[int]) -> str:
    """Say that few *totals* rise by chance as well, where their paces differ: a run may make any number of objects."""
    phases = zip(pairwise(totals), pairwise(at_runs), strict=True)
    paces = [(b - a) / (after - before) for (a, b), (before, after) in phases]
    is_uneven = len(totals) < _SURE_LOOKS and max(paces[-_PACES:]) > _UNEVEN * min(paces[-_PACES:])
    return "at an uneven pace" if is_uneven else ""


def _judge_containers(measurement: Measurement, at_runs: tuple[int, ...]) -> tuple[Grown[int], ...]:
    addresses, _kinds, table = follow([checkpoint.lengths for checkpoint in measurement.checkpoints])
    own = id(measurement.checkpoints)  # one longer at every look: without this, every cell would seem to grow
    return tuple(
        Grown(address, tuple(lengths), judge_checkpoints(lengths, at_runs))
        for address, lengths in zip(addresses.tolist(), table.tolist(), strict=True)
        if address != own
    )


def _judge_slots(measurement: Measurement) -> tuple[Grown[GrownSlot], ...]:
    checkpoints = measurement.checkpoints
    own = {id(record) for checkpoint in checkpoints for record in (checkpoint, checkpoint.lengths, checkpoint.slots)}
    seen = [(checkpoint.slots, checkpoint.after_run) for checkpoint in checkpoints if checkpoint.slots is not None]
    if len(seen) < 2:  # noqa: PLR2004 - growth is between two looks
        return ()
    return tuple(
        Grown(slot, slot.sizes, judge_checkpoints(slot.sizes, [run - seen[0][1] for _slots, run in seen]))
        for slot in grown_slots([slots for slots, _run in seen])
        if slot.owner not in own
    )

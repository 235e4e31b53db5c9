"""Judge a place by the lengths of the containers in it, which say more than who survives.

A queue that gets six objects and gives five in every run keeps only the newest, and grows without end; a list whose
places are replaced at random keeps old ones, and never grows. The survivors of both look like those of a window. The
length of the container, read after every phase, tells them apart.

It is the length of one container, and bounds what stands in its own places. An entry may have gone on to collect what
later runs made, or refer to the one that it replaced: then what is inside grows, whatever the length says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from leaklab.decide.growth import SURE_RUNS, Growth, judge_checkpoints
from leaklab.explain.leaks.groups import Group, group_survivors
from leaklab.explain.leaks.limits import FAR, known_limit
from leaklab.heap.view import BASELINE, HeapView
from leaklab.measure.measurement import Measurement
from leaklab.model import Outcome
from leaklab.runtime.containers import entries_in
from leaklab.runtime.objects import has_base
from leaklab.text import unit_words

UNLIMITED = (Outcome.LEAK, Outcome.INCONCLUSIVE)
_COLLECTED = ("index", "key", "element")
_LEAST_LOOKS = 3
"""A container that was there at fewer checkpoints tells nothing about its growth."""
_EXPLAINED_SHARE = 0.9
_MANY_CONTAINERS = 8
"""Fewer that stop or give back one by one are not one table that grows as a whole."""
_FULL_SHARE = 0.95
_MISSING_SHARE = 0.25
"""Of what a phase is expected to gain, and never more than one entry: what comes at uneven distances may miss it."""
_LEAST_SHARE = 0.5
"""Of what a container grew by, so much must be survivors; numbers and short texts are none."""


@dataclass(frozen=True, slots=True)
class LengthWitness:
    """What the lengths of the containers of one place say.

    Attributes:
        growth: The judgement on the sum of their lengths; its rate is in places per run.
        objects_per_place: Leaked objects of the kind that matters for each place that leaked objects take.
        n_places: The sum of their lengths now.
        n_lately: By so much it is longer than two phases ago.
        keeps_pace: Whether they never got shorter, and gained in the last phase as before: exactly, where every run
            gained as many (a ring that has just become full misses one), else but for one entry of four or more.
        lacks_latest: Whether nothing of the last run is in them, and they gained less than one entry a run.
        is_full: Whether nearly all of their places have what leaks, or the like of it from before the first run, which
            what is new replaces. A list of 10,000 times None has as many places, and is filled one by one.
    """

    growth: Growth
    objects_per_place: float
    n_places: int
    n_lately: int
    keeps_pace: bool
    lacks_latest: bool
    is_full: bool

    @property
    def count_per_run(self) -> float:
        """Objects that every run adds."""
        return self.growth.rate * self.objects_per_place

    @property
    def is_limit(self) -> bool:
        """Whether the length has stopped, so that it is the limit of what is kept.

        A vast one saves nobody's memory, unless it is reached.
        """
        has_stopped = self.growth.outcome in (Outcome.CLEAN, Outcome.BOUNDED)
        return has_stopped and (self.n_places <= FAR or self.is_full)


def split_by_container(
    view: HeapView, group: Group, measurement: Measurement, may_end: Callable[[int], str] = lambda _vertex: ""
) -> Iterator[Group]:
    """Yield the parts of *group* that have an answer of their own: containers that grow, and those that do not.

    Places that differ in a position or a number only are one group. A limit, a rate, a holder belong to one container;
    those that are alike in this stay together. Where no container grows by itself and their sum does, as in a table
    that spreads its entries over many, all of them are one place.

    *may_end* says of the vertex of a container why its growth may end; empty if nothing does.
    """
    parents = sorted({int(view.tree.parent[entry]) for entry in group.entries})
    if len(parents) == 1:
        yield group
        return
    table = _lengths(view, parents, measurement)
    at_runs = [checkpoint.after_run for checkpoint in measurement.checkpoints]
    limited, may_stop, parts = list[int](), list[int](), defaultdict[Outcome | None, list[int]](list)
    for parent, lengths in zip(parents, table, strict=True):
        if parent >= 0 and known_limit([view.objects[parent]]) is not None:
            limited.append(parent)
        else:
            growth = _judge(lengths, at_runs)
            outcome = None if growth is None else growth.outcome
            (may_stop if outcome is Outcome.LEAK and may_end(parent) else parts[outcome]).append(parent)
    flat = parts.pop(Outcome.CLEAN, []) + parts.pop(Outcome.BOUNDED, [])
    undecided = parts.pop(Outcome.INCONCLUSIVE, [])
    if (flat or undecided) and _grow_as_one(table[np.isin(parents, parts[Outcome.LEAK] + flat + undecided)], at_runs):
        parts[Outcome.LEAK] += flat + undecided
        flat = undecided = []
    for chosen in (*parts.values(), limited, flat, undecided, may_stop):
        if chosen:
            yield group.part(view, set(chosen))


def length_witness(
    view: HeapView, group: Group, main_objects: Sequence[int], measurement: Measurement
) -> LengthWitness | None:
    """Return what the lengths of the containers of *group* say; None where these are not what grows, or not known."""
    if group.crossing is None or group.crossing.kind not in _COLLECTED:
        return None
    parents = sorted({int(view.tree.parent[entry]) for entry in group.entries})
    table = _lengths(view, parents, measurement)
    growth, lengths = _judge_all(table, [checkpoint.after_run for checkpoint in measurement.checkpoints]), _sum(table)
    if growth is None:
        return None
    entries = set(group.entries)
    n_taken = sum(_n_places(view, parent, entries) for parent in parents)
    n_grown = int(lengths[-1] - lengths[0])
    n_new = sum(_n_new(view, parent) for parent in parents)
    if not n_taken or n_new < _LEAST_SHARE * n_grown:
        return None
    at_runs = [checkpoint.after_run for checkpoint in measurement.checkpoints]
    before = (lengths[-2] - lengths[0]) / max(at_runs[-2] - at_runs[0], 1)
    expected = before * (at_runs[-1] - at_runs[-2])
    missing = expected - (lengths[-1] - lengths[-2])
    may_miss = 0.0 if float(before).is_integer() else min(1.0, _MISSING_SHARE * expected)
    keeps_pace = bool((np.diff(lengths) >= 0).all() and missing <= may_miss)
    share = min(1.0, n_new / max(n_grown, 1))
    n_places = int(lengths[-1])
    is_full = _n_alike(view, group, parents) >= _FULL_SHARE * n_places
    n_lately = int(lengths[-1] - lengths[-3])
    per_place = share * len(main_objects) / n_taken
    lacks_latest = n_grown < at_runs[-1] and not any(_has_of(view, parent, at_runs[-1] - 1) for parent in parents)
    return LengthWitness(growth, per_place, n_places, n_lately, keeps_pace, lacks_latest, is_full)


def grown_inside(view: HeapView, group: Group) -> tuple[HeapView, Group] | None:
    """Return what grows inside the entries of *group*, if what most early runs left hangs on entries of other runs.

    Returns:
        The heap in which only what outlived its own entry is undue, and all of *group* as a place there: held by the
        entry, or by what is in it. None where what old runs left went with the places that it stood in.
    """
    runs = view.blamed_run
    members, hangs_on = np.array(group.members, np.int64), np.array(group.hangs_on, np.int64)
    outlives = view.leaked[members] & (runs[members] != runs[hangs_on])
    early = runs[members] < runs[members].max(initial=0) / 2
    n_early = len(np.unique(runs[members[early]]))
    n_in_places = len(np.unique(runs[members[early & ~outlives]]))
    if n_early < _LEAST_EARLY or n_early - n_in_places < _OUTLIVED_SHARE * n_early:
        return None
    late = early & outlives
    if len(np.unique(runs[hangs_on[late]])) > _OUTLIVED_SHARE * len(np.unique(runs[members[late]])):
        return None  # each entry got what some run before had made, as by a delay, and lets go of it
    leaked = np.zeros_like(view.leaked)
    leaked[members[outlives]] = True
    inside = replace(view, leaked=leaked, _described={})
    place = max(group_survivors(inside)[0], key=lambda place: len(place.members))
    entry_of = dict(zip(place.members, place.hangs_on, strict=True))
    return inside, replace(
        place, members=group.members, hangs_on=[entry_of.get(member, member) for member in group.members]
    )


_LEAST_EARLY, _OUTLIVED_SHARE = 3, 0.5
"""Of the runs of the first half that left something, so many at least, and so large a part of them."""


def join_chains(view: HeapView, groups: Sequence[Group], n_runs: int) -> list[Group]:
    """Join what stopped growing in one place exactly where it began in another: links of one chain, which no run lost.

    ``itertools.tee`` keeps what the slower iterator has not read in blocks, of which the older ones hang on the slower
    iterator, the newest on the faster one. A window on the newest beside what keeps all of them is no such chain.
    """
    spans = {id(group): _span(group.kept(view, n_runs)) for group in groups}
    newer = {span[0]: group for group in groups if (span := spans[id(group)]) is not None and span[1] >= n_runs - 2}
    joined, taken = list[Group](), set[int]()
    for group in groups:
        span = spans[id(group)]
        tail = newer.get(span[1] + 1) if span is not None and span[0] <= 1 else None
        is_other = tail is not None and tail.holder != group.holder and not _has_entries_of(view, group, tail)
        if tail is not None and is_other and _kinds(view, tail) & _kinds(view, group):
            joined.append(Group.union([tail, group]))
            taken |= {id(tail), id(group)}
    return [*(group for group in groups if id(group) not in taken), *joined]


def _span(kept: Sequence[int]) -> tuple[int, int] | None:
    """Return the first and the last run that left something, if each between them did; the newest is not asked."""
    hits = [run for run, count in enumerate(kept[:-1]) if count]
    return (hits[0], hits[-1]) if len(hits) > 1 and hits[-1] - hits[0] == len(hits) - 1 else None


def _has_entries_of(view: HeapView, group: Group, other: Group) -> bool:
    """Return whether the containers of *group* refer to an entry of *other* as well."""
    parents = {int(view.tree.parent[entry]) for entry in group.entries}
    return any(not parents.isdisjoint(view.index.referrers(entry).tolist()) for entry in other.entries)


def _kinds(view: HeapView, group: Group) -> set[int]:
    return set(np.unique(view.kinds[group.members]).tolist())


def _lengths(view: HeapView, parents: Sequence[int], measurement: Measurement) -> npt.NDArray[np.int64]:
    """Return the lengths of *parents* at every checkpoint, shape ``(n_parents, n_checkpoints)``, -1 if unknown."""
    addresses = np.array([view.index.ids[parent] if parent >= 0 else 0 for parent in parents], np.int64)
    return np.stack([checkpoint.lengths.lengths_of(addresses) for checkpoint in measurement.checkpoints], 1)


def _sum(table: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the sums of the columns, -1 where a length is unknown; before it was made a container was empty."""
    seen = np.maximum.accumulate(table >= 0, axis=1)
    filled = np.where(seen, table, 0)
    sums: npt.NDArray[np.int64] = np.where((filled < 0).any(axis=0), -1, filled.sum(axis=0))
    sums[~seen.any(axis=0)] = -1
    return sums


def _grow_as_one(table: npt.NDArray[np.int64], at_runs: Sequence[int]) -> bool:
    """Return whether many containers grow at a pace that those which grow by themselves do not explain."""
    together = _judge(_sum(table), at_runs)
    if len(table) < _MANY_CONTAINERS or together is None or together.outcome is not Outcome.LEAK:
        return False
    growths = [growth for lengths in table if (growth := _judge(lengths, at_runs)) is not None]
    by_themselves = sum(growth.rate for growth in growths if growth.outcome is Outcome.LEAK)
    return by_themselves < _EXPLAINED_SHARE * together.rate


def _judge_all(table: npt.NDArray[np.int64], at_runs: Sequence[int]) -> Growth | None:
    """Judge several containers as one place: each by itself; their sum only where it is spread over many of them."""
    growths = [_judge(lengths, at_runs) for lengths in table]
    if not growths or any(growth is None for growth in growths):
        return None
    known = [growth for growth in growths if growth is not None]
    growing = [growth for growth in known if growth.outcome is Outcome.LEAK]
    together = _judge(_sum(table), at_runs)
    if growing and together is not None:
        rate = together.rate if together.outcome is Outcome.LEAK else sum(growth.rate for growth in growing)
        return Growth(Outcome.LEAK, rate, together.reason)
    if together is not None and together.outcome is Outcome.LEAK and len(known) < _MANY_CONTAINERS:
        together = next((growth for growth in known if growth.outcome is Outcome.INCONCLUSIVE), known[-1])
    return together


def _judge(lengths: npt.NDArray[np.int64], at_runs: Sequence[int]) -> Growth | None:
    """Judge the lengths of a container, or their sum; None if they are not known at enough checkpoints."""
    known = np.flatnonzero(lengths >= 0)
    if len(known) < _LEAST_LOOKS or lengths[-1] < 0 or len(lengths) - known[0] != len(known):
        return None
    levels = np.maximum(lengths, 0).tolist()
    growth = judge_checkpoints(levels, at_runs)
    if growth.outcome is not Outcome.LEAK:
        return growth
    rate = (levels[-1] - levels[-3]) / (at_runs[-1] - at_runs[-3])  # the weakest phase is one draw of what varies
    return Growth(Outcome.LEAK, rate, growth.reason)


def _n_places(view: HeapView, parent: int, entries: set[int]) -> int:
    """Return how many places of the container *parent* have one of *entries* in them."""
    thing = view.objects[parent]
    if has_base(type(thing), dict):
        addresses = {int(view.index.ids[entry]) for entry in entries}
        pairs = entries_in(thing)
        return sum(1 for key, value in pairs if id(value) in addresses or id(key) in addresses)
    return sum(1 for vertex in view.index.referents(parent).tolist() if vertex in entries)


def _n_alike(view: HeapView, group: Group, parents: Sequence[int]) -> int:
    """Return how many objects of the kinds of the entries of *group* are in *parents*, each counted once."""
    kinds = np.unique(view.kinds[group.entries])
    inside = np.unique(np.concatenate([view.index.referents(parent) for parent in parents]))
    return int(np.isin(view.kinds[inside], kinds).sum())


def _n_new(view: HeapView, parent: int) -> int:
    """Return how many references of the container *parent* lead to objects of the measured runs."""
    return int(np.count_nonzero(view.birth_run[view.index.referents(parent)] != BASELINE))


def _has_of(view: HeapView, parent: int, run: int) -> bool:
    """Return whether the container *parent* refers to something that was born in *run*."""
    return bool((view.birth_run[view.index.referents(parent)] == run).any())


def combine_with_lengths(
    witness: LengthWitness, judged: tuple[Growth, float], kept: Sequence[int]
) -> tuple[Growth, float]:
    """Return the judgement on a place by the lengths of its containers beside its survivors.

    Where the length grows the place leaks, whoever survives; where it has stopped the place is full, whoever survives.
    Where all runs but the last one left something, the growth may have stopped with the run before it.

    Args:
        witness: The lengths.
        judged: The judgement on the survivors, and how many there are per run.
        kept: How many of the entries each run left; that of the last one is not known.
    """
    growth, per_run = judged
    by_length = witness.growth
    if len(kept) < SURE_RUNS and all(kept[:-1]) and witness.lacks_latest:
        reason = f"each of {len(kept) - 1} runs left something behind, but not the last one"
        return Growth(Outcome.INCONCLUSIVE, per_run, reason), per_run
    if by_length.outcome is Outcome.LEAK:
        has_dropped = growth.outcome is not Outcome.LEAK and kept[0] == 0
        if has_dropped and witness.n_lately <= max(_TEETH * max(kept), _TOOTH * witness.n_places):
            reason = f"its length {by_length.reason}, while old entries are removed: it may be full, and rise and fall"
            return Growth(Outcome.INCONCLUSIVE, witness.count_per_run, reason), witness.count_per_run
        slack = max(_SAME_RATE * per_run, _ONE_ENTRY / len(kept))
        if growth.outcome is Outcome.LEAK and abs(per_run - witness.count_per_run) <= slack:
            return judged
        reason = growth.reason if growth.outcome is Outcome.LEAK else f"its length {by_length.reason}"
        return Growth(Outcome.LEAK, witness.count_per_run, reason), witness.count_per_run
    if witness.is_limit and growth.outcome in UNLIMITED:
        has_grown = by_length.outcome is Outcome.BOUNDED
        if has_grown and len(kept) < SURE_RUNS and (rest := _short_rest(kept)):
            reason = f"its length {by_length.reason}, but it did not grow for {unit_words(rest, 'runs')} before"
            return Growth(Outcome.INCONCLUSIVE, per_run, reason), per_run
        reason = f"its length {by_length.reason}: new entries replace old ones"
        return Growth(Outcome.BOUNDED, 0.0, reason), per_run
    keeps_rhythm = growth.outcome is Outcome.LEAK and witness.keeps_pace
    if by_length.outcome is Outcome.INCONCLUSIVE and growth.outcome is not Outcome.INCONCLUSIVE and not keeps_rhythm:
        return Growth(Outcome.INCONCLUSIVE, per_run, f"its length {by_length.reason}"), per_run
    return judged


def _short_rest(kept: Sequence[int]) -> int:
    """Return the longest rest before a run that left something, where the rest at the end is not far longer; else 0.

    What fills up gains in every run until it is full. What gains now and then may rest once more. Of the last run it is
    not known what it leaves.
    """
    runs = np.flatnonzero(kept[:-1])
    if not len(runs):
        return 0
    longest = int(np.diff(runs, prepend=-1).max())
    rested = len(kept) - 2 - int(runs[-1])
    return longest - 1 if 0 < rested < _RESTS * longest else 0


_RESTS = 4
"""A place is full, not at rest, once it has gained nothing for so many times its longest rest."""
_TEETH, _TOOTH = 2, 0.25
"""What is full and drops several entries at a time rises and falls by what few runs add, or by a part of its length."""
_SAME_RATE = 0.1
"""Rates that differ by less are the same: the survivors' own words then say how regular they come."""
_ONE_ENTRY = 1.01
"""... or by one entry in all runs, rounded: an optimizer gives its newest parameter a state one run later."""

"""Make runs that are traced: find in the live heap the places to watch, and what these runs have left."""

from __future__ import annotations

import math
import threading
import types
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from leaklab.check.session import CheckSession, Ran
from leaklab.check.surviving_places import join_groups
from leaklab.explain.cycles.cycles import Orphans, group_orphans
from leaklab.explain.leaks.groups import LeakAddress, group_survivors
from leaklab.heap.borrow import borrow_heap
from leaklab.heap.names import best_reference
from leaklab.heap.view import BASELINE, Births, HeapView
from leaklab.lines.allocation import Made
from leaklab.lines.change import Unseen, Watchpoint, replaced_whole, watchpoint
from leaklab.lines.cycle import CycleShape, CycleStep, shown_referents
from leaklab.measure.census import DisturbedError
from leaklab.measure.measurement import Measurement
from leaklab.model import Leak
from leaklab.model.check import CHILDREN, DESCRIPTORS
from leaklab.runtime.addresses import addresses_of
from leaklab.runtime.autograd_graph import is_node_type
from leaklab.runtime.containers import first_items, values_in
from leaklab.runtime.gc_control import collect_quietly
from leaklab.runtime.objects import is_kind_of, loaded_type, type_name
from leaklab.runtime.referents import get_referents

_MAX_POINTS = 32
_N_LINKS = 3
"""The last object of a chain, its owner, and the owner's owner: more is never asked for."""
MAX_EACH = 64
"""So many traced runs of one kind are made at most."""
_LONG_SECONDS = 10.0
"""After so many seconds of runs that look for lines, no more are made for what leaks in some runs only."""


class TracedRuns:
    """Further runs of the code, as long as there is time and nothing goes wrong."""

    def __init__(self, session: CheckSession, leaks: list[Leak]) -> None:
        self.session, self.leaks = session, leaks
        self.measurement = session.measurement
        self.n_before = self.measurement.n_runs
        self.notes: list[str] = []
        self.n_runs = 0
        self.failure = ""
        self._seconds, self._seconds_left = 0.0, session.seconds_left

    @contextmanager
    def phase(self) -> Iterator[None]:
        """Open a phase of the measurement."""
        if self.measurement.collects:
            # Only a full one empties the lists of free objects, and what comes from those has no trace of who made it.
            collect_quietly()
        self.measurement.open_phase()
        try:
            yield
        finally:
            self.measurement.abandon()

    def goes_on(self, fingerprints: Collection[str], n_runs: int, n_made: int) -> bool:
        """Return whether there is to be a run more than *n_made* for one of the leaks *fingerprints*.

        It takes *n_runs* for what leaks in every run, and for what leaks in some runs only as many more as its period
        has, as long as they are quick.
        """
        periods = [_period(leak) for leak in self.leaks if leak.fingerprint in fingerprints]
        wanted = min(max(periods, default=1 - n_runs) - 1 + n_runs, MAX_EACH)
        is_quick = self._seconds < _LONG_SECONDS or self.session.in_loop  # whose runs are made in any case
        return n_made < (wanted if is_quick else min(wanted, n_runs)) and not self.is_over

    @property
    def is_over(self) -> bool:
        """Whether no further run may be made."""
        return bool(self.failure) or self._seconds >= self._seconds_left

    def start(self) -> int:
        """Return the number of the run to be made."""
        self.measurement.start_run()
        return self.measurement.n_runs + 1

    def finish(self, ran: Ran) -> None:
        """Take in how it went."""
        seconds, self.failure = ran
        self.n_runs += 1
        self._seconds += seconds
        try:
            self.measurement.finish_run(seconds)
        except DisturbedError as disturbed:
            self.failure = f"the collector's objects {disturbed.how}"
        if self.failure:
            self.notes.append(
                f"traced run {self.n_runs} ended with {self.failure}: some lines that leak may be missing"
            )


def _period(leak: Leak) -> int:
    """Return every how many runs *leak* leaves something, at most."""
    if leak.unit not in ("objects", DESCRIPTORS, CHILDREN) or not any(leak.kept):
        # Of what grows in place only the pace is known, and that from two moments: the next time may be late.
        return math.ceil(2 / leak.count_per_run) if 0 < leak.count_per_run < 1 else 1
    born = [-1, *(run for run, count in enumerate(leak.kept) if count)]
    return max(after - before for before, after in pairwise(born))


def watch_places(
    measurement: Measurement, places: Sequence[LeakAddress], namespace: dict[str, Any] | None
) -> list[Watchpoint]:
    """Return watches over *places*; no code of the user may have run since these were noted."""
    chains = [_with_namespace(place, namespace) for place in places[:_MAX_POINTS]]
    wanted = np.array([address for chain in chains for address in chain], np.int64)
    known: dict[int, object] = {} if namespace is None else {id(namespace): namespace}
    points: list[Watchpoint | None] = []
    try:
        with measurement.heap() as objects:
            for row in np.flatnonzero(np.isin(addresses_of(objects), wanted)).tolist():
                known[id(objects[row])] = objects[row]
        for place, chain in zip(places, chains, strict=False):
            if chain:
                things = _objects_of(chain, known)
                points.append(watchpoint(place.fingerprint, things, grows=place.grows))
                points.append(replaced_whole(later_key(place.fingerprint), things))
                points.append(_earlier_point(place.fingerprint, chain, known))
    finally:
        known.clear()
    return [point for point in points if point is not None]


def threads_point(fingerprint: str) -> Watchpoint | None:
    """Return the watch over the threads that run: what a thread keeps came with the line that started it."""
    names = vars(threading)
    return watchpoint(fingerprint, [names, names["_active"]], grows=True)


def later_key(fingerprint: str) -> str:
    """Return what the watch has for a fingerprint that looks whether the holder itself is replaced."""
    return f"later than {fingerprint}"


def earlier_key(fingerprint: str) -> str:
    """Return what the watch has for a fingerprint that looks where the leak with *fingerprint* begins."""
    return f"earlier than {fingerprint}"


def _earlier_point(fingerprint: str, chain: tuple[int, ...], known: dict[int, object]) -> Watchpoint | None:
    """Return the watch over what decides on the growth at the end of *chain*; None where that is decided there.

    An optimizer makes the state of a parameter in the first step that updates it. It does so because the parameter was
    put into one of its groups, by another line.
    """
    optimizer_type = loaded_type("torch.optim", "Optimizer")
    above = [known[address] for address in chain if address in known]
    optimizer = next((one for one in above if optimizer_type is not None and is_kind_of(one, optimizer_type)), None)
    if optimizer is None:
        return None
    attributes: Any = object.__getattribute__(optimizer, "__dict__")
    groups = attributes.get("param_groups")
    if type(groups) is not list or id(attributes.get("state")) not in chain:
        return None
    below = [(group, group.get("params")) for group in first_items(groups, _MAX_POINTS) if type(group) is dict]
    parts = [watchpoint("", [optimizer, groups], grows=True)]
    parts += [watchpoint("", list(pair), grows=True) for pair in below if pair[1] is not None]
    shown = [part for part in parts if part is not None]
    readers = tuple(read for part in shown for read in part.readers)
    newest = tuple(look for part in shown for look in part.newest)
    return Watchpoint(earlier_key(fingerprint), readers, newest) if shown else None


def _with_namespace(place: LeakAddress, namespace: dict[str, Any] | None) -> tuple[int, ...]:
    """Return the chain from the dict of the user's variables on, where it begins with one of them."""
    return (id(namespace), *place.chain) if place.variable and namespace is not None else place.chain


def _objects_of(chain: tuple[int, ...], known: dict[int, object]) -> list[object]:
    """Return the last objects of *chain*; what the collector does not list is looked for in what refers to it."""
    found: list[object] = []
    for address in chain[-_N_LINKS:]:
        thing = known.get(address)
        if thing is None and found:
            thing = _referent(found[-1], address)
        found.append(Unseen() if thing is None else thing)
    return found


def _referent(owner: object, address: int) -> object:
    for referent in get_referents(owner):
        if id(referent) == address:
            return referent
        if type(referent) is dict:
            for value in values_in(referent):
                if id(value) == address:
                    return value
    return None


@dataclass(frozen=True, slots=True)
class Survivors:
    """What the traced runs left.

    Attributes:
        made: For the fingerprint of a leak where it was made, with how many objects were made there.
        shapes: Of the cycles that keep leaks which nothing else holds.
    """

    made: dict[str, Counter[Made]]
    shapes: tuple[CycleShape, ...] = ()


def survivors_by_leak(
    measurement: Measurement,
    n_before: int,
    namespace: dict[str, Any] | None,
    made: dict[int, Made],
    fingerprints: Collection[str],
) -> Survivors:
    """Find for each of *fingerprints* what the traced runs left there, and what made it.

    *made* says for the address of each survivor of a traced run where it was made; *n_before* runs were counted
    ones.
    """
    measurement.forget_the_dead()
    addresses, kinds, runs = measurement.cohorts.members()
    births = Births(addresses, runs, measurement.n_runs, measurement.graph_marks, kinds)
    own = (measurement, made)
    with borrow_heap(births, namespace, own, heap=measurement.heap(), summaries=False) as view:
        groups, orphans = group_survivors(view)
        joined = join_groups(view, groups, measurement.n_runs)
        cycles = group_orphans(view, orphans)
        _name_as_before(view, cycles, n_before, fingerprints)
        places = [(group.fingerprint, group.members) for group in (*joined, *groups)]
        places += [(cycle.fingerprint, cycle.members) for cycle in cycles]
        found: dict[str, Counter[Made]] = {}
        for fingerprint, members in places:
            if fingerprint in fingerprints and fingerprint not in found:
                found[fingerprint] = _places(view, members, n_before, made)
        shapes = [_shape_of(view, cycle, made) for cycle in cycles if cycle.cycle and cycle.fingerprint in fingerprints]
    return Survivors(found, tuple(shape for shape in shapes if shape is not None))


def _name_as_before(view: HeapView, cycles: Sequence[Orphans], n_before: int, fingerprints: Collection[str]) -> None:
    """Give cycles of the traced runs alone the fingerprint of the same objects of earlier runs, where that is wanted.

    Where many cycles run through the same objects, as through all gradients of a model, another one of them may be the
    shortest in one run than in the next.
    """
    newest = [cycle for cycle in cycles if max(view.birth_run[cycle.members], default=BASELINE) >= n_before]
    wanted = [cycle for cycle in cycles if cycle.fingerprint in fingerprints and cycle not in newest]
    for older in wanted:
        kinds = set(view.kinds[older.members].tolist())
        for cycle in newest:
            if cycle.fingerprint not in fingerprints and cycle.certainty is older.certainty:
                same = kinds == set(view.kinds[cycle.members].tolist())
                cycle.fingerprint = older.fingerprint if same else cycle.fingerprint
        older.fingerprint = ""


def _places(view: HeapView, members: Iterable[int], n_before: int, made: dict[int, Made]) -> Counter[Made]:
    """Count the places of the tensors among *members*, or of all of them where there is none."""
    new = np.array([member for member in members if view.birth_run[member] >= n_before], np.int64)
    tensors = new[view.is_tensor[new]] if len(new) else new
    chosen = tensors if len(tensors) else new
    return Counter(made[address] for address in view.index.ids[chosen].tolist() if address in made)


def _shape_of(view: HeapView, orphans: Orphans, made: dict[int, Made]) -> CycleShape | None:
    """Return the shape of a cycle, or of the longest part of it that Python shows; None if it shows no reference."""
    things = [view.objects[vertex] for vertex in orphans.cycle]
    parts = _visible_parts(things)
    is_ring = len(parts) == 1 and len(parts[0]) == len(things)
    part = max(parts, key=len)
    if is_ring:
        part = _from_followed(part)
    elif len(part) < 2:  # noqa: PLR2004 - one object makes no reference
        return None
    pairs = zip([part[-1], *part[:-1]], part, strict=True)
    part = [thing for before, thing in pairs if not _is_own_dict(before, thing)]
    same = view.kinds == view.kinds[view.index.vertex_of(id(part[0]))]
    born_at = {made[address].born_at for address in view.index.ids[same].tolist() if address in made}
    stops = tuple(
        CycleStep(type_name(type(thing)), _variables_for(thing, after))
        for thing, after in zip(part, [*part[1:], part[0]], strict=True)
    )
    return CycleShape(orphans.fingerprint, stops, is_ring, frozenset(born_at))


def _variables_for(thing: object, after: object) -> frozenset[str]:
    """Return the names by which *thing*, if it is a frame, refers to *after*."""
    if type(thing) is not types.FrameType:
        return frozenset()
    return frozenset(name for name, value in thing.f_locals.items() if value is after)


def _visible_parts(things: list[object]) -> list[list[object]]:
    """Cut a cycle where its references are hidden; begin each part behind such a place."""
    is_shown = [_is_shown(*pair) for pair in zip(things, [*things[1:], things[0]], strict=True)]
    if all(is_shown):
        return [things]
    first = is_shown.index(False) + 1
    turned = [*things[first:], *things[:first]]
    shown = [*is_shown[first:], *is_shown[:first]]
    parts: list[list[object]] = [[]]
    for thing, goes_on in zip(turned, shown, strict=True):
        parts[-1].append(thing)
        if not goes_on:
            parts.append([])
    return [part for part in parts if part]


def _is_shown(holder: object, thing: object) -> bool:
    """Return whether Python shows that *holder* refers to *thing*, whoever else refers to it: of a node it may not."""
    is_of_graph = is_node_type(type(holder)) or is_node_type(type(thing))
    return not is_of_graph and any(child is thing for child in shown_referents(holder))


def _from_followed(ring: list[object]) -> list[object]:
    """Turn *ring* so that it begins with the first object that takes weak references, which holding it need not."""
    first = next((place for place, thing in enumerate(ring) if _weak_offset(type(thing))), 0)
    return [*ring[first:], *ring[:first]]


_weak_offset = type.__dict__["__weakrefoffset__"].__get__


def _is_own_dict(owner: object, thing: object) -> bool:
    return type(thing) is dict and type(owner) is not dict and best_reference(owner, thing).text == ".__dict__"

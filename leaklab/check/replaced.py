"""Name what is replaced by something larger in every run, where native memory grows and no object is left behind.

Native memory is that of malloc, or of an accelerator. A KV cache that is fed back, a DataFrame that is concatenated:
there are as many objects after each run as before, all of them new, and only their data get larger. No slot can be
followed through them. So the code is run a few more times, and what each place of the user's leads to is weighed
before, between and after: the place that gains what native memory gains is the holder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from leaklab.check.findings import Explained
from leaklab.check.growing_places import leak_in_place
from leaklab.check.memory import (
    DEVICE_MEMORY,
    NATIVE_MEMORY,
    NativeRest,
    is_unheld_memory,
    left_over,
    with_replaced,
    without_explanation,
)
from leaklab.check.session import CheckSession, Ran
from leaklab.decide.growth import CREEP_FLOOR_BYTES, NATIVE_FLOOR_BYTES, SURE_RUNS, Growth
from leaklab.explain.leaks.groups import LeakAddress, address_of_growth
from leaklab.heap.borrow import borrow_heap
from leaklab.heap.shortest_paths import hops_to
from leaklab.heap.view import NO_BIRTHS, HeapView
from leaklab.model import Leak, Outcome
from leaklab.runtime.objects import (
    has_base,
    is_exactly,
    is_kind_of,
    is_tensor,
    loaded_type,
    no_torch_functions,
    summary,
    type_name,
)
from leaklab.runtime.referents import get_referents
from leaklab.runtime.sizes import base_of, is_leaf, is_on_host, owned_bytes, shallow_bytes, storages_of
from leaklab.text import format_bytes, unit_words

_N_EACH = 3
"""So many runs are made twice: what grows in both halves alike is no accident."""
_MAX_OBJECTS = 1_000_000
"""A larger heap is not looked at: each look costs as much as an explanation."""
_SHARE = 0.25
"""A place that gains less than this share of what native memory gains is not named."""
_TOLD_BYTES = 1024
"""So much that nothing explains is told, though it counts as no leak."""
_PIECE_SHARE = 1 / 16
"""Of what a place leads to, pieces of so much are asked for their ends."""
_DEEPEST = 48
"""A place that so many objects lead to is not named: nobody has written that path, it goes along a chain."""
_WHOLE = 0.8
"""A part that gains so much of what the whole gains is named instead of it."""

_OWN_DICT = ".__dict__"  # stands for its owner
Place = tuple[str, ...]
"""The words for the root of a path, then its references."""


def find_replaced(session: CheckSession, explained: Explained) -> Generator[int, Ran, Explained]:
    """Run the code a few more times, if native memory grows, and name the places that gain what it gains.

    Not after a run that failed. In a loop that goes on, what may creep beside a certain leak is left to a later check:
    each of three looks weighs all that the leak has piled up, and its estimate may be off by as much.

    Returns:
        *explained*, or the same with those places instead of native memory, which stays with what they leave over.
    """
    if session.failure:
        return explained
    measurement, creep = session.measurement, 0.0 if session.judgement is None else session.judgement.creep
    seconds_left, next_run = session.seconds_left, session.next_run
    unheld = [leak for leak in explained.leaks if is_unheld_memory(leak)]
    rate = sum(leak.bytes_per_run for leak in unheld) if unheld else creep - explained.native_bytes
    is_beside = session.in_loop and bool(explained.leaks)
    is_explained = not unheld and (is_beside or rate < max(CREEP_FLOOR_BYTES, _SHARE * creep))
    if is_explained or int(measurement.checkpoints[-1].counts.sum()) > _MAX_OBJECTS:
        return explained
    weigher = _Weigher(session, rate, must_carry=not unheld)
    for number in range(2 * weigher.n_each):
        if seconds_left <= 0:
            return explained
        if number % weigher.n_each == 0:
            weigher.weigh()
        seconds, failure = yield next_run + number
        seconds_left -= seconds
        if failure:
            note = f"values that are replaced by larger ones could not be searched for: the code raised {failure}"
            return replace(explained, notes=(*explained.notes, note))
    known = {leak.holder for leak in explained.leaks}
    found = [one for one in weigher.weigh() if one.leak.holder not in known]
    if not found:
        # What is half of the floor or more has been told with the verdict.
        is_new = _TOLD_BYTES <= rate < NATIVE_FLOOR_BYTES / 2 and measurement.n_runs >= SURE_RUNS
        if explained.leaks or not is_new:
            return explained
        unexplained = NativeRest(rate, explained.native_bytes, 0.0, NATIVE_FLOOR_BYTES)
        return replace(explained, notes=(*explained.notes, without_explanation(unexplained, NATIVE_MEMORY)))
    on_device = sum(one.gain.on_device for one in found)
    taken = {NATIVE_MEMORY: sum(one.gain.rate for one in found) - on_device, DEVICE_MEMORY: on_device}
    others = [leak for leak in explained.leaks if leak not in unheld]
    return replace(
        explained,
        leaks=(*(one.leak for one in found), *left_over(unheld, taken), *others),
        addresses=(*explained.addresses, *(one.address for one in found)),
        native_bytes=explained.native_bytes + min(taken[NATIVE_MEMORY], _native_rate(unheld, rate)),
        shares=with_replaced(explained.shares, taken),
    )


def _native_rate(unheld: Sequence[Leak], rate: float) -> float:
    return sum(leak.bytes_per_run for leak in unheld if leak.what == NATIVE_MEMORY) if unheld else rate


@dataclass(frozen=True, slots=True)
class Gain:
    """What a place gained per run, in both halves, and what of that on accelerators."""

    first: float
    second: float
    on_device: float

    @property
    def rate(self) -> float:
        """The mean."""
        return (self.first + self.second) / 2

    def __add__(self, other: Gain) -> Gain:
        return Gain(self.first + other.first, self.second + other.second, self.on_device + other.on_device)


@dataclass(frozen=True, slots=True)
class Replaced:
    """A place that gains in every run, as a leak; lives as long as the view."""

    leak: Leak
    address: LeakAddress
    gain: Gain


@dataclass(frozen=True, slots=True)
class _Weight:
    """What one place leads to; lives as long as the view.

    Attributes:
        n_bytes: Bytes of all of it.
        n_on_device: Those of them that lie on accelerators.
        n_objects: Of how many objects it is.
        vertex: The object at the place, or what refers to it.
        below: The object at the place, where the collector does not know it.
        pieces: The ends of the largest pieces of data in all of it.
    """

    n_bytes: int
    n_on_device: int
    n_objects: int
    vertex: int
    below: tuple[object, ...] = ()
    pieces: tuple[Ends, ...] = ()


class _Weigher:
    """Weighs the places of the user's again and again.

    Args:
        session: Lends the heap, and has the user's variables.
        rate: What native memory gains per run.
        must_carry: Whether what a place led to before must still be there: where so little is gained that a value
            which is longer in every run by design gains as much.
    """

    def __init__(self, session: CheckSession, rate: float, *, must_carry: bool) -> None:
        self._session, self._measurement = session, session.measurement
        self._rate, self._must_carry = rate, must_carry
        self.n_each = session.n_further(_N_EACH)
        self._moments: list[dict[Place, tuple[int, int, int, tuple[Ends, ...]]]] = []

    def weigh(self) -> list[Replaced]:
        """Weigh every place; the third time return those that gained."""
        own, heap, session = (self._measurement, self), self._measurement.heap(), self._session
        with borrow_heap(NO_BIRTHS, session.namespace, own, heap=heap, summaries=session.settings.summaries) as view:
            weights = _weights(view, _SHARE * self._rate * self._measurement.n_runs)
            self._moments.append(
                {place: (one.n_bytes, one.n_on_device, one.n_objects, one.pieces) for place, one in weights.items()}
            )
            if len(self._moments) <= 2:  # noqa: PLR2004 - before and between
                return []
            named = _deepest(self._gains())
            return [
                _found(view, weights[place], gain, self.n_each) for place, gain in named.items() if place in weights
            ]

    def _gains(self) -> dict[Place, Gain]:
        """Return the places that gained in both halves about the same.

        A place that leads to one more object by every run collects them, and is known by what it collects.
        """
        before, between, after = self._moments
        gains = {}
        for place in before.keys() & between.keys() & after.keys():
            levels = [moment[place][0] for moment in self._moments]
            first, second = ((high - low) / self.n_each for low, high in pairwise(levels))
            is_steady = min(first, second) >= max(_SHARE * self._rate, max(first, second) / 2)
            is_carried_on = not self._must_carry or is_carried(before[place][3], after[place][3])
            if is_steady and is_carried_on and after[place][2] - before[place][2] < 2 * self.n_each:
                gains[place] = Gain(first, second, (after[place][1] - before[place][1]) / (2 * self.n_each))
        return gains


def _weights(view: HeapView, least: float) -> dict[Place, _Weight]:
    """Return the places of the user's that lead to at least so many bytes."""
    parents = view.tree.parent.tolist()
    totals: dict[int, int] = {}  # each vertex after the one that leads to it
    on_device: dict[int, int] = defaultdict(int)
    counts: dict[int, int] = {}
    depths: dict[int, int] = {}
    pieces_of: dict[int, tuple[Ends, ...]] = {}
    large: list[_Weight] = []
    seen: set[int] = set()
    shared: set[int] = set()
    for vertex in _users(view):
        thing = view.objects[vertex]
        before = parents[vertex]
        if before in shared or (before >= 0 and before != view.namespace and is_kind_of(thing, type)):
            shared.add(vertex)  # the class of some object, which others share: what is reached first is chance
            continue
        depths[vertex] = depths.get(before, 0) + 1
        n_bytes, n_objects = (shallow_bytes(thing) if vertex != view.namespace else 0), 1
        if view.is_tensor[vertex]:
            fresh = {key: size for key, size in storages_of(thing) or () if key not in seen}
            seen.update(fresh)
            n_bytes += sum(fresh.values())
            on_device[vertex] = 0 if is_on_host(thing) else sum(fresh.values())
        pieces = [ends_of(thing, n_bytes)] if view.is_tensor[vertex] and n_bytes >= _PIECE_SHARE * least else []
        for below in _leaves(view, thing):
            leaf = below[-1]
            if id(leaf) not in seen:
                seen.add(id(leaf))
                size = _bytes_of_leaf(leaf, seen)
                n_bytes, n_objects = n_bytes + size, n_objects + 1
                pieces += [ends_of(leaf, size)] if size >= _PIECE_SHARE * least else []
                if size >= least and depths[vertex] < _DEEPEST:
                    large.append(_Weight(size, 0, 1, vertex, below, (pieces[-1],)))
        totals[vertex], counts[vertex] = n_bytes, n_objects
        for above in _up_from(parents, vertex) if pieces else ():
            pieces_of[above] = largest((*pieces_of.get(above, ()), *pieces))
    for vertex in reversed(list(totals)):
        if (above := parents[vertex]) in totals:
            totals[above] += totals[vertex]
            on_device[above] += on_device[vertex]
            counts[above] += counts[vertex]
    whole = [
        _Weight(size, on_device[v], counts[v], v, pieces=pieces_of.get(v, ()))
        for v, size in totals.items()
        if size >= least and depths[v] <= _DEEPEST and v != view.namespace
    ]
    places = {_place(view, weight): weight for weight in (*whole, *large)}
    return {place: weight for place, weight in places.items() if not place[-1].endswith(_OWN_DICT)}


def _leaves(view: HeapView, thing: object) -> Iterator[tuple[object, ...]]:
    """Yield the leaves that *thing* refers to, each alone or after the dict or tuple that holds it for *thing*.

    The collector does not list a dict or a tuple of leaves.
    """
    for child in get_referents(thing):
        if is_leaf(child):
            yield (child,)
        elif is_exactly(child, (dict, tuple)) and view.index.vertex_of(id(child)) < 0:
            yield from ((child, leaf) for leaf in get_referents(child) if is_leaf(leaf))


def _users(view: HeapView) -> Iterator[int]:
    """Yield what the user's own roots reach, the cheapest paths first, each after what leads to it; no history."""
    is_users = np.array([not (s.is_library or s.is_history or s.is_shells) for s in view.starts] or [False])
    root_of = view.tree.root_of
    reached = np.flatnonzero((root_of >= 0) & is_users[root_of])
    yield from ([view.namespace] if view.namespace >= 0 else [])
    # Of two with paths of one cost, one may lead to the other.
    yield from reached[np.lexsort((hops_to(view.tree)[reached], view.tree.cost[reached]))].tolist()


def _up_from(parents: list[int], vertex: int) -> Iterator[int]:
    while vertex >= 0:
        yield vertex
        vertex = parents[vertex]


def _bytes_of_leaf(leaf: Any, seen: set[int]) -> int:
    """Return the bytes of *leaf*; of an array that is a view those of the memory that it shows, once."""
    memory = leaf
    while type(memory) is np.ndarray and type(base := base_of(memory)) is np.ndarray:
        memory = base
    if memory is not leaf and id(memory) in seen:
        return 0
    seen.add(id(memory))
    return owned_bytes([memory])


def _place(view: HeapView, weight: _Weight) -> Place:
    path = _described(view, weight).path
    return (path.root, *(step.reference for step in path.steps))


def _described(view: HeapView, weight: _Weight) -> Any:
    return view.describe_child(weight.vertex, *weight.below) if weight.below else view.describe(weight.vertex)


def _deepest(gains: dict[Place, Gain]) -> dict[Place, Gain]:
    """Return the places to name: of a whole and its part the part if that gains nearly all, unless it is private.

    What is private is named by what it is part of.
    """
    named: dict[Place, Gain] = {}
    tops: list[Place] = []
    for place in sorted(gains, key=len):
        public = _public(place)
        above = next((one for one in named if public[: len(one)] == one), None)
        if above is None or (public == above and place != above and not any(place[: len(top)] == top for top in tops)):
            named[public] = named[public] + gains[place] if public in named else gains[place]
            tops.append(place)
        elif public == place and gains[place].rate >= _WHOLE * named[above].rate:
            del named[above]
            named[place] = gains[place]
            tops.append(place)
    return named


def _public(place: Place) -> Place:
    """Return *place* as far as no reference is private or has no name."""
    ends = (i for i, reference in enumerate(place) if i > 1 and _is_private(reference))
    return place[: next(ends, len(place))]


def _is_private(reference: str) -> bool:
    return not reference.startswith((".", "[")) or reference.startswith(("._", ".base"))


def _found(view: HeapView, weight: _Weight, gain: Gain, n_each: int) -> Replaced:
    thing = weight.below[-1] if weight.below else view.objects[weight.vertex]
    reason = (
        f"each run replaces it with a larger value: it grew by {format_bytes(gain.first)} per run over "
        f"{unit_words(n_each, 'more runs')}, and by {format_bytes(gain.second)} per run over the next {n_each}"
    )
    words = f"{type_name(type(thing))} {summary(thing) if view.summaries else ''}".strip()
    leak = leak_in_place(
        view,
        _described(view, weight),
        weight.vertex,
        what=words,
        unit="bytes",
        growth=Growth(Outcome.LEAK, gain.rate, reason),
        bytes_per_run=gain.rate,
    )
    return Replaced(leak, address_of_growth(view, leak.fingerprint, weight.vertex, *weight.below), gain)


_N_NUMBERS = 32
_FEWEST = 4


@dataclass(frozen=True, slots=True)
class Ends:
    """The numbers at both ends of a piece of data.

    Attributes:
        n_bytes: Its size.
        first: The first numbers, empty if nobody can tell, or if a rule makes them.
        last: The last ones, the same way.
    """

    n_bytes: int
    first: tuple[float, ...]
    last: tuple[float, ...]

    @property
    def rank(self) -> tuple[int, int]:
        """The larger, the better: of two pieces of one size that whose numbers no rule makes."""
        return self.n_bytes, len(self.first)


def ends_of(thing: Any, n_bytes: int) -> Ends:
    """Return the ends of a tensor, an array, a text or bytes of so many bytes; empty ones of anything else."""
    try:
        first, last = _numbers(thing)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return Ends(n_bytes, (), ())
    return Ends(n_bytes, *(() if _is_made_by_rule(end) else tuple(end) for end in (first, last)))


N_PIECES = 4
"""So many pieces of a place are compared, the largest: a table has its values beside its index."""


def largest(pieces: Iterable[Ends]) -> tuple[Ends, ...]:
    """Return the largest of *pieces*."""
    return tuple(sorted(pieces, key=lambda piece: piece.rank, reverse=True)[:N_PIECES])


def is_carried(before: Sequence[Ends], after: Sequence[Ends]) -> bool:
    """Return whether one of the pieces *after* is larger than one *before*, and has what that began or ended with."""
    return any(
        new.n_bytes > old.n_bytes
        and (bool(old.first and old.first == new.first) or bool(old.last and old.last == new.last))
        for old in before
        for new in after
    )


def _numbers(thing: Any) -> tuple[list[Any], list[Any]]:
    if is_tensor(thing):
        base: Any = loaded_type("torch", "Tensor")
        with no_torch_functions():
            flat = base.flatten(base.detach(thing))
            return base.tolist(flat[:_N_NUMBERS]), base.tolist(flat[-_N_NUMBERS:])
    if isinstance(thing, (bytes, bytearray)):
        return list(thing[:_N_NUMBERS]), list(thing[-_N_NUMBERS:])
    if isinstance(thing, str):
        return [ord(one) for one in thing[:_N_NUMBERS]], [ord(one) for one in thing[-_N_NUMBERS:]]
    array = loaded_type("numpy", "ndarray")
    if array is not None and has_base(type(thing), array) and not thing.dtype.hasobject and thing.flags.c_contiguous:
        flat = thing.reshape(-1)
        return flat[:_N_NUMBERS].tolist(), flat[-_N_NUMBERS:].tolist()
    return [], []


def _is_made_by_rule(numbers: list[Any]) -> bool:
    """Return whether *numbers* are too few, all alike, or a range."""
    if len(numbers) < _FEWEST or not all(isinstance(number, (int, float)) for number in numbers):
        return True
    step = numbers[1] - numbers[0]
    return all(later - earlier == step for earlier, later in pairwise(numbers))

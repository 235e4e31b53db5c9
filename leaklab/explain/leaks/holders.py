"""Find everything that keeps survivors alive on its own, and what comes back when all of it is released.

The paths by which one place keeps its survivors are merged: 23 of 24 through `[i]['loss']`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from leaklab.explain.alive.retained import bytes_in_place, bytes_of_graphs, retained, size_of_freed
from leaklab.explain.alive.smallest_cut import freed_without
from leaklab.explain.leaks.groups import Group, LeakAddress, holder_of
from leaklab.heap.folding import fold
from leaklab.heap.reachability import led_to, references_to
from leaklab.heap.shortest_paths import ROOT
from leaklab.heap.view import HeapView
from leaklab.model import Leak
from leaklab.model.check import GRAPH_UNIT, Way
from leaklab.model.sentences import without_positions
from leaklab.runtime.addresses import Ints
from leaklab.runtime.objects import type_name
from leaklab.runtime.sizes import leaves_beside, owned_bytes

MAX_MEASURED = 40
"""So many leaks of a heap are measured: each takes some milliseconds for every million objects."""
MAX_HOLDERS = 8
"""So many holders of one leak are named, those first that keep most of it."""
_SHARE = 0.5
"""Who keeps less than this share of what the others keep is not named: a loop variable, a last result."""
_MAX_COMPARED = 64
_OWN_DICT = ".__dict__"


@dataclass(frozen=True, slots=True, eq=False)
class IndependentHold:
    """What keeps a group of survivors alive.

    Attributes:
        holders: Expressions, or words where Python has none, the group's own holder first.
        retained_bytes: What comes back when all of them release the survivors.
        freed: The vertices that go then.
    """

    holders: tuple[str, ...]
    retained_bytes: int
    freed: Ints


class RetainedBytes:
    """Weighs the leaks of one view, as many as are worth the time."""

    def __init__(self, view: HeapView) -> None:
        self._view = view
        self._n_asked = 0
        self._chains: dict[tuple[str, str], list[tuple[int, ...]]] = defaultdict(list)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what was left out, as a sentence."""
        if self._n_asked <= MAX_MEASURED:
            return ()
        return (f"freed memory and further holders were computed for {MAX_MEASURED} of the leaks only",)

    def hold(self, group: Group, survivors: Sequence[int]) -> IndependentHold | None:
        """Return what keeps *survivors*, those of *group* that matter most; None if there were too many before."""
        self._n_asked += 1
        return hold_of(self._view, group, survivors) if self._n_asked <= MAX_MEASURED else None

    def of_orphans(self, members: Sequence[int]) -> int | None:
        """Return what comes back with *members*, which no root reaches; None if there were too many before."""
        self._n_asked += 1
        return retained(self._view, members).exclusive_bytes if self._n_asked <= MAX_MEASURED else None

    def note_growth(self, leak: Leak, spot: LeakAddress) -> None:
        """Note that *leak* grows in place, at *spot*; of several such places one may stand for all."""
        self._chains[leak.fingerprint, leak.holder].append(spot.chain)

    def with_retained_bytes(self, leak: Leak) -> Leak:
        """Return *leak*, if it grows in place with what comes back; with None if that is unknown, or too many asked."""
        own = set(leak.holders)
        chains = [
            chain
            for (fingerprint, holder), known in self._chains.items()
            if fingerprint == leak.fingerprint and (holder in own or leak.n_places > 1)
            for chain in known
        ]
        if not chains:
            return leak
        self._n_asked += 1
        if self._n_asked > MAX_MEASURED:
            return leak
        weigh = bytes_of_graphs if leak.unit == GRAPH_UNIT else bytes_in_place
        return replace(leak, retained_bytes=weigh(self._view, chains))


def hold_of(view: HeapView, group: Group, survivors: Sequence[int]) -> IndependentHold:
    """Find what keeps *survivors* alive, objects that matter most in *group*.

    A holder is an object with a reason to live that refers to them, or to other survivors that lead to them.
    """
    inside = _inside(view, np.asarray([*survivors, *group.entries], np.int64))
    holders, held, passing = _crossings(view, inside, group)
    # What hangs on the survivors itself goes with them.
    free = [vertex for vertex in _most_frequent(holders) if not inside[view.path(vertex)].any()]
    own = holder_of(view, group)
    names = {vertex: own if vertex in group.holders else _name(view, vertex) for vertex in free}
    by_name: dict[str, list[int]] = defaultdict(list)
    for vertex, name in names.items():
        by_name[name].append(vertex)
    shares = {
        name: _n_kept(view, held[np.isin(holders, vertices)], inside, survivors) for name, vertices in by_name.items()
    }
    least = _SHARE * max(shares.values(), default=0)
    others = sorted((name for name in shares if shares[name] >= least and name != own), key=lambda name: -shares[name])
    named = [own, *others][:MAX_HOLDERS]
    chosen = [vertex for name in named for vertex in by_name.get(name, ())]
    is_cut = np.isin(holders, chosen)
    freed = freed_without(view, [*zip(holders[is_cut].tolist(), held[is_cut].tolist(), strict=True), *passing])
    keys = {id(view.objects[vertex]) for vertex in held[is_cut].tolist()}
    beside = [leaf for vertex in chosen for leaf in leaves_beside(view.objects[vertex], keys)]
    return IndependentHold(tuple(named), size_of_freed(view, freed).exclusive_bytes + owned_bytes(beside), freed)


def _inside(view: HeapView, survivors: Ints) -> Ints:
    """Return for each vertex whether it is one of *survivors*, or a survivor or part of a graph that leads to them."""
    inside = np.zeros(view.index.n_vertices, bool)
    level = np.unique(survivors)
    while len(level):
        inside[level] = True
        holders, _held = references_to(view.index, level)
        level = np.unique(holders[(view.leaked[holders] | view.in_graph[holders]) & ~inside[holders]])
    return inside


def _crossings(view: HeapView, inside: Ints, group: Group) -> tuple[Ints, Ints, list[tuple[int, int]]]:
    """Return holder and held of the references from what has a reason to live to what is *inside*.

    The third value are the references of what the last run made, which go with the next run: none of them is a hold.
    """
    holders, held = references_to(view.index, np.flatnonzero(inside))
    # What the last run made goes with the next one, unless the paths themselves lead through it.
    lasts = view.birth_run < view.birth_run.max(initial=0)
    if view.carriers:  # so does what leads into the graph that one of these hands on
        lasts[view.is_tensor] = False
        lasts[list(view.carriers)] = True
    lasts[view.tree.parent[np.asarray(group.entries, np.int64)]] = True
    is_outside = ~inside[holders] & ~view.is_orphan[holders]
    is_holder, passes = is_outside & lasts[holders], is_outside & ~lasts[holders]
    passing = list(zip(holders[passes].tolist(), held[passes].tolist(), strict=True))
    roots = view.roots[inside[view.roots]]
    return np.append(holders[is_holder], np.full(len(roots), ROOT)), np.append(held[is_holder], roots), passing


def _most_frequent(holders: Ints) -> list[int]:
    """Return the holders with most references, no more than are worth comparing; roots are none."""
    vertices, counts = np.unique(holders[holders != ROOT], return_counts=True)
    return [int(vertex) for vertex in vertices[np.argsort(-counts, kind="stable")][:_MAX_COMPARED]]


def _name(view: HeapView, vertex: int) -> str:
    """Return the expression for a holder; an instance stands for its dict."""
    name = holder_of(view, Group(vertex, []))
    return name.removesuffix(_OWN_DICT) if name != _OWN_DICT else name


def _n_kept(view: HeapView, tops: Ints, inside: Ints, survivors: Sequence[int]) -> int:
    """Return how many of *survivors* are *tops* or hang on them *inside*."""
    found = led_to(view.index, tops, inside)
    return int(np.count_nonzero(found[np.asarray(survivors, np.int64)]))


_MOST_NAMED = 1_000
"""So many references are named, of objects spread evenly over all: each takes 0.2 to 1 ms, most in autograd graphs."""
_MOST_REFERENCES = 24
"""Of a longer path the first and the last references are named: it is one along a chain, whose links are alike."""
_HEAD, _TAIL = 9, 3
"""Objects at either end of such a path whose references are named."""
_LONGEST_WALK = 5_000
"""A path that is longer is not followed to its end."""
_MOST_WAYS = 24
_LONGEST_BLOCK, _OFTEN = 3, 3
_POSITIONS = ("key", "index", "element")
_INDEX = "[i]"
_OF_TEXT = ("['", '["')
"""How a reference by a key begins that is a text; other keys are numbers and the like, told as positions."""


def merged_ways(view: HeapView, group: Group, main_objects: Sequence[int]) -> tuple[Way, ...]:
    """Return by which references the holder of *group* keeps *main_objects*, those of most objects first.

    Their counts add up to the number of objects that were looked at. Empty where there is no common way to tell.
    """
    hangs_on = dict(zip(group.members, group.hangs_on, strict=False))
    known = [vertex for vertex in main_objects if vertex in hangs_on]
    spread = known[:: max(1, len(known) // _MOST_NAMED)] if any(vertex != hangs_on[vertex] for vertex in known) else []
    n_references = sum(len(_chain(view, hangs_on[vertex], vertex, _MOST_REFERENCES)) for vertex in spread)
    step = -(-n_references // _MOST_NAMED)
    sample = spread[:: max(1, step)] or known
    first = _first_reference(group)
    kinds = [type_name(type(view.objects[vertex])) for vertex in sample]
    paths = without_positions([_references(view, hangs_on[vertex], vertex) for vertex in sample])
    found = Counter(((*first, *path), kind) for path, kind in zip(paths, kinds, strict=True))
    if len(found) > _MOST_WAYS:
        return ()
    return tuple(Way(references, kind, count) for (references, kind), count in found.most_common())


def _first_reference(group: Group) -> tuple[str, ...]:
    """Return how the holder refers to its entries, of several by position."""
    if group.crossing is None or group.holder < 0:
        return ()
    text = group.crossing.text
    is_one_of_many = group.crossing.kind in _POSITIONS and len(group.entries) > 1
    return (_INDEX if is_one_of_many and text.startswith("[") else text,)


def _chain(view: HeapView, entry: int, vertex: int, most: int = _LONGEST_WALK) -> list[int]:
    """Return the vertices from *entry* to *vertex*; of more than *most* the last."""
    chain = [vertex]
    while chain[-1] != entry and len(chain) <= most and view.tree.parent[chain[-1]] >= 0:
        chain.append(int(view.tree.parent[chain[-1]]))
    return chain[::-1]


def _references(view: HeapView, entry: int, vertex: int) -> list[str]:
    """Return the references from *entry* to *vertex*, those that are repeated once."""
    chain = _chain(view, entry, vertex)
    if chain[0] != entry:
        return [REPEATED]
    if len(chain) - 1 <= _MOST_REFERENCES:
        return _folded(_named(view, chain))
    head, tail = _folded(_named(view, chain[:_HEAD])), _named(view, chain[-_TAIL:])
    if head[-1] != REPEATED:
        return [*head, REPEATED, tail[-1]]
    return [*head, *(text for text in tail if text not in head)]


def _named(view: HeapView, chain: Sequence[int]) -> list[str]:
    """Return how each of *chain* refers to the next; a key that is no text is told as a position."""
    hops = [hop.reference for hop in fold([view.objects[vertex] for vertex in chain], view.name)]
    return [hop.text if hop.kind != "key" or hop.text.startswith(_OF_TEXT) else _INDEX for hop in hops]


def _folded(references: list[str]) -> list[str]:
    """Return *references* with what is repeated told once: the links of a chain are one way, however long it is."""
    shortened: list[str] = []
    place = 0
    while place < len(references):
        size, n_times = max(
            ((size, _n_times(references[place:], size)) for size in range(1, _LONGEST_BLOCK + 1)),
            key=lambda repeated: repeated[0] * (repeated[1] if repeated[1] >= _OFTEN else 1),
        )
        if n_times >= _OFTEN:
            shortened += [*references[place : place + size], REPEATED]
            place += size * n_times
        else:
            shortened.append(references[place])
            place += 1
    return shortened


def _n_times(references: Sequence[str], size: int) -> int:
    """Return how often in a row *references* begin with their first *size*."""
    n_times = 1
    while references[n_times * size : (n_times + 1) * size] == references[:size]:
        n_times += 1
    return n_times


REPEATED = "..."

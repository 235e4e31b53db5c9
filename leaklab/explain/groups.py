"""Put the survivors of the runs into groups: those that one reference, or one like it, keeps alive."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from leaklab.explain.paths import fingerprint
from leaklab.explain.references import Reference, best_reference
from leaklab.explain.view import OLD, HeapView

_MAX_NAMED = 400
"""So many entries of one holder are named; the others are grouped with those of the same holder."""
_MANY_ENTRIES = 3
"""More entries than this under one holder are those of a collection, not names."""


@dataclass(slots=True)
class Group:
    """Survivors that hang on one place.

    Attributes:
        holder: The last object on the path that has a reason to live; -1 if a variable itself is the survivor, or if
            nothing reaches it.
        entries: The survivors that the holder refers to itself.
        members: All of them, *entries* and what only they keep, as vertices.
        crossing: The reference from the holder to the newest entry; None without a holder.
        fingerprint: The same for the same place tomorrow.
    """

    holder: int
    entries: list[int]
    members: list[int] = field(default_factory=list)
    crossing: Reference | None = None
    fingerprint: str = ""

    def kept(self, view: HeapView, n_runs: int, vertices: Iterable[int] | None = None) -> tuple[int, ...]:
        """Return how many of *vertices* (default: all members) each run left, shape ``(n_runs,)``."""
        chosen = np.fromiter(self.members if vertices is None else vertices, np.int64)
        chosen = chosen[view.credit_of[chosen] != OLD]
        return tuple(np.bincount(view.credit_of[chosen], minlength=n_runs).tolist())


def group_survivors(view: HeapView) -> tuple[list[Group], list[int]]:
    """Group what earlier runs left by the reference that keeps it.

    Returns:
        The groups, and the vertices that no root reaches.
    """
    leaked = np.flatnonzero(view.leaked)
    reached = leaked[view.tree.root_of[leaked] >= 0]
    entry_of = _entries(view, reached)
    groups = _by_place(view, sorted(set(entry_of.values())))
    by_entry = {entry: group for group in groups for entry in group.entries}
    for vertex, entry in entry_of.items():
        by_entry[entry].members.append(vertex)
    return groups, leaked[view.tree.root_of[leaked] < 0].tolist()


def _entries(view: HeapView, reached: npt.NDArray[np.int64]) -> dict[int, int]:
    """Return for each leaked vertex where its path leaves what has a reason to live.

    That is the first leaked object on it, or the first node of an autograd graph: the nodes of one long graph are one
    place, not many holders.
    """
    entry_of: dict[int, int] = {}
    parent, outside = view.tree.parent, view.leaked | view.in_graph
    for vertex in reached.tolist():
        chain = [vertex]
        while chain[-1] not in entry_of and (before := int(parent[chain[-1]])) >= 0 and outside[before]:
            chain.append(before)
        entry = entry_of.get(chain[-1], chain[-1])
        entry_of.update(dict.fromkeys(chain, entry))
    return {vertex: entry_of[vertex] for vertex in reached.tolist()}


def _by_place(view: HeapView, entries: list[int]) -> list[Group]:
    """Group entries by their holder's path and by how it refers to them."""
    by_holder: dict[int, list[int]] = defaultdict(list)
    for entry in entries:
        by_holder[int(view.tree.parent[entry])].append(entry)
    places: dict[tuple[str, ...], Group] = {}
    for holder, held in by_holder.items():
        crossings = _crossings(view, holder, held)
        many = len(held) > _MANY_ENTRIES
        for entry in held:
            reference = crossings.get(entry, crossings[max(crossings)])
            stable = "[*]" if many and reference.kind in ("key", "index", "element") else reference.stable
            place = (*_stable_path(view, holder, entry), stable)
            if _thread_of(view, entry):  # whatever a thread's functions hold ends with the thread
                place = (_thread_of(view, entry),)
            group = places.setdefault(place, Group(holder, [], fingerprint=fingerprint(place)))
            group.entries.append(entry)
            if group.crossing is None or view.credit_of[entry] >= view.credit_of[group.entries[0]]:
                group.holder, group.crossing = holder, reference
    return list(places.values())


def _crossings(view: HeapView, holder: int, held: list[int]) -> dict[int, Reference]:
    """Name how *holder* refers to its entries, to the newest ones if there are very many."""
    newest = sorted(held, key=lambda entry: view.credit_of[entry])[-_MAX_NAMED:]
    if holder < 0:
        return {entry: _variable(view, entry) for entry in newest}
    return {entry: best_reference(view.objects[holder], view.objects[entry]) for entry in newest}


def _variable(view: HeapView, entry: int) -> Reference:
    start = view.starts[view.tree.root_of[entry]]
    stable = re.sub(r"\d+", "#", start.expression)
    return Reference(start.expression, start.expression or None, stable, "key" if start.is_variable else "other")


def _stable_path(view: HeapView, holder: int, entry: int) -> tuple[str, ...]:
    if holder < 0:
        start = view.starts[view.tree.root_of[entry]]
        return (start.words,)
    described = view.describe(holder)
    return (described.path.root, *described.stable)


def _thread_of(view: HeapView, entry: int) -> str:
    """Return the words for the thread whose frames hold *entry*, empty if its path begins elsewhere."""
    start = view.starts[view.tree.root_of[entry]]
    return start.words if start.words.startswith("thread ") else ""

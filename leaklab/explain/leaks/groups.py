"""Put the survivors of the runs into groups: those that one reference, or one like it, keeps alive.

Of those that no root reaches, some are parts of another object, kept by C code: nothing that Python can see refers to
them, and they go with it. Six are known (read in the sources of CPython 3.11 and of torch, and seen in heaps): a
running thread keeps its start method in the arguments of the C function that it runs, a weak reference to its lock, and
the bound methods on the stacks of its functions, such as ``__exit__`` of a lock that it waits for; an ``io.StringIO``
keeps what was written in a list until somebody reads it; a file opened for text keeps its decoder through an object in
C that the collector does not list; a class keeps weak references to its subclasses; the memory of a tensor keeps the
Python object that stands for it.
"""

from __future__ import annotations

import _thread
import codecs
import io
import re
import sys
import threading
import types
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.explain.cycles.cycles import UNSEEN_ROOT
from leaklab.explain.leaks.entries import entries_of
from leaklab.heap.folding import fold
from leaklab.heap.names.reference import Reference
from leaklab.heap.paths import fingerprint
from leaklab.heap.reachability import references_of
from leaklab.heap.view import BASELINE, HeapView
from leaklab.measure.registries import registry_on
from leaklab.model import RootPath, Step
from leaklab.runtime.containers import items_in
from leaklab.runtime.objects import has_base, is_kind_of, loaded_type
from leaklab.text import with_article


def without_unseen_parts(view: HeapView, orphans: Sequence[int]) -> list[int]:
    """Return *orphans* without those that are parts of leaked objects which some root reaches."""
    if not orphans:
        return []
    n_threads = _n_leaked(view, _is_thread_type)
    n_streams = _n_leaked(view, _is_text_stream_type)
    n_files = _n_leaked(view, _is_text_file_type)
    decoders = [vertex for vertex in orphans if n_files and _is_decoder(view.objects[vertex])][:n_files]
    streams = [vertex for vertex in orphans if n_streams and _is_list_of_text(view.objects[vertex])][:n_streams]
    locks = [vertex for vertex in orphans if n_threads and _is_lock_reference(view.objects[vertex])][:n_threads]
    in_hand = in_hand_of_threads(view)
    on_stacks = [vertex for vertex in orphans if n_threads and _is_method_of(view, view.objects[vertex], in_hand)]
    of_classes = [vertex for vertex in orphans if _is_for_leaked_class(view, view.objects[vertex])]
    storages = [vertex for vertex in orphans if _is_memory_of_leaked(view, view.objects[vertex])]
    parts = {*streams, *decoders, *locks, *on_stacks, *of_classes, *storages}
    return [vertex for vertex in orphans if vertex not in parts]


def in_hand_of_threads(view: HeapView) -> npt.NDArray[np.bool_]:
    """Return for each vertex whether running functions of leaked threads refer to it.

    What they alone put somewhere, such as the lock that a thread waits for in the list of all who wait, goes when they
    go on.
    """
    found = np.zeros(view.index.n_vertices, bool)
    is_thread = view.types.mask(_is_thread_type) & view.leaked
    if not is_thread.any():
        return found
    frames = np.flatnonzero((view.kinds == id(types.FrameType)) & (view.tree.root_of >= 0))
    holders, held = references_of(view.index, frames)
    words = {view.starts[root].words for root in view.tree.root_of[holders[is_thread[held]]].tolist()}
    words = {one for one in words if one.startswith("thread ")}
    is_theirs = [view.starts[root].words in words for root in view.tree.root_of[frames].tolist()]
    found[references_of(view.index, frames[is_theirs])[1]] = True
    return found


def _n_leaked(view: HeapView, is_wanted: Callable[[type], bool]) -> int:
    return int(np.count_nonzero(view.types.mask(is_wanted) & view.leaked & (view.tree.root_of >= 0)))


def _is_thread_type(kind: type) -> bool:
    return has_base(kind, threading.Thread)


def _is_text_stream_type(kind: type) -> bool:
    return kind is io.StringIO


def _is_text_file_type(kind: type) -> bool:
    return has_base(kind, io.TextIOWrapper)


def _is_decoder(thing: object) -> bool:
    return has_base(type(thing), codecs.IncrementalDecoder)


def _is_list_of_text(thing: object) -> bool:
    return type(thing) is list and all(type(item) is str for item in items_in(thing))


def _is_lock_reference(thing: object) -> bool:
    return type(thing) is weakref.ref and type(weakref.ref.__call__(thing)) is _thread.LockType


def _is_method_of(view: HeapView, thing: object, in_hand: npt.NDArray[np.bool_]) -> bool:
    if type(thing) is not types.MethodType:
        return False
    vertex = view.index.vertex_of(id(thing.__self__))
    return vertex >= 0 and bool(view.leaked[vertex] or in_hand[vertex]) and view.is_reached(vertex)


def _is_for_leaked_class(view: HeapView, thing: object) -> bool:
    """Return whether *thing* is a weak reference to a leaked class, or the dict in which its base has that one."""
    if type(thing) is dict and thing:
        key, thing = next(iter(thing.items()))
        if type(thing) is weakref.ref and id(weakref.ref.__call__(thing)) != key:
            return False
    referent = weakref.ref.__call__(thing) if type(thing) is weakref.ref else None
    if referent is None or not is_kind_of(referent, type):
        return False
    # The class itself may be held from C only: then that is told of the class, not of the reference to it.
    vertex = view.index.vertex_of(id(referent))
    return vertex >= 0 and bool(view.leaked[vertex])


def _is_memory_of_leaked(view: HeapView, thing: object) -> bool:
    kind: Any = loaded_type("torch", "UntypedStorage")
    if kind is None or type(thing) is not kind:
        return False
    storage = view.storages.by_key.get(thing._cdata)  # type: ignore[attr-defined]  # noqa: SLF001 - the storage's identity has no public name
    users = [] if storage is None else storage.users
    return any(view.leaked[user] and view.is_reached(user) for user in users)


_MAX_SAMPLED = 8
"""So many entries of a collection are named, to see whether its keys are few and meant, or many and made up."""
_MAX_NAMED = 400
"""So many attributes of one object are named."""
_MANY_NAMES = 3
"""More keys than this, or more names that differ in a number only, are positions in a collection."""
_NOWHERE = -1
MODULES = "sys.modules"
_MODULE, _ANY_MODULE = f"{MODULES}[", f"{MODULES}[*]"
"""The holder of a module that is what leaks itself."""
_COLLECTED = ("key", "index", "element")


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
        hangs_on: For each of *members* the entry that it hangs on.
        holders: All holders of *entries*: places that differ in a position or a number only are alike.
    """

    holder: int
    entries: list[int]
    members: list[int] = field(default_factory=list)
    crossing: Reference | None = None
    fingerprint: str = ""
    hangs_on: list[int] = field(default_factory=list)
    holders: set[int] = field(default_factory=set)

    def kept(self, view: HeapView, n_runs: int, vertices: Iterable[int] | None = None) -> tuple[int, ...]:
        """Return how many of *vertices* (default: all members) each run left, shape ``(n_runs,)``."""
        chosen = np.fromiter(self.members if vertices is None else vertices, np.int64)
        chosen = chosen[view.blamed_run[chosen] != BASELINE]
        return tuple(np.bincount(view.blamed_run[chosen], minlength=n_runs).tolist())

    def newest(self, view: HeapView) -> list[int]:
        """Return what the last of the runs that left something left here."""
        last = max(int(view.blamed_run[member]) for member in self.members)
        return [member for member in self.members if view.blamed_run[member] == last]

    def part(self, view: HeapView, parents: Collection[int]) -> Group:
        """Return the part of this group that the containers *parents* hold."""
        entries = [entry for entry in self.entries if int(view.tree.parent[entry]) in parents]
        chosen = set(entries)
        inside = [(member, entry) for member, entry in zip(self.members, self.hangs_on, strict=True) if entry in chosen]
        newest = max(entries, key=lambda entry: (int(view.blamed_run[entry]), entry))
        parent = int(view.tree.parent[newest])
        holder = _owner(view, parent, newest)
        crossing = self.crossing if holder == self.holder else _crossing(view, parent, holder, newest)
        holders = {holder} if len(parents) == 1 else {_owner(view, each, newest) for each in parents}
        return Group(
            holder, entries, [member for member, _ in inside], crossing, self.fingerprint,
            [entry for _, entry in inside], holders,
        )  # fmt: skip

    @staticmethod
    def union(parts: Sequence[Group]) -> Group:
        """Return *parts* of one holder as one group, called like the last of them."""
        return replace(
            parts[-1],
            entries=[entry for part in parts for entry in part.entries],
            members=[member for part in parts for member in part.members],
            hangs_on=[entry for part in parts for entry in part.hangs_on],
            holders=set().union(*(part.holders for part in parts)),
        )


def group_survivors(view: HeapView) -> tuple[list[Group], list[int]]:
    """Group what earlier runs left by the reference that keeps it.

    Returns:
        The groups, and the vertices that no root reaches, without known parts of those in the groups.
    """
    leaked = np.flatnonzero(view.leaked)
    reached = leaked[view.tree.root_of[leaked] >= 0]
    entry_of = entries_of(view, reached)
    groups = _by_place(view, sorted(set(entry_of.values())))
    by_entry = {entry: group for group in groups for entry in group.entries}
    for vertex, entry in entry_of.items():
        by_entry[entry].members.append(vertex)
        by_entry[entry].hangs_on.append(entry)
    return groups, without_unseen_parts(view, leaked[view.tree.root_of[leaked] < 0].tolist())


def _by_place(view: HeapView, entries: list[int]) -> list[Group]:
    """Group entries by their holder's path and by how it refers to them."""
    by_holder: dict[int, list[int]] = defaultdict(list)
    for entry in entries:
        by_holder[int(view.tree.parent[entry])].append(entry)
    groups: dict[str, Group] = {}
    newest: dict[str, int] = {}
    prints: dict[tuple[str, ...], str] = {}
    for parent, held in by_holder.items():
        holder = _owner(view, parent, held[-1])
        for entry, reference, stable in _crossings(view, parent, holder, held):
            place = (stable,) if stable == _ANY_MODULE else (*_stable_path(view, holder, entry), stable)
            if thread := _thread_of(view, entry):  # whatever a thread's functions hold ends with the thread
                place = (thread,)
            if place not in prints:
                prints[place] = fingerprint(place)
            group = groups.setdefault(prints[place], Group(holder, [], fingerprint=prints[place]))
            group.entries.append(entry)
            group.holders.add(holder)
            if view.blamed_run[entry] >= newest.get(group.fingerprint, BASELINE):
                newest[group.fingerprint] = int(view.blamed_run[entry])
                group.holder, group.crossing = holder, reference
    return list(groups.values())


def _owner(view: HeapView, parent: int, entry: int) -> int:
    """Return what a reader would call the holder of *entry*: *parent*, or what *parent* is only an inner part of.

    The dict of an instance is one (whether there is one depends on who has looked at it), and that of a cache.
    """
    before = int(view.tree.parent[parent]) if parent >= 0 else _NOWHERE
    if before < 0:
        return parent
    expression = view.describe(parent).expressions[-1]
    if expression is not None and not expression.endswith(".__dict__"):
        return parent
    hops = fold([view.objects[vertex] for vertex in (before, parent, entry)], view.name)
    return before if len(hops) == 1 else parent


def _crossings(view: HeapView, parent: int, holder: int, held: list[int]) -> Iterator[tuple[int, Reference, str]]:
    """Yield each of *held* with the reference to it and with what the fingerprint calls that reference.

    Only the newest are named: it takes one look through the holder for each. The others are called like the newest.
    """
    newest_first = sorted(held, key=lambda entry: (-view.blamed_run[entry], -entry))
    if holder < 0:
        named = {entry: _variable(view, entry) for entry in held}
    else:
        named = {newest_first[0]: _crossing(view, parent, holder, newest_first[0])}
        n_named = _MAX_SAMPLED if named[newest_first[0]].kind in _COLLECTED else _MAX_NAMED
        named |= {entry: _crossing(view, parent, holder, entry) for entry in newest_first[1:n_named]}
    stable = _stable_names(named, is_collection=holder >= 0)
    of_values = [reference for reference in named.values() if not _is_key_of_dict(reference)]
    for entry in held:
        reference = named.get(entry, named[newest_first[0]])
        if of_values and _is_key_of_dict(reference):
            reference = of_values[0]  # keys and values of one dict come and go together
        yield entry, reference, stable[reference.stable]


def _is_key_of_dict(reference: Reference) -> bool:
    return reference.kind == "key" and reference.text.startswith("key ")


def _crossing(view: HeapView, parent: int, holder: int, entry: int) -> Reference:
    vertices = [holder, entry] if parent == holder else [holder, parent, entry]
    hops = fold([view.objects[vertex] for vertex in vertices], view.name)
    return hops[-1].reference


def _stable_names(named: dict[int, Reference], *, is_collection: bool) -> dict[str, str]:
    """Return what a fingerprint calls each of the references: one name for all where names are made up by the dozen."""
    kinds = {reference.stable: reference.kind for reference in named.values()}
    numbered = Counter(re.sub(r"\d+", "#", name) for name in kinds)
    keys = [name for name, kind in kinds.items() if kind in _COLLECTED]
    n_modules = sum(name.startswith(_MODULE) for name in kinds)
    stable: dict[str, str] = {}
    for name, kind in kinds.items():
        without_digits = re.sub(r"\d+", "#", name)
        stable[name] = without_digits if numbered[without_digits] > _MANY_NAMES else name
        if is_collection and kind in _COLLECTED and len(keys) > _MANY_NAMES:
            stable[name] = "[*]"
        if name.startswith(_MODULE) and n_modules > _MANY_NAMES:
            stable[name] = _ANY_MODULE
    return stable


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


def n_places(view: HeapView, group: Group) -> int:
    """Return how many places are told as one: threads, or holders."""
    threads = {_thread_of(view, entry) for entry in group.entries} - {""} if group.holder >= 0 else set()
    return len(threads) or max(len(group.holders), 1)


def holder_of(view: HeapView, group: Group) -> str:
    """Return what a person calls the holder of *group*."""
    if group.holder >= 0:
        return view.describe(group.holder).name
    begins = {view.starts[view.tree.root_of[entry]].words for entry in group.entries if view.tree.root_of[entry] >= 0}
    return MODULES if begins and all(words.startswith("module ") for words in begins) else "globals()"


def orphan_holder(path: RootPath) -> str:
    """Return words for a cycle that keeps itself: its first object, and the references around it; or for a suspect."""
    if registry_on(path):
        return path.root
    if path.root == UNSEEN_ROOT or not path.steps:
        top = "".join(f"s top, {_top_words(step)}" for step in path.steps[:1])
        return f"C code (no Python object refers to it{top})"
    references = (step.reference for step in path.steps[1:])
    hops = (one if one.startswith((".", "[")) else f" -> {one}" for one in references)
    return "".join((path.steps[0].kind, *hops))


def is_told_apart(path: RootPath) -> bool:
    """Return whether the fingerprint of what *path* leads to has its holder in it.

    Where no object of Python holds it, the fingerprint says no more than what leaks: a file descriptor, native memory,
    lists that C code refers to.
    """
    return path.root != UNSEEN_ROOT and registry_on(path) is None


def _top_words(step: Step) -> str:
    """Return ``an Offloader``, ``the method Offloader.pack``."""
    return f"the {step.kind} {step.summary}" if step.summary else with_article(step.kind)


def newest_leaked(view: HeapView, vertices: Sequence[int]) -> int:
    """Return the survivor with the shortest path among those born last: the easiest one to follow."""
    latest = max(int(view.blamed_run[vertex]) for vertex in vertices)
    return min((v for v in vertices if view.blamed_run[v] == latest), key=lambda v: (int(view.tree.cost[v]), v))


@dataclass(frozen=True, slots=True)
class LeakAddress:
    """The place of one leak.

    Attributes:
        fingerprint: The leak's.
        chain: Addresses from the first object of its path to what grows (or to its newest entry), that one last. Empty
            where no root reaches it.
        variable: The user's variable that the path begins with; empty if it begins elsewhere.
        grows: Whether the last object grows itself; otherwise the one before it has got the last as an entry.
    """

    fingerprint: str
    chain: tuple[int, ...]
    variable: str
    grows: bool


def address_of_growth(view: HeapView, fingerprint: str, vertex: int, *below: object) -> LeakAddress:
    """Return the place of something that grows: *vertex*, or the last of *below*, which it leads to."""
    chain, variable = _way_to(view, vertex)
    return LeakAddress(fingerprint, (*chain, *map(id, below)), variable, grows=True)


def address_of_group(view: HeapView, group: Group, fingerprint: str) -> LeakAddress:
    """Return the place that took the newest entry of *group*."""
    reached = [entry for entry in group.entries if view.tree.root_of[entry] >= 0]
    if not reached:
        return LeakAddress(fingerprint, (), "", grows=False)
    newest = max(reached, key=lambda entry: (int(view.blamed_run[entry]), -int(view.tree.cost[entry])))
    chain, variable = _way_to(view, newest)
    return LeakAddress(fingerprint, chain, variable, grows=False)


def _way_to(view: HeapView, vertex: int) -> tuple[tuple[int, ...], str]:
    if vertex == view.namespace:
        return (int(view.index.ids[vertex]),), ""
    vertices = view.path(vertex)
    start = view.starts[view.tree.root_of[vertex]]
    addresses = tuple(int(view.index.ids[v]) for v in vertices)
    if start.expression.startswith(_MODULE):
        addresses = (id(sys.modules), *addresses)
    return addresses, _variable_name(start.expression) if start.is_variable else ""


def _variable_name(expression: str) -> str:
    return expression if expression.isidentifier() else ""

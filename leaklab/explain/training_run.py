"""Describe what of a training run is alive: models, optimizers, tensors, by the place that keeps them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np

from leaklab.explain.cycles.cycles import Orphans, group_orphans
from leaklab.explain.idioms import find_cause
from leaklab.explain.idioms.advice import with_line
from leaklab.explain.leaks.evidence import Evidence, evidence_of_group, evidence_of_orphans
from leaklab.explain.leaks.groups import Group, group_survivors, newest_leaked
from leaklab.explain.leaks.ownership import is_library_matter, is_users_kind
from leaklab.explain.leaks.sizes import GroupSizer, GroupSummary
from leaklab.heap.source_lines import find_line
from leaklab.heap.view import HeapView
from leaklab.model.process import Survivor
from leaklab.runtime.objects import has_base, loaded_type, type_name

SMALL_BYTES = 64 * 1024
"""Places without a model, an optimizer or a tensor, and with less than this, are not listed."""
MAX_PLACES = 20


def training_survivors(view: HeapView, new_modules: Iterable[str] = ()) -> tuple[Survivor, ...]:
    """Return the places that keep something of what *view* calls leaked, largest first.

    What *new_modules*, the modules that the run imported, consist of is not listed.
    """
    groups, orphans = group_survivors(view)
    sizer = GroupSizer(view)
    imported = frozenset(f"module {name!r}" for name in new_modules)
    wanted = (g for g in groups if not _is_librarys(view, g) and not _is_imported(view, g, imported))
    found = [_held(view, sizer, group) for group in wanted]
    cycles = (c for c in group_orphans(view, orphans) if not (imported and _is_of_imports(view, c.members)))
    found += [_unheld(view, sizer, cycle) for cycle in cycles]
    shown = [s for s in found if s.models or s.n_optimizers or s.n_tensors or s.n_bytes >= SMALL_BYTES]
    return tuple(sorted(shown, key=lambda s: (-s.n_bytes, s.holder, s.what))[:MAX_PLACES])


def training_survivor_bytes(view: HeapView) -> tuple[int, int]:
    """Return how many tensors are leaked, and the bytes of their storages without those of others."""
    tensors = [vertex for vertex in view.tensors if view.leaked[vertex] and vertex < view.n_heap]
    return len(tensors), GroupSizer(view).storages_of(tensors)


def _is_librarys(view: HeapView, group: Group) -> bool:
    """Return whether *group* is what a library made for itself: the first optimizer imports 117,000 objects."""
    if _has_models(view, group.members):
        return False
    return is_library_matter(view, group.entries[0], group.members)


def _is_imported(view: HeapView, group: Group, imported: Collection[str]) -> bool:
    """Return whether *group* is what importing a module made, and no cache that the run has filled since.

    The first step of an optimizer imports hundreds of modules, with classes and code of their own.
    """
    root = int(view.tree.root_of[group.entries[0]])
    if root < 0 or view.starts[root].words not in imported or _has_models(view, group.members):
        return False
    return view.starts[root].is_library or not bool(view.is_tensor[np.asarray(group.members, np.int64)].any())


def _is_of_imports(view: HeapView, members: Sequence[int]) -> bool:
    """Return whether *members*, which C code holds, may come of the imports: lists of subclasses, registered functions.

    Tensors, models and instances of the user's classes do not.
    """
    kinds = {int(view.kinds[member]): type(view.objects[member]) for member in members}
    return not (
        _has_models(view, members)
        or view.is_tensor[np.asarray(members, np.int64)].any()
        or any(map(is_users_kind, kinds.values()))
    )


def _has_models(view: HeapView, members: Sequence[int]) -> bool:
    kinds = (loaded_type("torch.nn", "Module"), loaded_type("torch.optim", "Optimizer"))
    return any(_of_type(view, members, kind) for kind in kinds)


def _held(view: HeapView, sizer: GroupSizer, group: Group) -> Survivor:
    summary = sizer.count(group.members, group.entries)
    # Of what one place keeps, its own entry is what a reader looks for: `runs['A']`, not a weight deep inside.
    sample = newest_leaked(view, group.entries)
    evidence = evidence_of_group(view, group, summary, sample)
    if group.holder < 0:  # a variable is the survivor itself
        described = view.describe(sample)
        evidence = replace(evidence, holder=described.code or described.name, holder_name=described.name)
    return _survivor(view, summary, group.members, evidence)


def _unheld(view: HeapView, sizer: GroupSizer, orphans: Orphans) -> Survivor:
    summary = sizer.count(orphans.members, [])
    return _survivor(view, summary, orphans.members, evidence_of_orphans(view, orphans, summary, gc_is_off=False))


def _survivor(view: HeapView, summary: GroupSummary, members: Sequence[int], evidence: Evidence) -> Survivor:
    cause, line = find_cause(evidence), find_line(evidence.holder)
    return Survivor(
        what=summary.what,
        models=_models(view, members),
        n_optimizers=len(_of_type(view, members, loaded_type("torch.optim", "Optimizer"))),
        n_tensors=int(np.count_nonzero(view.is_tensor[np.asarray(members, np.int64)])),
        n_objects=len(members),
        n_bytes=summary.n_bytes,
        holder=evidence.shown_holder,
        path=evidence.path,
        cause=cause.slug,
        advice=cause.advice if line is None else with_line(cause.advice, line.place),
    )


def _models(view: HeapView, members: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """Return the modules among *members* that are part of no other, by the name of their type."""
    modules = _of_type(view, members, loaded_type("torch.nn", "Module"))
    inner: set[int] = set()
    for module in modules:  # a module refers to its parts through its attributes' dict and the dict of modules
        for vertex in _below(view, module, depth=3):
            if vertex != module:
                inner.add(vertex)
    names = Counter(type_name(type(view.objects[vertex])) for vertex in modules if vertex not in inner)
    return tuple(sorted(names.items()))


def _below(view: HeapView, vertex: int, depth: int) -> Iterable[int]:
    seen, layer = {vertex}, {vertex}
    for _ in range(depth):
        layer = {
            after
            for before in layer
            if before == vertex or has_base(type(view.objects[before]), dict)
            for after in view.index.referents(before).tolist()
        } - seen
        seen |= layer
    return seen


def _of_type(view: HeapView, members: Sequence[int], base: type | None) -> list[int]:
    if base is None:
        return []
    kinds = {int(view.kinds[v]): has_base(type(view.objects[v]), base) for v in members}
    return [vertex for vertex in members if kinds[int(view.kinds[vertex])]]

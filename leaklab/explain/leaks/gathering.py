"""Gather the evidence on a group of survivors: what the rules for causes look at."""

from __future__ import annotations

from leaklab.explain.cycles.cycles import Orphans
from leaklab.explain.leaks.evidence import Evidence
from leaklab.explain.leaks.facts import facts_of
from leaklab.explain.leaks.groups import Group
from leaklab.explain.leaks.holders import holder_of, orphan_holder
from leaklab.explain.leaks.tallies import Tally, has_optimizer
from leaklab.explain.view import HeapView
from leaklab.objects import is_tensor, type_name


def evidence_of_group(view: HeapView, group: Group, tally: Tally, sample: int) -> Evidence:
    """Gather what is known of *group*, whose path is the one to *sample*."""
    holder, holder_kind = holder_of(view, group)
    return Evidence(
        path=view.describe(sample).path,
        holder=holder,
        holder_kind=holder_kind,
        crossing=group.crossing,
        entry_kinds=frozenset(type_name(type(view.objects[entry])) for entry in group.entries),
        kinds=tally.kinds,
        what=tally.what,
        unit="objects",
        has_tensors=bool(tally.headline) and is_tensor(view.objects[tally.headline[0]]),
        has_graph=tally.has_graph or any(view.in_graph[entry] for entry in group.entries),
        has_optimizer=has_optimizer(view, group.members),
        is_history=view.starts[view.tree.root_of[sample]].is_history,
        facts=facts_of(view, view.describe(sample), group.members, group.entries, sample=sample, holder=holder),
    )


def evidence_of_orphans(view: HeapView, orphans: Orphans, tally: Tally, *, gc_is_off: bool) -> Evidence:
    """Gather what is known of survivors that no root reaches."""
    return Evidence(
        path=orphans.path,
        holder=orphan_holder(orphans.path),
        holder_kind="",
        crossing=None,
        entry_kinds=frozenset(),
        kinds=tally.kinds,
        what=tally.what,
        unit="objects",
        has_tensors=is_tensor(view.objects[tally.headline[0]]),
        has_graph=tally.has_graph,
        in_cycle=bool(orphans.cycle),
        stage=orphans.stage,
        cut=orphans.cut,
        cycle_is_hidden=orphans.crosses_hidden,
        gc_is_off=gc_is_off,
        facts=facts_of(view, None, orphans.members),
    )

"""Turn what grows into explained leaks: ask the heap who holds it, and the rules whether each place leaks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from leaklab.check.growing_places import MAX_ROWS, grown_graph, grown_places
from leaklab.check.judging import Judgement
from leaklab.check.native import GRAPH_CAUSES, NativeShares, explain_native
from leaklab.check.ranking import LIBRARY_BYTES, drop_covered_bounds, drop_noise, is_worth_showing, library_note, ranked
from leaklab.check.survivor_rows import join_groups, kept_tensors, object_rows, only_replaces, tensor_rows
from leaklab.collect.measurement import Measurement
from leaklab.decide import Growth, judge_survivors
from leaklab.decide.checkpoint_levels import judge_slowdown
from leaklab.explain.all_holders import RetainedBytes
from leaklab.explain.causes import find_cause, with_effect
from leaklab.explain.cycles import Orphans, group_orphans
from leaklab.explain.evidence import Evidence, evidence_of_group, evidence_of_orphans, with_reasons
from leaklab.explain.group_sizes import GroupSizer, GroupSummary
from leaklab.explain.groups import Group, LeakAddress, address_of_group, group_survivors, newest_leaked
from leaklab.explain.limits import known_limit
from leaklab.explain.ownership import are_library_weakrefs, is_library_matter
from leaklab.heap.view import Births, HeapView, borrow_heap
from leaklab.model import ContainerGrowth, Leak, ObjectGrowth, Outcome, Settings, TensorGrowth
from leaklab.model.check import NativeParts
from leaklab.runtime.gc_control import collect_quietly
from leaklab.text import format_bytes


@dataclass(frozen=True, slots=True)
class Explained:
    """Everything that the heap told about what grows."""

    leaks: tuple[Leak, ...] = ()
    bounded: tuple[Leak, ...] = ()
    objects: tuple[ObjectGrowth, ...] = ()
    tensors: tuple[TensorGrowth, ...] = ()
    containers: tuple[ContainerGrowth, ...] = ()
    notes: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    n_aside: int = 0
    kept: tuple[int, ...] = ()
    tensors_kept: tuple[int, ...] = ()
    tensor_bytes_kept: tuple[int, ...] = ()
    spots: tuple[LeakAddress, ...] = ()
    native_bytes: float = 0.0  # what malloc hands out per run for the leaks that Python explains


def explain_nothing(measurement: Measurement) -> Explained:
    """Return the explanation of a check that found no growth."""
    none = (0,) * measurement.n_runs
    return Explained(kept=measurement.cohorts.sizes(), tensors_kept=none, tensor_bytes_kept=none)


def explain_growth(
    measurement: Measurement, judgement: Judgement, namespace: dict[str, Any] | None, settings: Settings
) -> Explained:
    """Look for the holders of everything that grows.

    Args:
        measurement: What was counted; no phase is open.
        judgement: What the rules said of it.
        namespace: The user's variables.
        settings: Whether summaries may be shown.
    """
    addresses, _kinds, runs = measurement.cohorts.members()
    births = Births(addresses, runs, measurement.n_runs)
    own = (measurement, judgement)
    with borrow_heap(births, namespace, own, heap=measurement.heap(), summaries=settings.summaries) as view:
        explained = _Explanation(view, measurement, judgement).explain()
    freed = _verify_garbage(measurement, explained)
    return replace(explained, notes=(*explained.notes, *freed)) if freed else explained


class _Explanation:
    """One pass over the view."""

    def __init__(self, view: HeapView, measurement: Measurement, judgement: Judgement) -> None:
        self._view = view
        self._measurement = measurement
        self._judgement = judgement
        self._n_runs = measurement.n_runs
        self._tallier = GroupSizer(view)
        self._retained = RetainedBytes(view)
        self._shares = NativeShares(self._tallier, measurement)
        self._leaks: list[Leak] = []
        self._bounded: list[Leak] = []
        self._open: list[str] = []
        self._asides: list[str] = []
        self._bounded_bytes = 0.0
        self._rows: list[ContainerGrowth] = []
        self._spots: list[LeakAddress] = []

    def explain(self) -> Explained:
        """Explain survivors, then what grows in place, then what is left."""
        groups, orphans = group_survivors(self._view)
        for group in join_groups(self._view, groups, self._n_runs):
            self._take(*self._survivors(group))
        for cycle in group_orphans(self._view, orphans):
            self._take(*self._orphans(cycle))
        for grown in grown_places(self._view, self._judgement):
            if grown.row is not None:
                self._rows.append(grown.row)
            self._spots.append(grown.spot)
            self._retained.note_growth(grown.leak, grown.spot)
            self._take(grown.leak, grown.growth)
        self._remade()
        self._explain_graph()
        native_bytes = self._explain_native()
        self._leaks, remarks = drop_noise(self._leaks)
        self._asides += remarks
        first, last = self._measurement.checkpoints[0], self._measurement.checkpoints[-1]
        slower = judge_slowdown(self._measurement.meters.seconds(self._n_runs))
        tensors_kept, tensor_bytes_kept = kept_tensors(self._view, self._tallier, self._n_runs)
        return Explained(
            leaks=ranked([with_effect(self._retained.with_retained_bytes(leak), slower) for leak in self._leaks]),
            bounded=drop_covered_bounds(self._bounded, self._leaks),
            objects=object_rows(self._view, self._tallier, self._n_runs, first, last),
            tensors=tensor_rows(self._view, self._n_runs),
            containers=tuple(self._rows[:MAX_ROWS]),
            notes=(*self._view.notes, *self._retained.notes, *self._asides),
            open_questions=tuple(self._open),
            n_aside=len(self._asides),
            kept=self._measurement.cohorts.sizes(),
            tensors_kept=tensors_kept,
            tensor_bytes_kept=tensor_bytes_kept,
            spots=tuple(self._spots),
            native_bytes=native_bytes,
        )

    def _take(self, leak: Leak, growth: Growth) -> None:
        """File *leak* by what the rules say of it."""
        if growth.outcome is Outcome.LEAK:
            self._leaks.append(leak)
        elif growth.outcome is Outcome.BOUNDED and is_worth_showing(leak, growth.rate):
            self._bounded.append(leak)
        elif growth.outcome is Outcome.INCONCLUSIVE and is_worth_showing(leak, growth.rate):
            self._open.append(f"{leak.what} in {leak.holder}: {growth.reason}")

    def _survivors(self, group: Group) -> tuple[Leak, Growth]:
        """Describe the survivors that one place holds, and judge the place by its limits too."""
        summary = self._tallier.count(group.members, group.entries)
        growth, count_per_run = self._judge(group, summary)
        leak, sample = self._place(self._view, group, summary, growth, count_per_run)
        self._shares.note(
            leak.fingerprint, group.members, group.entries, count_per_run / max(len(summary.main_objects), 1)
        )
        if growth.outcome in (Outcome.LEAK, Outcome.INCONCLUSIVE):
            growth = self._limited(leak, sample, growth)
        if growth.outcome in (Outcome.LEAK, Outcome.INCONCLUSIVE) and only_replaces(
            self._view, group, self._measurement
        ):
            reason = f"{leak.holder} is always as long: what is new replaces what was there"
            growth = Growth(Outcome.BOUNDED, 0.0, reason)
        is_small = growth.outcome is Outcome.LEAK and leak.bytes_per_run < LIBRARY_BYTES
        if is_small and (
            is_library_matter(self._view, sample, group.members) or are_library_weakrefs(self._view, group)
        ):
            self._asides.append(library_note(leak))
            growth = Growth(Outcome.CLEAN, 0.0, growth.reason)
        if growth.outcome is Outcome.LEAK and (hold := self._retained.hold(group, summary.main_objects)):
            leak = replace(leak, holders=hold.holders, retained_bytes=hold.retained_bytes)
        return replace(leak, reason=growth.reason), growth

    def _limited(self, leak: Leak, sample: int, growth: Growth) -> Growth:
        """Return BOUNDED where a holder on the path to *sample* limits itself in time, else *growth*."""
        view = self._view
        limit = known_limit(view.objects[vertex] for vertex in view.path(sample) if not view.leaked[vertex])
        if limit is None:
            return growth
        if limit.is_far(leak.bytes_per_run):
            full = format_bytes(limit.entries * leak.bytes_per_run)
            return replace(
                growth, reason=f"{growth.reason}; its holder, {limit.words}, would keep {full} when it is full"
            )
        self._bounded_bytes += leak.bytes_per_run
        reason = limit.reason(leak.count_per_run, leak.bytes_per_run)
        return Growth(Outcome.BOUNDED, 0.0, reason)

    def _remade(self) -> None:
        """Add what there is more and more of although all of it is new: somebody makes it anew in every run."""
        for kind, growth in self._judgement.remade.items():
            newest = (self._view.birth_run == self._n_runs - 1) & (self._view.kinds == kind) & ~self._view.leaked
            view = replace(self._view, leaked=newest, blamed_run=self._view.birth_run, _described={})
            groups, _orphans = group_survivors(view)
            group = max(groups, key=lambda group: len(group.members), default=None)
            if group is None or len(group.members) < growth.rate * self._n_runs / 2:
                continue
            summary = self._tallier.count(group.members, group.entries)
            leak, _sample = self._place(view, group, summary, growth, growth.rate)
            reason = f"there are more and more, all of them made anew in every run: {growth.reason}"
            self._take(replace(leak, kept=(), reason=reason), growth)

    def _place(
        self, view: HeapView, group: Group, summary: GroupSummary, growth: Growth, count_per_run: float
    ) -> tuple[Leak, int]:
        """Describe the objects of *group*; the second value is the one that the path leads to."""
        sample = newest_leaked(view, summary.main_objects)
        evidence = evidence_of_group(view, group, summary, sample)
        kept = group.kept(view, self._n_runs, summary.main_objects)
        leak = self._leak(evidence, summary, place=group.fingerprint, kept=kept, growth=growth, per_run=count_per_run)
        leak = replace(leak, path=with_reasons(view, sample, view.describe(sample), self._n_runs))
        self._spots.append(address_of_group(view, group, group.fingerprint))
        return leak, sample

    def _orphans(self, orphans: Orphans) -> tuple[Leak, Growth]:
        """Describe survivors that no root reaches."""
        view, summary = self._view, self._tallier.count(orphans.members, [])
        group = Group(-1, [], orphans.members)
        growth, count_per_run = self._judge(group, summary)
        evidence = evidence_of_orphans(view, orphans, summary, gc_is_off=not self._measurement.collects)
        kept = group.kept(view, self._n_runs, summary.main_objects)
        leak = self._leak(evidence, summary, place=orphans.fingerprint, kept=kept, growth=growth, per_run=count_per_run)
        self._shares.note(leak.fingerprint, orphans.members, [], count_per_run / max(len(summary.main_objects), 1))
        if growth.outcome is Outcome.LEAK:
            leak = replace(leak, retained_bytes=self._retained.of_orphans(orphans.members))
        return leak, growth

    def _judge(self, group: Group, summary: GroupSummary) -> tuple[Growth, float]:
        """Judge a group by what matters most in it first, then by all of it; the second value is objects per run."""
        series = [
            group.kept(self._view, self._n_runs, chosen) for chosen in (summary.main_objects, group.entries, None)
        ]
        growths = [judge_survivors(kept) for kept in series]
        rank = [Outcome.LEAK, Outcome.INCONCLUSIVE, Outcome.BOUNDED, Outcome.CLEAN]
        growth = min(growths, key=lambda growth: rank.index(growth.outcome))
        settled = series[0][1:-1] or (0,)
        return growth, growths[0].rate or sum(settled) / len(settled)

    @staticmethod
    def _leak(
        evidence: Evidence, summary: GroupSummary, *, place: str, kept: tuple[int, ...], growth: Growth, per_run: float
    ) -> Leak:
        cause = find_cause(evidence)
        per_object = summary.n_bytes / max(len(summary.main_objects), 1)
        others = tuple((name, count / max(len(summary.main_objects), 1) * per_run) for name, count in summary.others)
        return Leak(
            what=summary.what,
            path=evidence.path,
            holder=evidence.holder,
            cause=cause.slug,
            advice=cause.advice,
            bytes_per_run=per_object * per_run,
            count_per_run=per_run,
            unit=evidence.unit,
            kept=kept,
            fingerprint=place,
            reason=growth.reason,
            holders=(evidence.holder,) if evidence.holder else (),
            others=others,
        )

    def _explain_graph(self) -> None:
        """Add the graph that gets longer, unless what was found already carries it."""
        if any(leak.cause in GRAPH_CAUSES for leak in self._leaks):
            return
        grown = grown_graph(self._view, self._judgement)
        if grown is None:
            return
        self._spots.append(grown.spot)
        self._retained.note_growth(grown.leak, grown.spot)
        native = self._judgement.native
        # Nodes and what they save live in the native heap: what grows there without another explanation is the graph.
        is_native = native is not None and native.outcome is Outcome.LEAK
        rest = native.rate - self._native_parts().malloc_bytes if native is not None and is_native else 0.0
        self._leaks.append(replace(grown.leak, bytes_per_run=max(grown.leak.bytes_per_run, rest)))

    def _native_parts(self) -> NativeParts:
        return self._shares.of(self._leaks, self._bounded_bytes)

    def _explain_native(self) -> float:
        """Add what grows in native memory beyond what the leaks found explain; return what malloc gave for those."""
        if not any(
            growth is not None and growth.rate for growth in (self._judgement.native, self._judgement.accelerator)
        ):
            return 0.0
        parts = self._native_parts()
        found = explain_native(self._judgement, self._leaks, parts, n_unwalked=self._view.n_unwalked)
        self._leaks = list(found.leaks)
        self._asides += found.notes
        return parts.malloc_bytes


def _verify_garbage(measurement: Measurement, explained: Explained) -> tuple[str, ...]:
    """Where the collector is off, collect once and say how much of the leak that freed."""
    if measurement.collects or not any(leak.cause == "cycle-garbage" for leak in explained.leaks):
        return ()
    if not measurement.may_collect:
        return (
            "gc.unfreeze() and gc.collect() would free the garbage; they were not called, your objects stay frozen",
        )
    n_freed = collect_quietly()
    return (f"one gc.collect() after the last run freed {n_freed:,} objects: the leak is garbage waiting for it",)

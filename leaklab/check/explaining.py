"""Turn what grows into explained leaks: ask the heap who holds it, and the rules whether each place leaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from leaklab.check.consequences import LeakWithSurvivors, ended_with
from leaklab.check.container_lengths import (
    UNLIMITED,
    grown_inside,
    heard,
    join_chains,
    length_witness,
    split_by_container,
)
from leaklab.check.explained import Explained
from leaklab.check.garbage import verify_garbage
from leaklab.check.growing_places import MAX_ROWS, grown_graph, grown_places
from leaklab.check.judging import Judgement
from leaklab.check.memory_shares import explained_shares
from leaklab.check.native import GRAPH_CAUSES, NativeFinding, NativeShares, explain_native, keeps_step, swelling
from leaklab.check.process_leaks import Keeper, tell_counts
from leaklab.check.ranking import (
    LIBRARY_BYTES,
    apart_from_logs,
    drop_covered_bounds,
    drop_noise,
    is_asked_for,
    is_worth_showing,
    library_note,
    ranked,
)
from leaklab.check.sibling_places import sibling_pairs, told_as_one
from leaklab.check.survivor_rows import WORST_FIRST, join_groups, kept_tensors, object_rows, tensor_rows
from leaklab.collect.measurement import Measurement
from leaklab.decide import Growth, judge_backlog, judge_survivors
from leaklab.explain.all_holders import RetainedBytes
from leaklab.explain.causes import find_cause, with_effect
from leaklab.explain.cycles import ENTRY, Orphans, group_orphans
from leaklab.explain.evidence import Evidence, evidence_of_group, evidence_of_orphans, with_reasons
from leaklab.explain.group_sizes import GroupSizer, GroupSummary, has_opaque
from leaklab.explain.groups import Group, LeakAddress, address_of_group, group_survivors, n_places, newest_leaked
from leaklab.explain.limits import known_limit
from leaklab.explain.merged_paths import merged_ways
from leaklab.explain.ownership import (
    are_library_weakrefs,
    is_library_matter,
    lives_by_its_keys,
)
from leaklab.heap.borrow import borrow_heap
from leaklab.heap.view import Births, HeapView
from leaklab.model import ContainerGrowth, Leak, Outcome, RootPath, Settings
from leaklab.model.check import UNREAD_GRAPH, NativeParts
from leaklab.model.paths import CycleCertainty
from leaklab.runtime.addresses import Ints
from leaklab.text import format_bytes


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
    births = Births(addresses, runs, measurement.n_runs, measurement.graph_marks)
    own = (measurement, judgement)
    with borrow_heap(births, namespace, own, heap=measurement.heap(), summaries=settings.summaries) as view:
        explained = _explain(_Survey(view, measurement, judgement, GroupSizer(view), RetainedBytes(view)))
    freed = verify_garbage(measurement, explained.leaks)
    return replace(explained, notes=(*explained.notes, *freed)) if freed else explained


@dataclass(frozen=True, slots=True)
class _Survey:
    """What every step looks at, and what it counts and sizes with."""

    view: HeapView
    measurement: Measurement
    judgement: Judgement
    sizer: GroupSizer
    retained: RetainedBytes

    @property
    def n_runs(self) -> int:
        return self.measurement.n_runs


@dataclass(frozen=True, slots=True)
class _Finding:
    """One place where something grows.

    Attributes:
        leak: What a leak of it would say.
        growth: The judgement on it; CLEAN for what is left out.
        address: The place; None for what no root reaches.
        group: The survivors that it is made of; None for what grows in place and for what is made anew.
        share: So much of *group* every run leaves, as a part of its main objects.
        row: Its row in the table of containers, if it has one.
        aside: Why it is left out, in words; empty for everything else.
        limited_bytes: Bytes per run that go into a holder that limits itself.
        is_opaque: Whether what grows may have native memory that nobody tells.
        freed: What no root reaches any more once all holders let go; None where that was not asked.
        is_log: Whether it gains a few numbers in their order, and no more.
    """

    leak: Leak
    growth: Growth
    address: LeakAddress | None
    group: Group | None = None
    share: float = 0.0
    row: ContainerGrowth | None = None
    aside: str = ""
    limited_bytes: float = 0.0
    is_opaque: bool = False
    freed: Ints | None = None
    is_log: bool = False


def _explain(survey: _Survey) -> Explained:
    """Explain survivors, then what grows in place, then what is made anew, then the graph, then native memory."""
    view, measurement, judgement, n_runs = survey.view, survey.measurement, survey.judgement, survey.n_runs
    groups, orphans = group_survivors(view)
    joined = join_groups(view, groups, n_runs)
    apart = [part for group in joined for part in split_by_container(view, group, measurement)]
    survivors = _told_once(view, [_of_group(survey, group) for group in join_chains(view, apart, n_runs)])
    survivors += [_of_orphans(survey, cycle) for cycle in group_orphans(view, orphans)]
    in_place = [
        _Finding(g.leak, g.growth, g.address, None, 0.0, g.row, g.aside, is_opaque=g.is_opaque, is_log=g.is_log)
        for g in grown_places(view, judgement)
    ]
    before_graph = [*survivors, *in_place, *_remade(survey)]
    graph = _graph(survey, before_graph)
    findings = _with_counts(survey, [*before_graph, *graph])
    native, parts = _native(survey, findings)
    places = [LeakWithSurvivors(f.leak, f.group, f.freed) for f in findings if f.growth.outcome is Outcome.LEAK]
    lasting, logs = apart_from_logs(native.leaks, {finding.leak.fingerprint for finding in in_place if finding.is_log})
    leaks, remarks = drop_noise(lasting, ended_with(view, places))
    asides = [*(finding.aside for finding in findings if finding.aside), *native.notes, *remarks]
    weighed = _with_retained_bytes(survey, leaks, [*in_place, *graph])
    aside = [finding.leak for finding in findings if finding.aside or finding.growth.outcome is Outcome.INCONCLUSIVE]
    tensors_kept, tensor_bytes_kept = kept_tensors(view, survey.sizer, n_runs)
    return Explained(
        leaks=ranked(weighed),
        bounded=drop_covered_bounds([finding.leak for finding in _worth_showing(findings, Outcome.BOUNDED)], leaks),
        objects=object_rows(view, survey.sizer, judgement, measurement),
        tensors=tensor_rows(view, n_runs),
        containers=tuple(finding.row for finding in findings if finding.row is not None)[:MAX_ROWS],
        notes=(*view.notes, *survey.retained.notes, *asides),
        open_questions=tuple(
            f"{finding.leak.what} in {finding.leak.holder}: {finding.growth.reason}"
            for finding in _worth_showing(findings, Outcome.INCONCLUSIVE)
        ),
        suspects=ranked([f.leak for f in _worth_showing(findings, Outcome.INCONCLUSIVE) if f.leak.count_per_run > 0]),
        n_aside=len(asides),
        logs=logs,
        kept=measurement.cohorts.sizes(),
        tensors_kept=tensors_kept,
        tensor_bytes_kept=tensor_bytes_kept,
        addresses=tuple(finding.address for finding in findings if finding.address is not None),
        native_bytes=parts.malloc_bytes,
        shares=explained_shares(judgement, parts),
        charged=native.charged,
        noted=tuple(leak for leak in (*native.leaks, *aside) if leak not in leaks),
    )


def _told_once(view: HeapView, findings: list[_Finding]) -> list[_Finding]:
    """Return *findings* with the places that one call of a library fills together as one leak."""
    leaking = [finding for finding in findings if finding.growth.outcome is Outcome.LEAK]
    for one, two in sibling_pairs(view, [(finding.leak, finding.group) for finding in leaking]):
        named, other = leaking[one], leaking[two]
        groups = [group for group in (other.group, named.group) if group is not None]
        both = replace(named, leak=told_as_one(named.leak, other.leak), group=Group.union(groups))
        spoken_for = replace(other, growth=Growth(Outcome.CLEAN, 0.0, f"told with {named.leak.holder}"))
        findings = [both if found is named else spoken_for if found is other else found for found in findings]
    return findings


def _with_counts(survey: _Survey, findings: Sequence[_Finding]) -> list[_Finding]:
    """Tell file descriptors and child processes with the places that keep them, and the rest as findings of their own.

    What a library keeps in a small table of its own is a leak if it keeps those.
    """
    if not survey.judgement.counts:
        return list(findings)
    asked = [finding for finding in findings if finding.growth.outcome is Outcome.LEAK or finding.aside]
    keepers = [
        Keeper(
            finding.leak,
            [] if finding.group is None else finding.group.members,
            [] if finding.group is None else finding.group.newest(survey.view),
            finding.address,
            is_aside=bool(finding.aside),
        )
        for finding in asked
    ]
    told = tell_counts(survey.view, survey.measurement, survey.judgement, keepers)
    changed = {id(finding): leak for finding, leak in zip(asked, told.leaks, strict=True) if leak is not finding.leak}
    found = [
        finding
        if (leak := changed.get(id(finding))) is None
        else replace(finding, leak=leak, growth=Growth(Outcome.LEAK, leak.count_per_run, leak.reason), aside="")
        for finding in findings
    ]
    return [*found, *(_Finding(leak, growth, None) for leak, growth in told.own)]


def _leaks_of(findings: Sequence[_Finding]) -> list[Leak]:
    return [finding.leak for finding in findings if finding.growth.outcome is Outcome.LEAK]


def _worth_showing(findings: Sequence[_Finding], outcome: Outcome) -> Iterator[_Finding]:
    for finding in findings:
        if finding.growth.outcome is outcome and is_worth_showing(finding.leak, finding.growth.rate):
            yield finding


def _of_group(survey: _Survey, group: Group) -> _Finding:
    """Describe the survivors that one place holds, and judge the place by its limits too."""
    view, summary, judged = survey.view, *_counted(survey, group)
    witness, of_survivors = length_witness(view, group, summary.main_objects, survey.measurement), judged[0].outcome
    if witness is not None:
        judged = heard(witness, judged)
    leak, sample = _describe(view, survey.n_runs, group, summary, judged)
    finding = _finding(survey, leak, group, summary, judged)
    if finding.growth.outcome in UNLIMITED:
        finding = _limited(view, finding, sample)
    elif finding.growth.outcome is Outcome.BOUNDED:
        finding = replace(finding, limited_bytes=swelling(view, survey.sizer, group))
    if (
        of_survivors in UNLIMITED
        and finding.growth.outcome is Outcome.BOUNDED
        and (inside := grown_inside(view, group))
    ):
        return _of_group(replace(survey, view=inside[0]), inside[1])
    growth = finding.growth
    is_small = growth.outcome is Outcome.LEAK and leak.bytes_per_run < LIBRARY_BYTES and not is_asked_for(leak)
    if is_small and (is_library_matter(view, sample, group.members) or are_library_weakrefs(view, group)):
        growth = Growth(Outcome.CLEAN, 0.0, growth.reason)
        finding = replace(finding, growth=growth, aside=library_note(leak))
    if growth.outcome in UNLIMITED and lives_by_its_keys(view, group):
        growth = Growth(Outcome.CLEAN, 0.0, growth.reason)
        finding = replace(finding, growth=growth)
    if growth.outcome is Outcome.LEAK and (hold := survey.retained.hold(group, summary.main_objects)):
        leak = replace(leak, holders=hold.holders, retained_bytes=hold.retained_bytes)
        finding = replace(finding, freed=hold.freed)
    if growth.outcome is Outcome.LEAK:
        leak = replace(leak, ways=merged_ways(view, group, summary.main_objects))
    return replace(finding, leak=replace(leak, reason=growth.reason, n_places=n_places(view, group)))


def _limited(view: HeapView, finding: _Finding, sample: int) -> _Finding:
    """Return *finding* as BOUNDED where a holder on the path to *sample* limits itself in time, else as it was."""
    leak, growth = finding.leak, finding.growth
    limit = known_limit([view.objects[v] for v in takewhile(lambda v: not view.leaked[v], view.path(sample))])
    if limit is None:
        return finding
    # One object that matters for each entry, as Limit.reason takes it: a run may add several entries.
    bytes_per_entry = leak.bytes_per_run / (leak.count_per_run or 1.0)
    if limit.is_far(bytes_per_entry):
        full = format_bytes(limit.entries * bytes_per_entry)
        reason = f"{growth.reason}; its holder, {limit.words}, would keep {full} when it is full"
        return replace(finding, growth=replace(growth, reason=reason))
    bounded = Growth(Outcome.BOUNDED, 0.0, limit.reason(leak.count_per_run, leak.bytes_per_run))
    return replace(finding, growth=bounded, limited_bytes=leak.bytes_per_run)


def _of_orphans(survey: _Survey, orphans: Orphans) -> _Finding:
    """Describe survivors that no root reaches."""
    view, summary = survey.view, survey.sizer.count(orphans.members, [])
    group = Group(-1, [], orphans.members, fingerprint=orphans.fingerprint)
    judged = _judge(survey, group, summary)
    kept = group.kept(view, survey.n_runs, summary.main_objects)
    suspect = None
    if orphans.certainty is CycleCertainty.UNSEEN:
        things = (view.objects[member] for member in orphans.members)
        has_callables = any(callable(thing) or type(thing) is tuple for thing in things)
        suspect = survey.judgement.suspect(kept, has_callables=has_callables)
    if suspect is not None:
        entry = tuple(replace(step, reference=ENTRY) for step in orphans.path.steps if step.summary)
        orphans = replace(orphans, path=RootPath(suspect.registry.suspicion, entry))
        judged = replace(judged[0], reason=f"{judged[0].reason}; {suspect.words}"), judged[1]
    evidence = evidence_of_orphans(view, orphans, summary, gc_is_off=not survey.measurement.collects)
    leak = _leak(evidence, summary, fingerprint=group.fingerprint, kept=kept, judged=judged)
    if judged[0].outcome is Outcome.LEAK:
        leak = replace(leak, retained_bytes=survey.retained.of_orphans(orphans.members))
    if orphans.certainty is CycleCertainty.UNSEEN and suspect is None and summary.has_graph and view.n_unwalked:
        leak = replace(leak, holder=UNREAD_GRAPH, holders=(UNREAD_GRAPH,), retained_bytes=None)
    return _finding(survey, leak, group, summary, judged)


def _remade(survey: _Survey) -> Iterator[_Finding]:
    """Yield what there is more and more of although all of it is new: somebody makes it anew in every run."""
    for kind, growth in survey.judgement.remade.items():
        whole = survey.view
        newest = (whole.birth_run == survey.n_runs - 1) & (whole.kinds == kind) & ~whole.leaked
        view = replace(whole, leaked=newest, blamed_run=whole.birth_run, _described={})
        groups, _orphans = group_survivors(view)
        group = max(groups, key=lambda group: len(group.members), default=None)
        if group is None or len(group.members) < growth.rate * survey.n_runs / 2:
            continue
        summary = survey.sizer.count(group.members, group.entries)
        leak, _sample = _describe(view, survey.n_runs, group, summary, (growth, growth.rate))
        reason = f"there are more and more, all of them made anew in every run: {growth.reason}"
        yield _Finding(replace(leak, kept=(), reason=reason), growth, address_of_group(view, group, group.fingerprint))


_Judged = tuple[Growth, float]
"""The judgement on a group, and how many of its main objects every run leaves."""


def _judge(survey: _Survey, group: Group, summary: GroupSummary) -> _Judged:
    """Judge a group by what matters most in it first, then by all of it."""
    series = [group.kept(survey.view, survey.n_runs, chosen) for chosen in (summary.main_objects, group.entries, None)]
    growths = [judge_survivors(kept) for kept in series]
    growth = min(growths, key=lambda growth: WORST_FIRST.index(growth.outcome))
    if growth.outcome is Outcome.INCONCLUSIVE:
        levels = survey.measurement.meters.heap(survey.n_runs)
        backlog = None if levels is None else judge_backlog(series[0], levels, summary.n_bytes)
        if backlog is not None:
            return backlog, backlog.rate
    settled = series[0][1:-1] or (0,)
    return growth, growths[0].rate or sum(settled) / len(settled)


def _counted(survey: _Survey, group: Group) -> tuple[GroupSummary, _Judged]:
    """Count and judge a group; in a chain or a tree, whose holder refers to the newest link only, all links matter."""
    summary = survey.sizer.count(group.members, group.entries)
    judged = _judge(survey, group, summary)
    if judged[0].outcome is Outcome.LEAK and not _leaves(survey, group, summary):
        links = survey.sizer.count(group.members, group.entries, is_chain=True)
        if _leaves(survey, group, links):
            return links, _judge(survey, group, links)
    return summary, judged


def _leaves(survey: _Survey, group: Group, summary: GroupSummary) -> bool:
    """Return whether every run leaves main objects of *group*."""
    return judge_survivors(group.kept(survey.view, survey.n_runs, summary.main_objects)).outcome is Outcome.LEAK


def _describe(view: HeapView, n_runs: int, group: Group, summary: GroupSummary, judged: _Judged) -> tuple[Leak, int]:
    """Describe the objects of *group*; the second value is the one that the path leads to."""
    main_objects: Sequence[int] = summary.main_objects
    if len(group.holders) > 1:  # the path shall lead through the holder that is named
        main_objects = [v for v in main_objects if group.holder in view.path(v)] or main_objects
    sample = newest_leaked(view, main_objects)
    evidence = evidence_of_group(view, group, summary, sample)
    kept = group.kept(view, n_runs, summary.main_objects)
    leak = _leak(evidence, summary, fingerprint=group.fingerprint, kept=kept, judged=judged)
    return replace(leak, path=with_reasons(view, sample, view.describe(sample), n_runs)), sample


def _finding(survey: _Survey, leak: Leak, group: Group, summary: GroupSummary, judged: _Judged) -> _Finding:
    growth, per_run = judged
    address = address_of_group(survey.view, group, group.fingerprint) if group.entries else None
    return _Finding(leak, growth, address, group, per_run / max(len(summary.main_objects), 1))


def _leak(
    evidence: Evidence, summary: GroupSummary, *, fingerprint: str, kept: tuple[int, ...], judged: _Judged
) -> Leak:
    cause = find_cause(evidence)
    growth, per_run = judged
    n_main = max(len(summary.main_objects), 1)
    return Leak(
        what=summary.what,
        path=evidence.path,
        holder=evidence.shown_holder,
        cause=cause.slug,
        advice=cause.advice,
        also_causes=cause.also,
        bytes_per_run=summary.n_bytes / n_main * per_run,
        count_per_run=per_run,
        unit=evidence.unit,
        kept=kept,
        fingerprint=fingerprint,
        reason=growth.reason,
        holders=(evidence.shown_holder,) if evidence.shown_holder else (),
        others=tuple((name, count / n_main * per_run) for name, count in summary.others),
    )


def _graph(survey: _Survey, findings: Sequence[_Finding]) -> list[_Finding]:
    """Return the graph that gets longer; where *findings* carry graphs, one that none of them carries."""
    groups = [one.group for one in findings if one.growth.outcome is Outcome.LEAK and one.leak.cause in GRAPH_CAUSES]
    members = [member for group in groups if group is not None for member in group.members]
    grown = grown_graph(survey.view, survey.judgement, members, survey.measurement.graph_marks)
    if grown is None or None in groups:
        return []
    native, leak = survey.judgement.native, grown.leak
    if native is not None and native.outcome is Outcome.LEAK:
        # Nodes and what they save live in the native heap: what grows there without another explanation is the graph.
        unexplained = native.rate - _native_parts(survey, findings).malloc_bytes
        leak = replace(leak, bytes_per_run=max(leak.bytes_per_run, unexplained))
    return [_Finding(leak, grown.growth, grown.address)]


def _native_parts(survey: _Survey, findings: Sequence[_Finding]) -> NativeParts:
    """Add up what *findings* take of native memory, per run."""
    shares = NativeShares(survey.sizer, survey.measurement)
    for finding in findings:
        if finding.group is not None:
            shares.note(finding.leak.fingerprint, finding.group.members, finding.group.entries, finding.share)
    # What an undecided place takes is not held by nothing: whether memory leaks there is that place's question.
    undecided = (one.leak.bytes_per_run for one in findings if one.growth.outcome is Outcome.INCONCLUSIVE)
    return shares.of(_leaks_of(findings), sum(finding.limited_bytes for finding in findings) + sum(undecided))


def _native(survey: _Survey, findings: Sequence[_Finding]) -> tuple[NativeFinding, NativeParts]:
    """Add what grows in native memory beyond what the leaks found explain; also what those take of it per run."""
    judgement, leaks = survey.judgement, _leaks_of(findings)
    growths = (judgement.native, judgement.accelerator, judgement.creeping)
    if not any(growth is not None and growth.rate for growth in growths):
        return NativeFinding(tuple(leaks)), NativeParts()
    parts = _native_parts(survey, findings)
    levels = survey.measurement.meters.heap(survey.n_runs)
    opaque = frozenset(
        finding.leak.fingerprint
        for finding in findings
        if keeps_step(finding.leak, levels)
        and (
            finding.is_opaque
            or (finding.group and has_opaque([survey.view.objects[v] for v in finding.group.newest(survey.view)]))
        )
    )
    native = explain_native(judgement, leaks, parts, n_unwalked=survey.view.n_unwalked, opaque=opaque)
    return native, parts


def _with_retained_bytes(survey: _Survey, leaks: Sequence[Leak], in_place: Sequence[_Finding]) -> list[Leak]:
    """Return *leaks*, those that grow *in_place* with what would come back, the advice knowing how it slows runs."""
    for finding in in_place:
        if finding.address is not None:
            survey.retained.note_growth(finding.leak, finding.address)
    weighed = (survey.retained.with_retained_bytes(leak) for leak in leaks)
    if survey.view.n_unwalked:  # what such a graph keeps was not read: any figure would be far too small
        weighed = (replace(leak, retained_bytes=None) if leak.cause in GRAPH_CAUSES else leak for leak in weighed)
    return with_effect(list(weighed), survey.judgement.slowdown, survey.n_runs)

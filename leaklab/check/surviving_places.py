"""Describe and judge the places that survivors pile up in, those that no root reaches, and what is made anew."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations, takewhile

from leaklab.check.container_lengths import (
    UNLIMITED,
    LengthWitness,
    combine_with_lengths,
    grown_inside,
    join_chains,
    length_witness,
    split_by_container,
)
from leaklab.check.findings import Finding, Survey
from leaklab.check.memory import swelling
from leaklab.check.ranking import (
    LIBRARY_BYTES,
    is_asked_for,
    library_note,
)
from leaklab.decide.growth import Growth
from leaklab.decide.survivors import judge_backlog, judge_survivors
from leaklab.decide.verdict import MOST_OF_CACHES, WORST_FIRST
from leaklab.explain.cycles.cycles import ENTRY, Orphans, group_orphans
from leaklab.explain.idioms import find_cause
from leaklab.explain.leaks.evidence import Evidence, evidence_of_group, evidence_of_orphans, with_reasons
from leaklab.explain.leaks.groups import Group, address_of_group, group_survivors, n_places, newest_leaked
from leaklab.explain.leaks.holders import merged_ways
from leaklab.explain.leaks.limits import Limit, known_limit
from leaklab.explain.leaks.ownership import are_library_weakrefs, is_library_matter, is_users_kind, lives_by_its_keys
from leaklab.explain.leaks.sizes import GroupSummary
from leaklab.heap.view import BASELINE, HeapView
from leaklab.model import Leak, Outcome, RootPath
from leaklab.model.check import UNREAD_GRAPH
from leaklab.model.paths import CycleCertainty
from leaklab.runtime.autograd_graph import requires_grad
from leaklab.runtime.objects import has_base, loaded_type
from leaklab.text import format_bytes

_FEWEST_FILLED = 3
"""So many objects that got one attribute each may be a part of many that will: one or two are a place that grows."""


def surviving_places(survey: Survey) -> list[Finding]:
    """Return every place that keeps survivors, and what of them no root reaches."""
    view, n_runs = survey.view, survey.n_runs
    groups, orphans = group_survivors(view)
    joined = join_groups(view, groups, n_runs)
    apart = [part for group in joined for part in split_by_container(view, group, survey.measurement, survey.may_end)]
    held = _siblings_as_one(view, [_of_group(survey, group) for group in join_chains(view, apart, n_runs)])
    return [*held, *(_of_orphans(survey, cycle) for cycle in group_orphans(view, orphans))]


def _of_group(survey: Survey, group: Group) -> Finding:
    """Describe the survivors that one place holds, and judge the place by its limits too."""
    view, summary, judged = survey.view, *_counted(survey, group)
    witness, of_survivors = length_witness(view, group, summary.main_objects, survey.measurement), judged[0].outcome
    if witness is not None:
        judged = combine_with_lengths(witness, judged, group.kept(view, survey.n_runs, group.entries))
    leak, sample = _describe(view, survey.n_runs, group, summary, judged)
    finding = _finding(survey, leak, group, summary, judged)
    limit = known_limit([view.objects[v] for v in takewhile(lambda v: not view.leaked[v], view.path(sample))])
    if finding.growth.outcome in UNLIMITED:
        finding = _limited(finding, limit, _entries_per_run(survey, group, limit))
    elif finding.growth.outcome is Outcome.BOUNDED:
        finding = replace(_with_full_limit(finding, limit), limited_bytes=swelling(view, survey.sizer, group))
    if (
        of_survivors in UNLIMITED
        and finding.growth.outcome is Outcome.BOUNDED
        and (limit is None or limit.may_have_dropped)
        and (inside := grown_inside(view, group))
    ):
        return _of_group(replace(survey, view=inside[0]), inside[1])
    growth = finding.growth
    is_small = growth.outcome is Outcome.LEAK and leak.bytes_per_run < LIBRARY_BYTES and not is_asked_for(leak)
    if is_small and (is_library_matter(view, sample, group.members) or are_library_weakrefs(view, group)):
        growth = Growth(Outcome.CLEAN, 0.0, growth.reason)
        finding = replace(finding, growth=growth, aside=library_note(leak))
    if growth.outcome in UNLIMITED and _cannot_pile_up(view, group, growth.outcome):
        growth = Growth(Outcome.CLEAN, 0.0, growth.reason)
        finding = replace(finding, growth=growth)
    if growth.outcome is Outcome.LEAK and group.entries:
        finding = _judged_by_code(survey, finding, int(view.tree.parent[newest_leaked(view, group.entries)]), witness)
        finding = _unless_filled_once(survey, finding, group)
        leak, growth = finding.leak, finding.growth
    if growth.outcome is Outcome.LEAK and (hold := survey.retained.hold(group, summary.main_objects)):
        leak = replace(leak, holders=hold.holders, retained_bytes=hold.retained_bytes)
        finding = replace(finding, freed=hold.freed)
    if growth.outcome is Outcome.LEAK:
        leak = replace(leak, ways=merged_ways(view, group, summary.main_objects))
    return replace(finding, leak=replace(leak, reason=growth.reason, n_places=n_places(view, group)))


def _cannot_pile_up(view: HeapView, group: Group, outcome: Outcome) -> bool:
    is_open = outcome is Outcome.INCONCLUSIVE
    return lives_by_its_keys(view, group) or (is_open and _takes_one_place(view, group))


_NUMBERED = re.compile(r"\d")


def _takes_one_place(view: HeapView, group: Group) -> bool:
    """Return whether there is a place for one thing only, to which nothing was added since: it cannot pile up there.

    Such a place is a variable, or an attribute of one object that was there before the first run. A number in its name
    may be one of many. Every parameter has one gradient.
    """
    if not group.entries:
        return False
    way = view.describe(group.entries[0]).path.steps
    reference = way[-1].reference
    is_gradient = reference == ".grad" and len(group.entries) == len(group.holders)
    is_one = len(group.entries) == 1 and not any(_NUMBERED.search(step.reference) for step in way)
    is_attribute = reference.startswith(".") and all(view.birth_run[holder] == BASELINE for holder in group.holders)
    if not (is_attribute or len(way) == 1) or not (is_one or is_gradient):
        return False
    return all(
        view.blamed_run[member] == view.blamed_run[entry]
        for member, entry in zip(group.members, group.hangs_on, strict=True)
    )


def _judged_by_code(survey: Survey, finding: Finding, container: int, witness: LengthWitness | None) -> Finding:
    """Return *finding* as not decided where the code of *container* may still end it, or seems to be ending it."""
    finding = finding.judged_by_code(survey, container)
    return finding if witness is None or witness.keeps_pace else finding.unless_emptied(survey.n_runs)


def _unless_filled_once(survey: Survey, finding: Finding, group: Group) -> Finding:
    """Return *finding* as not decided where each of several objects got one attribute: a lazy one is filled once."""
    n_filled = len(group.holders)
    is_once = n_filled == len(group.entries) >= _FEWEST_FILLED
    is_attribute = group.crossing is not None and group.crossing.text.startswith(".")
    if not (finding.is_leak and is_once and is_attribute and survey.n_runs <= MOST_OF_CACHES):
        return finding
    why = f"but {n_filled} objects got one each, as a lazy attribute is filled; more runs (-n) would show if that ends"
    return finding.undecided(why)


def _limited(finding: Finding, limit: Limit | None, entries_per_run: float) -> Finding:
    """Return *finding* as BOUNDED where *limit*, that of a holder, ends the growth in time, else as it was.

    Args:
        finding: What the holder gains.
        limit: The limit.
        entries_per_run: How many entries the holder gains: each may have many objects that matter.
    """
    leak, growth = finding.leak, finding.growth
    if limit is None:
        return finding
    per_run = min(filter(None, (entries_per_run, leak.count_per_run)), default=1.0)
    if limit.is_far(leak.bytes_per_run / per_run):
        full = format_bytes(limit.full_bytes(leak.bytes_per_run / per_run))
        reason = f"{growth.reason}; its holder, {limit.words}, would keep {full} when it is full"
        return replace(finding, growth=replace(growth, reason=reason))
    bounded = Growth(Outcome.BOUNDED, 0.0, limit.reason(per_run, leak.bytes_per_run))
    return replace(finding, growth=bounded, limited_bytes=leak.bytes_per_run, is_filling=not limit.is_full)


def _entries_per_run(survey: Survey, group: Group, limit: Limit | None) -> float:
    """Return how many entries each run adds; a cache has a key and a result for each, and counts them as one."""
    settled = group.kept(survey.view, survey.n_runs, group.entries)[1:-1] or (0,)
    counted = None if limit is None or limit.n_now is None else limit.n_now / survey.n_runs
    return min(filter(None, (sum(settled) / len(settled), counted)), default=0.0)


def _with_full_limit(finding: Finding, limit: Limit | None) -> Finding:
    """Return *finding*, which is BOUNDED, with the limit of a holder that is full: a reason for it, not a sign only."""
    if limit is None or not limit.is_full:
        return finding
    reason = limit.reason(finding.leak.count_per_run, finding.leak.bytes_per_run)
    return replace(finding, growth=replace(finding.growth, reason=reason))


def _of_orphans(survey: Survey, orphans: Orphans) -> Finding:
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
    # A leaf has no graph itself. What asks for no gradient may be in one, too, but C code keeps such tensors as well.
    is_leaf = evidence.has_tensors and requires_grad(view.objects[summary.main_objects[0]])
    may_be_in_graph = summary.has_graph or is_leaf
    if orphans.certainty is CycleCertainty.UNSEEN and suspect is None and may_be_in_graph and view.n_unwalked:
        leak = replace(leak, holder=UNREAD_GRAPH, holders=(UNREAD_GRAPH,), retained_bytes=None)
    return _finding(survey, leak, group, summary, judged)


def remade_places(survey: Survey) -> Iterator[Finding]:
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
        reason = f"each run makes all of these objects again, and more of them: {growth.reason}"
        yield Finding(replace(leak, kept=(), reason=reason), growth, address_of_group(view, group, group.fingerprint))


_Judged = tuple[Growth, float]
"""The judgement on a group, and how many of its main objects every run leaves."""
_IN_PLACES = "there are no more of them than at the start: new ones may take the places of old ones"
_REPLACED = "as many are alive as some runs ago: new ones take the places of old ones"


def _judge(survey: Survey, group: Group, summary: GroupSummary) -> _Judged:
    """Judge a group by what matters most in it first, then by all of it."""
    series = [group.kept(survey.view, survey.n_runs, chosen) for chosen in (summary.main_objects, group.entries, None)]
    growths = [judge_survivors(kept) for kept in series]
    growth = min(growths, key=lambda growth: WORST_FIRST.index(growth.outcome))
    if growth.outcome in (Outcome.INCONCLUSIVE, Outcome.BOUNDED):
        levels = survey.measurement.meters.heap(survey.n_runs)
        backlog = None if levels is None else judge_backlog(series[0], levels, summary.n_bytes)
        if backlog is not None:
            return backlog, backlog.rate
    kind = int(survey.view.kinds[summary.main_objects[0]]) if summary.main_objects else 0
    if survey.judgement.is_replaced(kind, growth):
        return Growth(Outcome.BOUNDED, 0.0, _REPLACED), 0.0
    if growth.outcome is Outcome.INCONCLUSIVE and survey.judgement.stands_still(kind, len(summary.main_objects)):
        return Growth(Outcome.BOUNDED, 0.0, _REPLACED), 0.0
    first_ones = (*summary.main_objects[:1], *group.entries[:1])
    if first_ones and all(survey.judgement.takes_places(int(survey.view.kinds[one]), growth) for one in first_ones):
        growth = Growth(Outcome.INCONCLUSIVE, growth.rate, f"{growth.reason}, but {_IN_PLACES}")
    settled = series[0][1:-1] or (0,)
    return growth, growths[0].rate or sum(settled) / len(settled)


def _counted(survey: Survey, group: Group) -> tuple[GroupSummary, _Judged]:
    """Count and judge a group; in a chain or a tree, whose holder refers to the newest link only, all links matter."""
    summary = survey.sizer.count(group.members, group.entries)
    judged = _judge(survey, group, summary)
    if judged[0].outcome is Outcome.LEAK and not _leaves(survey, group, summary):
        links = survey.sizer.count(group.members, group.entries, is_chain=True)
        if _leaves(survey, group, links):
            return links, _judge(survey, group, links)
    return summary, judged


def _leaves(survey: Survey, group: Group, summary: GroupSummary) -> bool:
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


def _finding(survey: Survey, leak: Leak, group: Group, summary: GroupSummary, judged: _Judged) -> Finding:
    growth, per_run = judged
    address = address_of_group(survey.view, group, group.fingerprint) if group.entries else None
    return Finding(leak, growth, address, group, per_run / max(len(summary.main_objects), 1))


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


JOINED_SHARE = 1.1
"""Groups of one holder are one place if together they leak by more than this times what they leak apart."""


def join_groups(view: HeapView, groups: list[Group], n_runs: int) -> list[Group]:
    """Join the groups of one holder where only together they leak: a new name for each object must not hide them."""
    by_holder: dict[int, list[Group]] = defaultdict(list)
    for group in groups:
        by_holder[group.holder].append(group)
    return [group for parts in by_holder.values() for group in _joined(view, parts, n_runs)]


def _joined(view: HeapView, parts: list[Group], n_runs: int) -> list[Group]:
    if len(parts) == 1:
        return parts
    whole = Group.union(parts)
    growths = [judge_survivors(part.kept(view, n_runs, part.entries)) for part in parts]
    together = judge_survivors(whole.kept(view, n_runs, whole.entries))
    apart = sum(growth.rate for growth in growths if growth.outcome is Outcome.LEAK)
    is_more = together.outcome is Outcome.LEAK and together.rate > JOINED_SHARE * apart
    return [whole] if is_more else parts


_FILLED_BY_CALLS = ".param_groups"
"""Of an optimizer's attributes the one that its user fills; ``state`` follows."""


def _siblings_as_one(view: HeapView, findings: list[Finding]) -> list[Finding]:
    """Return *findings* with several attributes of one library object, which one call fills, as one leak.

    ``accelerator.prepare(model, optimizer)`` puts the model into one list and the optimizer, which holds the model's
    parameters, into another; ``optimizer.add_param_group`` fills ``param_groups``, and the next step ``state``. Each of
    them alone keeps the parameters: neither is cured before both let go, and the call that undoes one undoes both.
    """
    leaking = [finding for finding in findings if finding.is_leak]
    for named, other in _sibling_pairs(view, leaking):
        groups = [group for group in (other.group, named.group) if group is not None]
        both = replace(named, leak=_as_one_leak(named.leak, other.leak), group=Group.union(groups))
        spoken_for = replace(other, growth=Growth(Outcome.CLEAN, 0.0, f"one leak with {named.leak.holder}"))
        findings = [both if one is named else spoken_for if one is other else one for one in findings]
    return findings


def _sibling_pairs(view: HeapView, findings: Sequence[Finding]) -> Iterator[tuple[Finding, Finding]]:
    """Yield two that are one leak: the one that names it, and the other.

    They are attributes of one object of a library, get something in the same runs, and what the one keeps is kept by
    the other, too.
    """
    paired: set[int] = set()
    for one, other in permutations(findings, 2):
        if one.group is None or other.group is None or {id(one), id(other)} & paired:
            continue
        if other.leak.holder in one.leak.holders[1:] and _rhythm(one.leak) == _rhythm(other.leak):
            owner = _common_owner(view, one.group, other.group)
            if owner >= 0 and not is_users_kind(type(view.objects[owner])):
                paired |= {id(one), id(other)}
                is_named_by_other = _is_optimizer(view, owner) and other.leak.holder.endswith(_FILLED_BY_CALLS)
                yield (other, one) if is_named_by_other else (one, other)


def _as_one_leak(named: Leak, other: Leak) -> Leak:
    """Return *named* as the leak of both places; what matters most in the larger of them is what grows."""
    larger = max(named, other, key=lambda leak: leak.bytes_per_run)
    is_weighed = named.retained_bytes is not None and other.retained_bytes is not None
    both = None if not is_weighed else (named.retained_bytes or 0) + (other.retained_bytes or 0)
    return replace(
        named,
        what=larger.what,
        kept=larger.kept,
        count_per_run=larger.count_per_run,
        others=larger.others,
        bytes_per_run=named.bytes_per_run + other.bytes_per_run,
        holders=tuple(dict.fromkeys((named.holder, other.holder, *named.holders, *other.holders))),
        retained_bytes=both,
    )


def _rhythm(leak: Leak) -> tuple[bool, ...]:
    return tuple(count > 0 for count in leak.kept)


def _common_owner(view: HeapView, group: Group, other: Group) -> int:
    """Return the object of which the holders of both groups are attributes, -1 if there is none."""
    owners = {_owner_of(view, one.holder) for one in (group, other)}
    return owners.pop() if len(owners) == 1 and group.holder != other.holder else -1


def _owner_of(view: HeapView, holder: int) -> int:
    """Return what has *holder* as an attribute; its own dict may lie between them."""
    parent = int(view.tree.parent[holder]) if holder >= 0 else -1
    is_dict = parent >= 0 and type(view.objects[parent]) is dict and parent != view.namespace
    return int(view.tree.parent[parent]) if is_dict else parent


def _is_optimizer(view: HeapView, vertex: int) -> bool:
    optimizer = loaded_type("torch.optim", "Optimizer")
    return optimizer is not None and has_base(type(view.objects[vertex]), optimizer)

"""Turn what grows into explained leaks: ask the heap who holds it, and the rules whether each place leaks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import FunctionType
from typing import Any

import numpy as np

from leaklab.check.findings import Explained, Finding, Survey
from leaklab.check.growing_places import MAX_ROWS, grown_graphs, grown_places
from leaklab.check.judging import Judgement
from leaklab.check.memory import explain_memory, explained_shares, keeps_graphs, taken_by
from leaklab.check.process_leaks import attribute_counts
from leaklab.check.ranking import (
    apart_from_logs,
    drop_covered_bounds,
    drop_noise,
    ended_with,
    is_worth_showing,
    keeps_numbers,
    ranked,
)
from leaklab.check.session import CheckSession, Ran, RunRequest
from leaklab.check.surviving_places import remade_places, surviving_places
from leaklab.decide.growth import SURE_RUNS
from leaklab.decide.per_run_level import MIN_LEVELS
from leaklab.decide.survivors import judge_survivors
from leaklab.decide.verdict import WORST_FIRST
from leaklab.explain.idioms.advice import with_effect
from leaklab.explain.leaks.holders import RetainedBytes
from leaklab.explain.leaks.sizes import GroupSizer
from leaklab.heap.borrow import borrow_heap
from leaklab.heap.roots import find_starts
from leaklab.heap.view import BASELINE, Births, HeapView
from leaklab.lines.open_branches import OpenBranches
from leaklab.measure.measurement import Measurement
from leaklab.model import Leak, ObjectGrowth, Outcome, TensorGrowth
from leaklab.model.check import GRAPH_UNIT, UNREAD_GRAPH
from leaklab.runtime.autograd_graph import is_result
from leaklab.runtime.gc_control import collect_quietly
from leaklab.runtime.objects import (
    class_attribute,
    class_dict,
    is_kind_of,
    is_tensor,
    loaded_type,
    no_torch_functions,
    type_name,
)
from leaklab.runtime.referents import contents_of
from leaklab.runtime.sizes import storages_remembered
from leaklab.text import unit_words

_NO_MEMORY = (
    "the runs leave objects behind, but memory ran out before their holder was found: free memory, or allow "
    "fewer runs with -n"
)


def explain(session: CheckSession) -> Explained:
    """Look for the holders of what grows; where nothing does there is nothing to explain.

    A loop that goes on does not wait for a word about what has stopped.
    """
    nothing = unexplained(session)
    judgement = session.judgement
    is_asked = judgement is not None and (judgement.growing if session.in_loop else judgement.says_anything)
    if judgement is None or not is_asked:
        return _doubted(session, nothing)
    try:
        return _doubted(session, explain_growth(session, judgement))
    except MemoryError:
        return unexplained(session, _NO_MEMORY)


def unexplained(session: CheckSession, why: str = "") -> Explained:
    """Return what was counted, and nothing of what keeps it; *why*, where that was asked for and could not be told."""
    none, open_questions = (0,) * session.measurement.n_runs, (why,) if why else ()
    kept = session.measurement.cohorts.sizes()
    return Explained(kept=kept, tensors_kept=none, tensor_bytes_kept=none, open_questions=open_questions)


def as_far_as_possible(
    session: CheckSession, further: Generator[int | RunRequest, Ran, Explained], explained: Explained
) -> Generator[int | RunRequest, Ran, Explained]:
    """Return what *further* runs tell; where memory or an interrupt ends that, what was known, and a note."""
    try:
        return (yield from further)
    except MemoryError:
        why = "memory ran out"
    except session.interrupts:
        why = "an interrupt came"
        yield from session.interrupted("further runs")
    note = f"{why} in further runs: what they would have shown about the leaks is missing"
    return replace(explained, later_notes=(*explained.later_notes, note))


def _doubted(session: CheckSession, explained: Explained) -> Explained:
    """Return *explained* with the question what code would do that no run has reached, where nothing else is asked.

    Of a few runs, that nothing leaks is said of what they did.
    """
    n_runs = session.measurement.n_runs
    is_said = explained.leaks or explained.open_questions or session.failure
    if session.branches is None or is_said or n_runs >= SURE_RUNS:
        return explained
    native = None if session.judgement is None else session.judgement.native
    if native is not None and native.rate > 0 and n_runs + 1 < MIN_LEVELS:  # of more levels the rules have judged
        why = f"native memory (malloc) {native.reason}"
    elif (unseen := OpenBranches(session.branches).unseen_growth()) is not None:
        why = unseen.words
    else:
        return explained
    doubt = f"nothing leaks in {unit_words(n_runs, 'runs')}, but {why}; more runs (-n) would show whether it leaks"
    return replace(explained, open_questions=(doubt,))


def explain_growth(session: CheckSession, judgement: Judgement) -> Explained:
    """Look for the holders of everything that grows; no phase of the measurement may be open."""
    measurement = session.measurement
    addresses, kinds, runs = measurement.cohorts.members()
    births = Births(addresses, runs, measurement.n_runs, measurement.graph_marks, kinds)
    own, heap, summaries = (measurement, judgement, session.branches), measurement.heap(), session.settings.summaries
    # What is remembered ends in the lists of free objects: an object made from there in a traced run has no trace.
    remembered = storages_remembered() if session.in_loop else nullcontext()
    starts = find_starts(session.namespace, session.called)
    with (
        remembered,
        borrow_heap(births, session.namespace, own, heap=heap, summaries=summaries, starts=starts) as view,
    ):
        sizer, retained = GroupSizer(view), RetainedBytes(view)
        branches = None if session.branches is None else OpenBranches(session.branches)
        in_loop = session.in_loop
        survey = Survey(view, measurement, judgement, sizer, retained, branches, in_loop, session.long_graphs)
        explained = _explain(survey)
    session.long_graphs |= {leak.fingerprint for leak in explained.leaks if leak.unit == GRAPH_UNIT}
    freed = _verify_garbage(measurement, explained.leaks)
    return replace(explained, notes=(*explained.notes, *freed)) if freed else explained


def _explain(survey: Survey) -> Explained:
    """Explain survivors, then what grows in place, then what is made anew, then the graph, then native memory."""
    view, measurement, judgement, n_runs = survey.view, survey.measurement, survey.judgement, survey.n_runs
    survivors = surviving_places(survey)
    in_place = [_judged_by_code(survey, finding) for finding in grown_places(view, judgement)]
    remade = list(remade_places(survey))
    before_graph = [*survivors, *_beside(remade, in_place), *remade]
    graphs = _graphs(survey, before_graph)
    # What only a graph keeps that could not be read is kept by the one that gets longer, or by what carries graphs.
    if graphs or any(map(_carries_graphs, before_graph)):
        before_graph = [finding for finding in before_graph if not _is_in_unread_graph(finding)]
    findings = attribute_counts(survey, [*before_graph, *graphs])
    native = explain_memory(survey, findings)
    lasting, logs = apart_from_logs(native.leaks, {finding.leak.fingerprint for finding in in_place if finding.is_log})
    leaks, remarks = drop_noise(lasting, ended_with(view, [finding for finding in findings if finding.is_leak]))
    asides = [*(finding.aside for finding in findings if finding.aside), *native.notes, *remarks]
    weighed = _with_retained_bytes(survey, leaks, [*in_place, *graphs])
    aside = [finding.leak for finding in findings if finding.aside or finding.growth.outcome is Outcome.INCONCLUSIVE]
    # A log is none that anybody has to decide on: as a leak it would not be told either.
    undecided = [one for one in _worth_showing(findings, Outcome.INCONCLUSIVE) if not _is_mere_log(one)]
    # Of what is made anew, none of an earlier run is alive: a plot has more or fewer ticks from one run to the next.
    made_anew = {finding.leak.fingerprint for finding in remade}
    kept = [one.leak for one in undecided if one.leak.fingerprint not in made_anew]
    tensors_kept, tensor_bytes_kept = kept_tensors(view, survey.sizer, n_runs)
    bounded = drop_covered_bounds([finding.leak for finding in _worth_showing(findings, Outcome.BOUNDED)], leaks)
    found = (finding for finding in findings if finding.is_leak)
    older = {one.leak.fingerprint: words for one in found if (words := _words_of_older_class(view, one))}
    told = [replace(leak, advice=older.get(leak.fingerprint, leak.advice)) for leak in weighed]
    return Explained(
        leaks=ranked(told),
        bounded=bounded,
        objects=object_rows(view, survey.sizer, judgement, measurement),
        tensors=tensor_rows(view, n_runs),
        containers=tuple(finding.row for finding in findings if finding.row is not None)[:MAX_ROWS],
        notes=(*view.notes, *survey.retained.notes, *asides),
        open_questions=tuple(f"{one.leak.what} in {one.leak.holder}: {one.growth.reason}" for one in undecided),
        suspects=ranked([leak for leak in kept if leak.count_per_run > 0]),
        n_aside=len(asides),
        logs=drop_covered_bounds(logs, bounded),
        kept=measurement.cohorts.sizes(),
        tensors_kept=tensors_kept,
        tensor_bytes_kept=tensor_bytes_kept,
        addresses=tuple(finding.address for finding in findings if finding.address is not None),
        native_bytes=native.native_bytes,
        shares=explained_shares(judgement, native.parts),
        charged=native.charged,
        noted=tuple(leak for leak in (*native.leaks, *aside) if leak not in leaks),
        of_older_code=frozenset(older),
        **_said_by_code(survey, leaks, findings),
    )


def _said_by_code(survey: Survey, leaks: Sequence[Leak], findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the fields of `Explained` that tell what the code says of all *leaks* together."""
    prints = {leak.fingerprint for leak in leaks}
    of_leaks = [finding for finding in findings if finding.leak.fingerprint in prints and finding.is_leak]
    endless = {finding.leak.fingerprint for finding in of_leaks if finding.code.is_endless}
    undecided = [one for one in findings if one.growth.outcome is Outcome.INCONCLUSIVE and not _is_mere_log(one)]
    unread = (finding for finding in (*of_leaks, *undecided) if not finding.code.is_filled)
    return {
        "is_endless": bool(prints) and prints <= endless,
        "is_emptied": any(finding.code.is_emptied for finding in of_leaks),
        "is_new": all(finding.code.is_new for finding in of_leaks),
        "owners": frozenset(filter(None, map(survey.owner, unread))),
        "names": {finding.leak.fingerprint: finding.code.names for finding in of_leaks if finding.code.names.address},
    }


def _words_of_older_class(view: HeapView, finding: Finding) -> str:
    """Say of a place in an object whose class a cell has defined anew since that the object runs the older code.

    Empty where there is none, or where the class has no code that asks for the attribute by which the place is reached.
    What a run has made of a class that each run defines is not older than the runs.
    """
    chain = () if finding.address is None or view.namespace < 0 else finding.address.chain
    namespace: Any = view.objects[view.namespace] if chain else {}
    steps, home = finding.leak.path.steps, namespace.get("__name__")
    for place, (address, step) in enumerate(zip(chain, steps[1:], strict=False)):
        vertex = view.index.vertex_of(address)
        is_older = vertex >= 0 and int(view.blamed_run[vertex]) == BASELINE
        kind = type(view.objects[vertex]) if is_older else object
        name = type_name(kind).rpartition(".")[2]
        now: Any = namespace.get(name) if class_attribute(kind, "__module__") == home else None
        if not is_kind_of(now, type) or now is kind or type_name(now) != type_name(kind):
            continue
        names = (one.__code__.co_names for one in class_dict(kind).values() if type(one) is FunctionType)
        if step.reference.removeprefix(".") in set().union(*names):
            return (
                f"`{''.join(one.reference for one in steps[: place + 1])}` was made before the class `{name}` was "
                "defined anew: it still runs the older code. Make it again, then check again."
            )
    return ""


_AS_FAST = 1.1
"""A container that gets longer by so many times as much as what is made anew in it has other entries besides."""


def _beside(remade: Sequence[Finding], in_place: Sequence[Finding]) -> list[Finding]:
    """Return those of *in_place* that are no containers of *remade* leaks, which tell the same."""
    told = {
        one.address.chain[-2]: one.growth.rate
        for one in remade
        if one.is_leak and one.address and one.address.chain[1:]
    }

    def is_told(one: Finding) -> bool:
        chain = () if one.address is None else one.address.chain
        return one.is_leak and bool(chain) and one.growth.rate <= _AS_FAST * told.get(chain[-1], 0.0)

    return [one for one in in_place if not is_told(one)]


def _judged_by_code(survey: Survey, finding: Finding) -> Finding:
    """Return *finding*, which grows in place, as not decided where the code may still end that."""
    if finding.address is None:
        return finding
    view, chain = survey.view, finding.address.chain
    vertex = view.index.vertex_of(chain[-1])
    if vertex < 0 and len(chain) > 1 and (anchor := view.index.vertex_of(chain[-2])) >= 0:
        # The collector lists no dict of plain data before CPython 3.14, but what refers to it.
        unlisted = next((thing for thing in contents_of(view.objects[anchor]) if id(thing) == chain[-1]), None)
        return finding.judged_by_code(survey, vertex if unlisted is None else anchor, unlisted)
    return finding.judged_by_code(survey, vertex)


def _worth_showing(findings: Sequence[Finding], outcome: Outcome) -> Iterator[Finding]:
    for finding in findings:
        rate = 1.0 if finding.is_filling else finding.growth.rate  # what is bounded has none, and fills until then
        if finding.growth.outcome is outcome and is_worth_showing(finding.leak, rate):
            yield finding


def _graphs(survey: Survey, findings: Sequence[Finding]) -> list[Finding]:
    """Return the graphs that get longer; where *findings* carry graphs, those that none of them carries."""
    groups = [finding.group for finding in findings if _carries_graphs(finding)]
    members = [member for group in groups if group is not None for member in group.members]
    marks = survey.measurement.graph_marks
    grown = grown_graphs(survey.view, survey.judgement, members, marks, survey.long_graphs)
    if not grown or None in groups:
        return []
    grown = [_judged_by_code(survey, finding) for finding in grown]
    native, n_nodes = survey.judgement.native, sum(finding.growth.rate for finding in grown)
    if native is not None and native.outcome is Outcome.LEAK and n_nodes > 0:
        # Nodes and what they save live in the native heap: what grows there without another explanation is the graphs.
        unexplained = native.rate - taken_by(findings, survey.sizer, survey.measurement).malloc_bytes
        shares = ((finding, unexplained * finding.growth.rate / n_nodes) for finding in grown)
        grown = [
            replace(one, leak=replace(one.leak, bytes_per_run=max(one.leak.bytes_per_run, share)))
            for one, share in shares
        ]
    return grown


def _carries_graphs(finding: Finding) -> bool:
    return finding.is_leak and keeps_graphs(finding.leak) and not _is_in_unread_graph(finding)


def _is_mere_log(finding: Finding) -> bool:
    return finding.is_log and not keeps_numbers(finding.leak)


def _is_in_unread_graph(finding: Finding) -> bool:
    return finding.leak.holder == UNREAD_GRAPH


def _with_retained_bytes(survey: Survey, leaks: Sequence[Leak], in_place: Sequence[Finding]) -> list[Leak]:
    """Return *leaks*, those that grow *in_place* with what would come back, the advice knowing how it slows runs."""
    for finding in in_place:
        if finding.address is not None:
            survey.retained.note_growth(finding.leak, finding.address)
    weighed = (survey.retained.with_retained_bytes(leak) for leak in leaks)
    if survey.view.n_unwalked:  # what such a graph keeps was not read: any figure would be far too small
        weighed = (replace(leak, retained_bytes=None) if keeps_graphs(leak) else leak for leak in weighed)
    return with_effect(list(weighed), survey.judgement.slowdown, survey.n_runs)


def _verify_garbage(measurement: Measurement, leaks: Sequence[Leak]) -> tuple[str, ...]:
    """Where the collector is off, collect once and say how much of the leak that freed."""
    if measurement.collects or not any(leak.cause == "cycle-garbage" for leak in leaks):
        return ()
    if not measurement.may_collect:
        return (
            (
                "gc.unfreeze() and gc.collect() would free this garbage; leaklab did not call them, because your "
                "objects are frozen"
            ),
        )
    n_freed = collect_quietly()
    return (
        f"a gc.collect() after the last run freed {n_freed:,} objects: the leak is garbage that waits for a collection",
    )


def object_rows(
    view: HeapView, sizer: GroupSizer, judgement: Judgement, measurement: Measurement
) -> tuple[ObjectGrowth, ...]:
    """Return one row for each type of which earlier runs left objects, the growing ones first, then by bytes."""
    first, last = measurement.checkpoints[0], measurement.checkpoints[-1]
    by_kind: dict[int, list[int]] = defaultdict(list)
    for vertex in np.flatnonzero(view.birth_run != BASELINE).tolist():
        by_kind[id(type(view.objects[vertex]))].append(vertex)
    rows = []
    for kind, vertices in by_kind.items():
        kept = _kept(view, vertices, measurement.n_runs)
        if not any(kept[:-1]):
            continue
        growth = judgement.growth_of(kind, kept)
        n_bytes = sizer.bytes_of(vertices)
        rows.append(
            ObjectGrowth(
                kind=type_name(type(view.objects[vertices[0]])),
                kept=kept,
                n_before=first.count_of(kind),
                n_after=last.count_of(kind),
                count_per_run=growth.rate,
                bytes_per_run=growth.rate * n_bytes / len(vertices),
                outcome=growth.outcome,
            )
        )
    return tuple(sorted(rows, key=lambda row: (*_order(row.outcome, row.bytes_per_run), row.kind))[:MAX_ROWS])


def tensor_rows(view: HeapView, n_runs: int) -> tuple[TensorGrowth, ...]:
    """Return one row for each type, shape, dtype and device of tensors that earlier runs left."""
    base = loaded_type("torch", "Tensor")
    groups: dict[tuple[str, tuple[int, ...], str, str, bool], list[int]] = defaultdict(list)
    with no_torch_functions():
        for vertex in np.flatnonzero(view.birth_run != BASELINE).tolist():
            thing = view.objects[vertex]
            if base is not None and is_tensor(thing):
                groups[_tensor_key(thing, base)].append(vertex)
    rows = [_tensor_row(view, key, vertices, n_runs) for key, vertices in groups.items()]
    rows = [row for row in rows if any(row.kept[:-1])]
    return tuple(sorted(rows, key=lambda row: (*_order(row.outcome, row.bytes_kept), row.shape))[:MAX_ROWS])


def kept_tensors(view: HeapView, sizer: GroupSizer, n_runs: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how many tensors each run left, and the bytes of their storages."""
    by_run: dict[int, list[int]] = defaultdict(list)
    for vertex in np.flatnonzero(view.birth_run != BASELINE).tolist():
        if is_tensor(view.objects[vertex]):
            by_run[int(view.birth_run[vertex])].append(vertex)
    counts = tuple(len(by_run.get(run, ())) for run in range(n_runs))
    return counts, tuple(sizer.storages_of(by_run.get(run, ())) for run in range(n_runs))


def _tensor_key(thing: object, base: type) -> tuple[str, tuple[int, ...], str, str, bool]:
    try:
        shape = tuple(int(size) for size in base.size(thing))  # type: ignore[attr-defined]  # torch.Tensor
    except (RuntimeError, TypeError, ValueError):
        shape = ()
    dtype = str(base.dtype.__get__(thing)).removeprefix("torch.")  # type: ignore[attr-defined]
    device = str(base.device.__get__(thing))  # type: ignore[attr-defined]
    has_graph = is_result(thing)
    return type_name(type(thing)), shape, dtype, device, has_graph


def _tensor_row(
    view: HeapView, key: tuple[str, tuple[int, ...], str, str, bool], vertices: list[int], n_runs: int
) -> TensorGrowth:
    kind, shape, dtype, device, has_graph = key
    kept = _kept(view, vertices, n_runs)
    growth = judge_survivors(kept)
    n_bytes = GroupSizer.storages_of_all(view, vertices)
    per_tensor = n_bytes / len(vertices)
    return TensorGrowth(
        kind, shape, dtype, device, has_graph, kept, n_bytes, growth.rate, growth.rate * per_tensor, growth.outcome
    )


def _kept(view: HeapView, vertices: Iterable[int], n_runs: int) -> tuple[int, ...]:
    return tuple(np.bincount(view.birth_run[list(vertices)], minlength=n_runs).tolist())


def _order(outcome: Outcome, amount: float) -> tuple[int, float]:
    return WORST_FIRST.index(outcome), -amount

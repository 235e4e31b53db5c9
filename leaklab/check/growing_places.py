"""Explain what grows without leaving objects behind: containers of plain data, buffers, graphs."""

from __future__ import annotations

import contextvars
import io
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from leaklab.check.findings import Finding
from leaklab.check.judging import Grown, Judgement
from leaklab.check.ranking import USER_SIDE, is_asked_for, library_note
from leaklab.decide.growth import LOG_BYTES, Growth, is_log
from leaklab.explain.autograd.retention import LongGraph, graphs_beside, longest_graph
from leaklab.explain.idioms import find_cause
from leaklab.explain.leaks.evidence import Evidence, facts_of
from leaklab.explain.leaks.groups import address_of_growth
from leaklab.explain.leaks.limits import has_known_names, known_limit
from leaklab.explain.leaks.ownership import is_librarys_table
from leaklab.explain.leaks.plain_data import gains_log_entries
from leaklab.explain.leaks.sizes import content_of, has_opaque, newest_entries
from leaklab.heap.paths import Described, fingerprint
from leaklab.heap.view import BASELINE, HeapView
from leaklab.measure.slots import GrownSlot
from leaklab.model import ContainerGrowth, Leak, Outcome, RootPath, Status, Step
from leaklab.model.check import GRAPH_UNIT
from leaklab.runtime.autograd_graph import gradient_of
from leaklab.runtime.graph_marks import NO_MARKS, GraphMarks
from leaklab.runtime.objects import (
    LRU_CACHE,
    is_exactly,
    is_kind_of,
    is_tensor,
    no_torch_functions,
    safe_len,
    summary,
    type_name,
)
from leaklab.runtime.ours import is_machinery
from leaklab.runtime.referents import contents_of, get_referents, is_own_dict
from leaklab.runtime.sizes import node_bytes

MAX_ROWS = 200
_MOST_GRAPHS = 3
"""So many graphs in one container are told one by one."""
_OWN_SHARE = 0.5
"""A graph gets longer by itself if it has so much of the nodes that were added."""
_MAX_EXPLAINED = 1000
"""So many containers are looked at, those that grew most."""
_UNITS = {
    "str": "characters",
    "bytes": "bytes",
    "bytearray": "bytes",
    "_io.StringIO": "characters",
    "_io.BytesIO": "bytes",
}


def grown_places(view: HeapView, judgement: Judgement) -> list[Finding]:
    """Return every container and slot that grew, those of one place together, the fastest of them for all.

    Where survivors make a container grow, they are the leak, and it is clean.
    """
    seen: set[int] = set()
    found = [*_containers(view, judgement, seen), *_slots(view, judgement, seen)]
    by_place: dict[tuple[str, Outcome], list[Finding]] = defaultdict(list)
    for grown in found:
        by_place[grown.leak.fingerprint, grown.growth.outcome].append(grown)
    return [_judged_by_owner(view, grown) for places in by_place.values() for grown in _together(places)]


def _judged_by_owner(view: HeapView, grown: Finding) -> Finding:
    leak, growth = grown.leak, grown.growth
    chain = () if grown.address is None else grown.address.chain
    if grown.is_leak and chain[-1] in _screens():
        words = f"printed text stays in {leak.holder}, which replaces the screen"
        return replace(grown, growth=Growth(Outcome.CLEAN, 0.0, growth.reason), aside=words)
    is_small = leak.bytes_per_run < LOG_BYTES and not is_asked_for(leak)
    if not grown.is_leak or not is_small or _is_open_to_user(leak.path):
        return grown
    above = view.index.vertices_of(np.array(chain[:-1], np.int64))
    if not is_librarys_table(view, above[above >= 0].tolist()):
        return grown
    return replace(grown, growth=Growth(Outcome.CLEAN, 0.0, growth.reason), aside=library_note(leak))


def _is_open_to_user(path: RootPath) -> bool:
    """Return whether *path* leads from a variable of the user's along public names only: who reads it can empty it."""
    references = [step.reference for step in path.steps]
    return path.root in USER_SIDE and not any(reference.lstrip(".").startswith("_") for reference in references)


def _screens() -> set[int]:
    """Return the addresses of the streams that are printed on, and of the memory below these: they keep all of it."""
    streams = [stream for stream in (sys.stdout, sys.stderr) if stream is not None]
    below = [thing for thing in get_referents(*streams) if is_exactly(thing, (io.StringIO, io.BytesIO))]
    return {id(thing) for thing in (*streams, *below)}


def _together(places: list[Finding]) -> list[Finding]:
    """Let one speak for all of *places*, which differ in a position or a number only."""
    if len(places) == 1:
        return places
    first = max(places, key=lambda grown: grown.growth.rate)
    rate = sum(grown.growth.rate for grown in places)
    together = f"grow by {rate:,.3g} {first.leak.unit} per run" if rate else "did the same"
    leak = replace(
        first.leak,
        bytes_per_run=sum(grown.leak.bytes_per_run for grown in places),
        count_per_run=rate,
        reason=f"{first.growth.reason}; {len(places)} places like it {together}",
        n_places=len(places),
    )
    all_logs = all(grown.is_log for grown in places) and leak.bytes_per_run < LOG_BYTES
    speaker = replace(first, leak=leak, growth=replace(first.growth, rate=rate), is_log=all_logs)
    return [speaker, *(replace(grown, growth=_SPOKEN_FOR) for grown in places if grown is not first)]


def _containers(view: HeapView, judgement: Judgement, seen: set[int]) -> Iterator[Finding]:
    addresses = np.array([container.what for container in judgement.containers], np.int64)
    found = sorted(
        zip(view.index.vertices_of(addresses).tolist(), judgement.containers, strict=True),
        key=lambda pair: pair[1].series[0] - pair[1].series[-1],
    )
    # One of the last run cannot have grown over the check: it only has the address of those before it.
    newest = view.birth_run.max(initial=BASELINE)
    known = (
        (v, c) for v, c in found if v >= 0 and view.is_reached(v) and not view.leaked[v] and not _is_cache(view, v)
    )
    lasting = ((v, c) for v, c in known if view.birth_run[v] == BASELINE or view.birth_run[v] < newest)
    for vertex, container in islice(lasting, _MAX_EXPLAINED):
        seen.add(container.what)
        n_new = container.series[-1] - container.series[0]
        parent = int(view.tree.parent[vertex])
        is_of_class = parent >= 0 and is_kind_of(view.objects[parent], type)
        if has_known_names(view.objects[vertex], n_new, is_namespace=vertex == view.namespace, is_of_class=is_of_class):
            continue
        grown = _container(view, judgement, container, vertex)
        yield replace(grown, growth=_SPOKEN_FOR) if _is_survivors(view, vertex, container.series) else grown


def _is_cache(view: HeapView, vertex: int) -> bool:
    """Return whether *vertex* is of a cache that a check fills itself.

    An abstract class notes who has asked about which class, and a function of leaklab's what it has returned.
    """
    parent = int(view.tree.parent[vertex])
    above = view.objects[parent] if parent >= 0 else None
    is_own = is_exactly(above, (LRU_CACHE,)) and is_machinery(str(getattr(above, "__module__", "")))
    return is_own or type_name(type(above)) == "_abc._abc_data"


_SPOKEN_FOR = Growth(Outcome.CLEAN, 0.0, "see the leaks")


def _is_survivors(view: HeapView, vertex: int, lengths: Sequence[int]) -> bool:
    """Return whether survivors are what a container grew by: at least half of its new entries."""
    referents = view.index.referents(vertex)
    n_new = int(np.count_nonzero(view.birth_run[referents] != BASELINE))
    return bool(view.leaked[referents].any()) and 2 * n_new >= lengths[-1] - lengths[0]


def grown_graphs(
    view: HeapView,
    judgement: Judgement,
    members: Sequence[int] = (),
    marks: GraphMarks = NO_MARKS,
    known: Collection[str] = (),
) -> list[Finding]:
    """Return the tensors whose autograd graphs get longer by every run, the longest first.

    Their own graphs must hold what was added: nodes that pile up elsewhere belong to whoever keeps them. A second graph
    has what the first has not: of a running sum and of what is computed from it, the sum alone gets longer.

    Nodes that are kept with *members*, what else leaks with its graphs, do not count. *known* are the fingerprints of
    those that an earlier look has found: the less may still be read of a graph, the less of it a later look sees.
    """
    growth, n_runs = _growth_of_graphs(judgement), judgement.at_runs[-1] - 2  # the last two may use what they made
    if growth.outcome is not Outcome.LEAK:
        return []
    if members:
        return _by_holder([_graph_beside(view, one, n_runs) for one in graphs_beside(view, members, marks, n_runs)])
    longest, n_added = longest_graph(view, marks), growth.rate * judgement.at_runs[-1]
    if longest is None:
        return []
    others = graphs_beside(view, [longest.vertex], marks, n_runs) if longest.is_handed_on else []
    n_found = longest.n_nodes + sum(other.n_nodes for other in others)
    # One that is made anew, longer in every run, has all that was added, and no run before the last has left any.
    is_anew = longest.n_nodes >= n_added and longest.n_elsewhere < _OWN_SHARE * n_added
    is_longer = n_found >= _OWN_SHARE * n_added if longest.is_handed_on else is_anew
    if not (view.n_unwalked or is_longer):
        return []
    rest = growth.rate - sum(other.n_nodes for other in others) / n_runs if others else growth.rate
    if view.n_unwalked and longest.n_of_run:
        rest = longest.n_of_run  # counted, where the growth of all nodes is a lower bound
    first = _graph_at(view, longest.vertex, replace(growth, rate=rest))
    if not (growth.rate or longest.n_earlier or first.leak.fingerprint in known):
        return []  # all that was read of it is of the last run, which may have made it anew
    return _by_holder([first, *(_graph_beside(view, other, n_runs) for other in others)])


def _growth_of_graphs(judgement: Judgement) -> Growth:
    """Return how the nodes grow, which are counted between phases: after one phase the native heap tells of each run.

    A loop may end there.
    """
    growth, native = judgement.graph, judgement.native
    is_seen_once = growth.outcome is Outcome.INCONCLUSIVE and len(judgement.at_runs) == 2  # noqa: PLR2004 - one phase
    if not is_seen_once or native is None or native.outcome is not Outcome.LEAK:
        return growth
    return replace(growth, outcome=Outcome.LEAK, reason=f"{growth.reason}; native memory: {native.reason}")


def _by_holder(graphs: Sequence[Finding]) -> list[Finding]:
    """Let one graph speak for all of its container where these are many: there may be one for each parameter."""
    by_holder: dict[int, list[Finding]] = defaultdict(list)
    for graph in graphs:
        chain = () if graph.address is None else graph.address.chain[:-1]
        by_holder[chain[-1] if chain else id(graph)].append(graph)  # a variable is in no container
    several = (_together(one) if len(one) > _MOST_GRAPHS else one for one in by_holder.values())
    return [finding for findings in several for finding in findings if finding.growth is not _SPOKEN_FOR]


def _graph_beside(view: HeapView, beside: LongGraph, n_runs: int) -> Finding:
    reason = f"{beside.n_nodes:,} nodes of the first {n_runs:,} runs are left in its graph, from all of these runs"
    return _graph_at(view, beside.vertex, Growth(Outcome.LEAK, beside.n_nodes / n_runs, reason))


def _graph_at(view: HeapView, vertex: int, growth: Growth) -> Finding:
    thing, described = view.objects[vertex], view.describe(vertex)
    step = Step(".grad_fn", type_name(type(thing.grad_fn)), "", Status.LEAKED, "longer with every run")  # type: ignore[attr-defined]  # it is a tensor with a graph
    leak = leak_in_place(
        view,
        described,
        vertex,
        what=f"autograd graph of {type_name(type(thing))} {summary(thing)}",
        unit=GRAPH_UNIT,
        growth=growth,
        bytes_per_run=growth.rate * node_bytes(1, 1),
        extra=(step,),
        has_graph=True,
    )
    return Finding(leak, growth, address_of_growth(view, leak.fingerprint, vertex))


def _container(view: HeapView, judgement: Judgement, container: Grown[int], vertex: int) -> Finding:
    thing = view.objects[vertex]
    kind = type_name(type(thing))
    unit = _UNITS.get(kind, "entries")
    n_new = max(container.series[-1] - container.series[0], 1)
    content, bytes_per_unit = ("", 1.0) if unit != "entries" else content_of(thing, n_new)
    growth = _limited([view.objects[each] for each in view.path(vertex)], container.growth, bytes_per_unit)
    is_filling = growth is not container.growth
    bytes_per_run = (container.growth if is_filling else growth).rate * bytes_per_unit
    leak = leak_in_place(
        view,
        view.describe(vertex),
        vertex,
        what=_entries_of(kind, content) if unit == "entries" else kind,
        unit=unit,
        growth=growth,
        bytes_per_run=bytes_per_run,
    )
    row = ContainerGrowth(
        kind=kind,
        holder=leak.holder,
        unit=unit,
        content=content,
        lengths=container.series,
        at_runs=judgement.at_runs,
        per_run=(container.series[-1] - container.series[0]) / max(judgement.at_runs[-1], 1),
        bytes_per_run=growth.rate * bytes_per_unit,
        outcome=growth.outcome,
    )
    is_opaque = unit == "entries" and has_opaque(newest_entries(thing, n_new))
    address = address_of_growth(view, leak.fingerprint, vertex)
    is_log = _is_log(thing, n_new, growth.rate * bytes_per_unit)
    return Finding(leak, growth, address, row=row, is_filling=is_filling, is_opaque=is_opaque, is_log=is_log)


def _limited(path: Sequence[object], growth: Growth, bytes_per_entry: float) -> Growth:
    """Return *growth* as BOUNDED where the container at the end of *path* limits itself, else as it is."""
    if growth.outcome not in (Outcome.LEAK, Outcome.INCONCLUSIVE):
        return growth
    limit = known_limit(path)
    if limit is None or limit.is_far(bytes_per_entry):
        return growth
    return Growth(Outcome.BOUNDED, 0.0, limit.reason(growth.rate, growth.rate * bytes_per_entry))


def _entries_of(kind: str, content: str) -> str:
    return f"{kind} entries: {content}" if content else f"{kind} entries"


def _slots(view: HeapView, judgement: Judgement, seen: set[int]) -> Iterator[Finding]:
    for grown in judgement.slots:
        slot = grown.what
        anchor = view.index.vertex_of(slot.anchor)
        if anchor < 0 or not view.is_reached(anchor) or view.leaked[anchor]:
            continue
        if is_kind_of(view.objects[anchor], LRU_CACHE):  # one result after another stands in the same place of it
            continue
        above = _owner_below(view.objects[anchor], slot)
        if above is None:
            continue
        contents = _with_gradient(contents_of(above[-1] if above else view.objects[anchor]), view.objects[anchor])
        thing = next((each for each in contents if id(each) == slot.target and id(type(each)) == slot.kind), None)
        if thing is None:
            continue
        vertex = view.index.vertex_of(id(thing))
        is_own = is_own_dict(view.objects[anchor], thing) and slot.sizes[1] == slot.sizes[-1]  # made by a look
        if is_own or id(thing) in seen or (vertex >= 0 and _is_survivors(view, vertex, slot.sizes)):
            continue
        if grown.growth.outcome is Outcome.INCONCLUSIVE and _came_with_survivor(view, anchor, vertex, slot.sizes):
            continue
        seen.add(id(thing))
        yield _slot(view, judgement, anchor, [*above, thing], grown)


def _with_gradient(contents: list[object], anchor: object) -> list[object]:
    if not is_tensor(anchor):
        return contents
    with no_torch_functions():
        return [*contents, gradient_of(anchor)]


def _came_with_survivor(view: HeapView, anchor: int, vertex: int, sizes: Sequence[int]) -> bool:
    """Return whether what a slot points to is as large as when a run made it or its owner, who are told themselves.

    The owner may be the dict of a survivor, which the survivor got when somebody looked at it.
    """
    is_still = len({size for size in sizes if size}) == 1
    return is_still and any(view.leaked[each] for each in (*([vertex] if vertex >= 0 else ()), *view.path(anchor)))


def _owner_below(anchor: object, slot: GrownSlot) -> list[object] | None:
    """Return the slot's owner if it is a dict that the collector does not know; None if that dict is gone.

    An empty list is for what *anchor* itself refers to: its own slots, and values of context variables.
    """
    if slot.owner == slot.anchor:
        return []
    owners = [thing for thing in get_referents(anchor) if id(thing) == slot.owner][:1]
    if owners and type(owners[0]) is contextvars.ContextVar:
        return []
    return owners or None


def _slot(view: HeapView, judgement: Judgement, anchor: int, below: list[object], grown: Grown[GrownSlot]) -> Finding:
    slot, growth, thing, described = grown.what, grown.growth, below[-1], view.describe_child(anchor, *below)
    sizes = slot.sizes
    kind = type_name(type(thing))
    is_counted = safe_len(thing) is not None and kind not in _UNITS
    unit = "entries" if is_counted else _UNITS.get(kind, "bytes")
    n_new = max(sizes[-1] - sizes[0], 1)
    content, bytes_per_unit = content_of(thing, n_new) if is_counted else ("", 1.0)
    what = _entries_of(kind, content) if is_counted else f"{kind} {summary(thing)}".strip()
    growth = _limited([*(view.objects[each] for each in view.path(anchor)), *below], growth, bytes_per_unit)
    bytes_per_run = growth.rate * bytes_per_unit
    leak = leak_in_place(view, described, anchor, what=what, unit=unit, growth=growth, bytes_per_run=bytes_per_run)
    runs = judgement.slot_runs
    per_run = (sizes[-1] - sizes[0]) / max(runs[-1] - runs[0], 1)
    row = ContainerGrowth(kind, leak.holder, unit, content, sizes, runs, per_run, bytes_per_run, growth.outcome)
    address = address_of_growth(view, leak.fingerprint, anchor, *below)
    is_opaque = is_counted and has_opaque(newest_entries(thing, n_new))
    return Finding(leak, growth, address, row=row, is_opaque=is_opaque, is_log=_is_log(thing, n_new, bytes_per_run))


def _is_log(thing: object, n_new: int, bytes_per_run: float) -> bool:
    return is_log(gains_log_entries=gains_log_entries(thing, n_new), bytes_per_run=bytes_per_run)


def leak_in_place(
    view: HeapView,
    described: Described,
    vertex: int,
    *,
    what: str,
    unit: str,
    growth: Growth,
    bytes_per_run: float,
    extra: tuple[Step, ...] = (),
    has_graph: bool = False,
) -> Leak:
    """Return the leak of something that grows where it is, or is replaced there by something larger.

    Args:
        view: The heap.
        described: The path to it.
        vertex: It, or what leads to it where it is none of the heap's objects.
        what: What grows, in words.
        unit: What is counted.
        growth: The judgement on it.
        bytes_per_run: What a run adds.
        extra: Steps behind those of the path.
        has_graph: Whether an autograd graph grows.
    """
    path = RootPath(described.path.root, (*described.path.steps, *extra))
    holder, name = described.code or described.name, described.name
    evidence = Evidence(
        path=path,
        holder=holder,
        holder_kind=described.path.steps[-1].kind,
        crossing=None,
        entry_kinds=frozenset(),
        kinds=frozenset(),
        what=what,
        unit=unit,
        has_tensors=False,
        has_graph=has_graph,
        is_history=view.is_history(described),
        facts=facts_of(view, described, sample=vertex, bytes_per_entry=bytes_per_run / max(growth.rate, 1e-9)),
    )
    cause = find_cause(evidence)
    return Leak(
        what=what,
        path=path,
        holder=name,
        cause=cause.slug,
        advice=cause.advice,
        also_causes=cause.also,
        bytes_per_run=bytes_per_run,
        count_per_run=growth.rate,
        unit=unit,
        kept=(),
        fingerprint=fingerprint([described.path.root, *described.stable, unit]),
        reason=growth.reason,
        holders=(name,),
    )

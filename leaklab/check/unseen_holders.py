"""Name the store in C that keeps what no Python object refers to: by the call that gave it away.

The code is run a few more times while the calls that fill such stores are watched. Whatever such a call kept, and
nothing that Python shows reaches afterwards, was given to a store by that call, and by that line.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from leaklab.check.explained import Explained
from leaklab.check.extra_runs import NOTHING, FoundLines, whose
from leaklab.check.steps import Ran
from leaklab.collect.measurement import Measurement
from leaklab.collect.registries import registry_of_call, registry_on
from leaklab.collect.store_calls import StoreCalls, StoringCall
from leaklab.explain.cycles import ENTRY, UNSEEN_ROOT, top_steps, unseen_fingerprint
from leaklab.explain.evidence import Evidence
from leaklab.explain.idioms import find_cause
from leaklab.explain.unreachable import Region
from leaklab.heap.borrow import borrow_heap
from leaklab.heap.source_lines import CellNames, LineWriter
from leaklab.heap.view import NO_BIRTHS, HeapView
from leaklab.model import Leak, RootPath, Status

_FEWEST_RUNS, _MOST_RUNS = 2, 16
_MAX_SECONDS = 20.0
"""Runs that take longer together than this are not made for what leaks in some runs only."""


def name_unseen(
    explained: Explained,
    measurement: Measurement,
    namespace: dict[str, Any] | None,
    *,
    next_run: int,
    seconds_left: float,
    cell_name: CellNames,
) -> Generator[int, Ran, tuple[Explained, FoundLines]]:
    """Run the code a few more times, if something leaks that no Python object refers to, and name what keeps it.

    Args:
        explained: What was found.
        measurement: What was counted; no phase is open.
        namespace: The user's variables.
        next_run: Number of the next run.
        seconds_left: No run starts after so many seconds of running.
        cell_name: What the notebook calls its cells.

    Returns:
        *explained*, with the stores that were found as holders, and the lines that gave something to them.
    """
    wanted = {leak.fingerprint: leak for leak in explained.leaks if _is_unseen(leak)}
    if not wanted or seconds_left <= 0:
        return explained, NOTHING
    watch = StoreCalls(measurement.young, whose)
    n_runs = max(math.ceil(1 / max(leak.count_per_run, 1 / _MOST_RUNS)) + 1 for leak in wanted.values())
    spent = 0.0
    measurement.open_phase()
    try:
        for number in range(min(max(n_runs, _FEWEST_RUNS), _MOST_RUNS)):
            if spent >= (seconds_left if number < _FEWEST_RUNS else min(seconds_left, _MAX_SECONDS)):
                break
            with watch.watched() as is_on:
                seconds, failure = (yield next_run + number) if is_on else (0.0, "")
            spent += seconds
            if failure or not is_on:
                break
    finally:
        measurement.abandon()
    if not watch.calls:
        return explained, NOTHING
    with borrow_heap(NO_BIRTHS, namespace, (measurement, watch), heap=measurement.heap()) as view:
        stores = _stores(view, watch.calls, wanted)
    leaks = tuple(
        stores[leak.fingerprint].holding(leak) if leak.fingerprint in stores else leak for leak in explained.leaks
    )
    return replace(explained, leaks=leaks), _lines(stores, LineWriter(cell_name))


def _is_unseen(leak: Leak) -> bool:
    is_suspected = (registry := registry_on(leak.path)) is not None and leak.path.root == registry.suspicion
    return leak.unit == "objects" and (leak.path.root == UNSEEN_ROOT or is_suspected)


@dataclass(frozen=True, slots=True)
class _StoreInC:
    """What keeps one leak.

    Attributes:
        path: To its newest entry.
        holder: What the report calls it.
        calls: Those that gave it what leaks.
    """

    path: RootPath
    holder: str
    calls: tuple[StoringCall, ...]

    def holding(self, leak: Leak) -> Leak:
        """Return *leak* with this store as its holder."""
        evidence = Evidence(
            self.path, self.holder, "", None, frozenset(), frozenset(), leak.what, leak.unit,
            has_tensors=False, has_graph=False,
        )  # fmt: skip
        cause = find_cause(evidence)
        reason = leak.reason.partition("; the table of ")[0]  # the pace of a table was a guess; this is seen
        seen = f"{reason}; `{self.calls[-1].function}` was seen to keep it"
        return replace(
            leak, path=self.path, holder=self.holder, holders=(self.holder,), cause=cause.slug, advice=cause.advice,
            also_causes=cause.also, reason=seen,
        )  # fmt: skip


def _stores(view: HeapView, calls: Sequence[StoringCall], wanted: dict[str, Leak]) -> dict[str, _StoreInC]:
    """Return for the fingerprint of each leak the store that keeps it, as far as a call was seen that gave it away."""
    by_vertex: dict[int, list[StoringCall]] = {}
    vertices = view.index.vertices_of(np.array([call.address for call in calls], np.int64))
    for vertex, call in zip(vertices.tolist(), calls, strict=True):
        if vertex >= 0 and view.tree.root_of[vertex] < 0:
            by_vertex.setdefault(vertex, []).append(call)
    if not by_vertex:
        return {}
    region = Region(view.index, view.tree.root_of < 0, np.zeros(len(view.objects), bool))
    kept = np.zeros(len(region.vertices), bool)
    kept[region.places_of(list(by_vertex))] = True
    below: list[int] = region.vertices[region.below(kept)].tolist()
    found: dict[str, _StoreInC] = {}
    # What was given away is at the top, or with others at the top of the same objects.
    for top, members in (*region.hanging_together(list(by_vertex)), *region.hanging_together(below)):
        things = [view.objects[vertex] for vertex in top]
        leak = wanted.get(unseen_fingerprint(things))
        if leak is not None and (store := _store(view, [*top, *members], by_vertex)) is not None:
            found[leak.fingerprint] = store  # the newest comes last
    return found


def _store(view: HeapView, vertices: Sequence[int], calls: dict[int, list[StoringCall]]) -> _StoreInC | None:
    """Return what keeps one of *vertices*; None if no call was seen that gave it away."""
    given = [(vertex, call) for vertex in dict.fromkeys(vertices) for call in calls.get(vertex, ())]
    if not given:
        return None
    commonest = Counter(call.function for _vertex, call in given).most_common(1)[0][0]
    chosen = [(vertex, call) for vertex, call in given if call.function == commonest]
    own = tuple(call for _vertex, call in chosen)
    registry = registry_of_call(commonest)
    if registry is None:
        return None
    steps = top_steps([view.objects[vertex] for vertex, _call in chosen])
    owner = view.index.vertex_of(own[0].owner) if own[0].owner else -1
    if owner >= 0 and view.tree.root_of[owner] >= 0:
        described = view.describe(owner)
        above = tuple(replace(step, status=Status.EXPECTED) for step in described.path.steps)
        path = RootPath(described.path.root, (*above, *(replace(step, reference=registry.words) for step in steps)))
        return _StoreInC(path, described.code or described.name, own)
    path = RootPath(registry.words, tuple(replace(step, reference=ENTRY) for step in steps))
    return _StoreInC(path, registry.words, own)


def _lines(stores: dict[str, _StoreInC], writer: LineWriter) -> FoundLines:
    sites: dict[str, tuple[str, ...]] = {}
    keeping: dict[str, tuple[tuple[str, int], ...]] = {}
    for fingerprint, store in stores.items():
        line = Counter(call.line for call in store.calls).most_common(1)[0][0]
        statement = writer.statement(line[0], writer.in_file(*line))
        sites[fingerprint] = (f"{writer.write(*statement, line[2])}  # keeps it",)
        keeping[fingerprint] = (statement,)
    return FoundLines(sites, keeping=keeping)

"""Explain what grows without leaving objects behind: containers of plain data, buffers, graphs, the native heap."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from leaklab.collect.slots import GrownSlot
from leaklab.decide.growth import Growth
from leaklab.explain.causes import find_cause
from leaklab.explain.cycles import UNSEEN_ROOT
from leaklab.explain.evidence import Evidence
from leaklab.explain.graphs import largest_graph
from leaklab.explain.paths import Described, fingerprint
from leaklab.explain.view import HeapView
from leaklab.judging import GrownContainer, Judgement
from leaklab.model import ContainerGrowth, Leak, Outcome, RootPath, Status, Step
from leaklab.objects import STREAM_TYPES, is_kind_of, safe_len, summary, type_name
from leaklab.sizes import owned_bytes
from leaklab.words import format_bytes

MAX_ROWS = 200
_UNITS = {
    "str": "characters",
    "bytes": "bytes",
    "bytearray": "bytes",
    "_io.StringIO": "characters",
    "_io.BytesIO": "bytes",
}


@dataclass(frozen=True, slots=True)
class Grown:
    """Something that grows in place, found in the heap.

    Attributes:
        leak: What a leak of it would say; its outcome is that of *growth*.
        row: Its row in the table of containers; None for what is not in that table.
        growth: The judgement on it.
    """

    leak: Leak
    row: ContainerGrowth | None
    growth: Growth


def grown_places(view: HeapView, judgement: Judgement) -> Iterator[Grown]:
    """Yield every container and slot that grew; where survivors make it grow, they are the leak, and it is clean."""
    seen: set[int] = set()
    for container in judgement.containers:
        vertex = view.index.vertex_of(container.address)
        if vertex < 0 or not view.is_reached(vertex) or view.leaked[vertex]:
            continue
        seen.add(container.address)
        holds_survivors = bool(view.leaked[view.index.referents(vertex)].any())
        grown = _container(view, judgement, container, vertex)
        yield (
            grown if not holds_survivors else Grown(grown.leak, grown.row, Growth(Outcome.CLEAN, 0.0, "see the leaks"))
        )
    yield from _slots(view, judgement, seen)


def grown_graph(view: HeapView, judgement: Judgement) -> Grown | None:
    """Return the tensor whose autograd graph gets longer by every run, if one does."""
    if judgement.graph.outcome is not Outcome.LEAK:
        return None
    vertex = largest_graph(view)
    if vertex is None:
        return None
    thing, described = view.objects[vertex], view.describe(vertex)
    growth = judgement.graph
    step = Step(".grad_fn", type_name(type(thing.grad_fn)), "", Status.LEAKED, "longer by every run")  # type: ignore[attr-defined]  # largest_graph returns a tensor with a graph
    leak = _leak(
        view,
        described,
        what=f"autograd graph of {type_name(type(thing))} {summary(thing)}",
        unit="graph nodes",
        growth=growth,
        bytes_per_run=growth.rate * _NODE_BYTES,
        extra=(step,),
        has_graph=True,
    )
    return Grown(leak, None, growth)


_NODE_BYTES = 400
"""What a node without saved tensors takes at least: the C++ object, its edges and its metadata."""


def native_growth(growth: Growth | None, bytes_explained: float) -> Leak | None:
    """Return the leak that remains in the native heap when what Python holds is taken off; None if nothing does."""
    if growth is None or growth.outcome is not Outcome.LEAK or growth.rate <= 2 * bytes_explained + 1:
        return None
    path = RootPath(UNSEEN_ROOT, ())
    evidence = Evidence(
        path, "", "", None, frozenset(), frozenset(), "native memory", "bytes", has_tensors=False, has_graph=False
    )
    cause = find_cause(evidence)
    return Leak(
        what="native memory (malloc)",
        path=path,
        holder="nothing that Python can see",
        cause=cause.slug,
        advice=cause.advice,
        bytes_per_run=growth.rate - bytes_explained,
        count_per_run=growth.rate - bytes_explained,
        unit="bytes",
        kept=(),
        fingerprint=fingerprint(["native"]),
        reason=f"native heap: {growth.reason}; Python's objects explain {format_bytes(bytes_explained)} per run",
    )


def _container(view: HeapView, judgement: Judgement, container: GrownContainer, vertex: int) -> Grown:
    thing = view.objects[vertex]
    kind = type_name(type(thing))
    unit = _UNITS.get(kind, "entries")
    n_new = max(container.lengths[-1] - container.lengths[0], 1)
    content, bytes_per_unit = ("", 1.0) if unit != "entries" else _content(thing, n_new)
    growth = container.growth
    leak = _leak(
        view,
        view.describe(vertex),
        what=f"{kind} entries: {content}" if unit == "entries" else f"{kind}",
        unit=unit,
        growth=growth,
        bytes_per_run=growth.rate * bytes_per_unit,
    )
    row = ContainerGrowth(
        kind=kind,
        holder=leak.holder,
        unit=unit,
        content=content,
        lengths=container.lengths,
        at_runs=judgement.at_runs,
        per_run=(container.lengths[-1] - container.lengths[0]) / max(judgement.at_runs[-1], 1),
        bytes_per_run=growth.rate * bytes_per_unit,
        outcome=growth.outcome,
    )
    return Grown(leak, row, growth)


def _slots(view: HeapView, judgement: Judgement, seen: set[int]) -> Iterator[Grown]:
    for slot, growth in judgement.slots:
        owner = view.index.vertex_of(slot.owner)
        if owner < 0 or not view.is_reached(owner) or view.leaked[owner]:
            continue
        referents = gc.get_referents(view.objects[owner])
        if slot.ordinal >= len(referents) or id(type(referents[slot.ordinal])) != slot.kind:
            continue
        thing = referents[slot.ordinal]
        vertex = view.index.vertex_of(id(thing))
        if id(thing) in seen or (vertex >= 0 and view.leaked[view.index.referents(vertex)].any()):
            continue
        seen.add(id(thing))
        yield _slot(view, judgement, view.describe_child(owner, thing), thing, (slot, growth))


def _slot(
    view: HeapView, judgement: Judgement, described: Described, thing: object, found: tuple[GrownSlot, Growth]
) -> Grown:
    slot, growth = found
    sizes = slot.sizes
    kind = type_name(type(thing))
    is_counted = safe_len(thing) is not None and kind not in _UNITS
    unit = "entries" if is_counted else _UNITS.get(kind, "bytes")
    content, bytes_per_unit = _content(thing, max(sizes[-1] - sizes[0], 1)) if is_counted else ("", 1.0)
    what = f"{kind} entries: {content}" if is_counted else f"{kind} {summary(thing)}".strip()
    bytes_per_run = growth.rate * bytes_per_unit
    leak = _leak(view, described, what=what, unit=unit, growth=growth, bytes_per_run=bytes_per_run)
    row = ContainerGrowth(
        kind, leak.holder, unit, content, sizes, judgement.at_runs,
        (sizes[-1] - sizes[0]) / max(judgement.at_runs[-1], 1), bytes_per_run, growth.outcome,
    )  # fmt: skip
    return Grown(leak, row, growth)


def _leak(
    view: HeapView,
    described: Described,
    *,
    what: str,
    unit: str,
    growth: Growth,
    bytes_per_run: float,
    extra: tuple[Step, ...] = (),
    has_graph: bool = False,
) -> Leak:
    path = RootPath(described.path.root, (*described.path.steps, *extra))
    holder = described.expressions[-1] or str(described.path.steps[-1].reference)
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
    )
    cause = find_cause(evidence)
    return Leak(
        what=what,
        path=path,
        holder=holder,
        cause=cause.slug,
        advice=cause.advice,
        bytes_per_run=bytes_per_run,
        count_per_run=growth.rate,
        unit=unit,
        kept=(),
        fingerprint=fingerprint([described.path.root, *described.stable, unit]),
        reason=growth.reason,
        holders=(holder,),
    )


_NEWEST: dict[type, Callable[[Any], Iterable[object]]] = {
    list: reversed,
    tuple: reversed,
    dict: lambda mapping: (part for item in reversed(list(dict.items(mapping))) for part in item),
    set: iter,
}


def _content(thing: object, n_new: int) -> tuple[str, float]:
    """Return what the newest entries of a container are, and the bytes of one."""
    if any(type(thing) is stream for stream in STREAM_TYPES):
        return "", 1.0
    walk = next((read for kind, read in _NEWEST.items() if kind is type(thing)), None)
    if walk is None:
        base = next((kind for kind in (dict, list, set) if is_kind_of(thing, kind)), None)
        walk = _NEWEST[base] if base else None
    if walk is None:
        return type_name(type(thing)), float(owned_bytes([thing])) / max(safe_len(thing) or 1, 1)
    per_entry = 2 if is_kind_of(thing, dict) else 1
    sample = list(islice(walk(thing), per_entry * min(n_new, 1000)))
    if not sample:
        return "", 0.0
    words = f"{type_name(type(sample[-1 if per_entry == 1 else 1]))}"
    return words, _sample_bytes(sample) / (len(sample) / per_entry) + 8 * per_entry


def _sample_bytes(sample: list[object]) -> float:
    return float(owned_bytes(list({id(thing): thing for thing in sample}.values())))

"""Say what keeps most of the heap alive: the user's variables, other large retainers, the living tensors by kind."""

from __future__ import annotations

import types
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from leaklab.explain.freeing.retained import retained_sizes
from leaklab.explain.heap.own_objects import is_own_kind
from leaklab.model.live import HeapOverview, Retainer, TensorKind
from leaklab.objects import is_kind_of, summary, tensor_words, type_name

if TYPE_CHECKING:
    from leaklab.explain.heap.address_table import Ints
    from leaklab.explain.view import HeapView

MAX_VARIABLES = 200
MAX_RETAINERS = 200
MAX_KINDS = 200
_NAMESPACE, _MODULE = ".__dict__", "module "
_LOOKED_AT = 3000
"""So many of the largest are described to find those worth showing."""


def overview(view: HeapView) -> HeapOverview:
    """Return the whole heap at a glance.

    An object counts with what it alone keeps alive; strings and arrays that the collector does not know are not in
    these sizes.
    """
    sizes = retained_sizes(view)
    variables = _variables(view, sizes)
    return HeapOverview(
        tuple(variables[:MAX_VARIABLES]),
        tuple(_retainers(view, sizes, {row.address for row in variables})),
        tuple(_tensor_kinds(view)[:MAX_KINDS]),
        view.n_heap,
        tuple(view.notes),
    )


def _variables(view: HeapView, sizes: Ints) -> list[Retainer]:
    """Return the user's variables but the notebook's own, what retains most first."""
    rows = {}
    for start in view.starts:
        is_users = start.is_variable and not start.is_history and not start.is_shells
        vertex = view.index.vertex_of(start.address) if is_users else -1
        if vertex >= 0 and not _is_fixture(view.objects[vertex]) and start.address not in rows:
            rows[start.address] = _row(view, sizes, vertex, start.expression, start.words)
    return sorted(rows.values(), key=lambda row: -row.retained_bytes)


def _retainers(view: HeapView, sizes: Ints, known: set[int]) -> list[Retainer]:
    """Return other objects that retain much, the largest first."""
    rows: list[Retainer] = []
    for vertex in np.argsort(-sizes, kind="stable")[:_LOOKED_AT].tolist():
        if len(rows) == MAX_RETAINERS:
            break
        address = int(view.index.ids[vertex])
        if address in known or _is_fixture(view.objects[vertex]) or vertex == view.namespace:
            continue
        if not view.is_reached(vertex):
            rows.append(_row(view, sizes, vertex, "", "no variable reaches it"))
            continue
        described = view.describe(vertex)
        expression = described.expressions[-1] or ""
        if not (expression.endswith(_NAMESPACE) and described.path.root.startswith(_MODULE)):  # the module itself
            rows.append(_row(view, sizes, vertex, expression, described.path.root))
    return rows


def _row(view: HeapView, sizes: Ints, vertex: int, expression: str, place: str) -> Retainer:
    thing = view.objects[vertex]
    words = summary(thing) if view.summaries else ""
    address = int(view.index.ids[vertex])
    return Retainer(expression, place, type_name(type(thing)), words, int(sizes[vertex]), address)


def _is_fixture(thing: object) -> bool:
    """Return whether *thing* belongs to the program rather than to its data: nobody lets go of a module or a class.

    Nor of what leaklab shows with.
    """
    if is_own_kind(type(thing)):
        return True
    return any(is_kind_of(thing, kind) for kind in (types.ModuleType, type, types.FrameType))


def _tensor_kinds(view: HeapView) -> list[TensorKind]:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    sizes: dict[tuple[str, str], int] = defaultdict(int)
    seen: set[int] = set()
    for vertex in view.tensors:
        thing = view.objects[vertex]
        kind = (type_name(type(thing)), tensor_words(thing) if view.summaries else "")
        counts[kind] += 1
        fresh = set(view.storages.keys_of.get(vertex, ())) - seen
        seen |= fresh
        sizes[kind] += sum(view.storages.by_key[key].n_bytes for key in fresh)
    rows = [TensorKind(*kind, count, sizes[kind]) for kind, count in counts.items()]
    return sorted(rows, key=lambda row: (-row.n_bytes, -row.count))

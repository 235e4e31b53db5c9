"""Name who holds what is new or has grown; set aside what belongs to a library or the notebook itself."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

import numpy as np
import numpy.typing as npt

from leaklab.explain.leaks.ownership import Ownership
from leaklab.explain.leaks.sizes import content_of
from leaklab.heap.paths import Described
from leaklab.heap.view import HeapView
from leaklab.model.heap_diff import ArrayChange, Changed, ContainerChange, Difference
from leaklab.runtime.addresses import Addresses, kinds_of, object_at
from leaklab.runtime.objects import type_name
from leaklab.runtime.referents import get_referents
from leaklab.runtime.sizes import is_leaf

MAX_HOLDERS = 3
"""Expressions named for one row; the others are like them."""
_MAX_LOOKED_AT = 12
MAX_ROWS = 200
"""Rows of one table for which holders are looked up."""
_BATCH = 50_000
_NOWHERE = "nothing in Python"
_FAR = np.iinfo(np.int64).max


def name_holders(view: HeapView, difference: Difference, changed: Changed) -> Difference:
    """Return *difference* with the expressions for what holds the new objects, and without what nobody asked about.

    What *changed* lists and has died since is left as it is.
    """
    ownership = Ownership(view)
    vertices = _known(view, changed.born)
    # A tensor is shown wherever it is kept.
    is_not_users = ownership.is_not_users(vertices) & ~view.is_tensor[vertices]
    aside, users = vertices[is_not_users], vertices[~is_not_users]
    aside_kinds = _names(view, aside)
    places = Counter(map(ownership.root_words, aside.tolist()))
    holders = _holders_by_name(view, users)
    return replace(
        difference,
        objects=tuple(
            replace(row, n_aside=min(aside_kinds[row.kind], row.n_born), holders=holders.get(row.kind, ()))
            for row in difference.objects
        ),
        tensors=tuple(
            replace(row, holders=_tensor_holders(view, changed.born_tensors, number))
            for number, row in enumerate(difference.tensors)
        ),
        arrays=_named_arrays(view, difference, changed.born_arrays),
        containers=_containers(view, changed.grown, ownership),
        n_aside=len(aside),
        aside=tuple(words for words, _count in places.most_common(MAX_HOLDERS)),
    )


def _known(view: HeapView, addresses: Addresses) -> npt.NDArray[np.int64]:
    """Return the vertices of *addresses*, those nearest to a root first, and among these the oldest first."""
    vertices = np.sort(view.index.vertices_of(addresses).astype(np.int64))  # the heap lists the oldest first
    vertices = vertices[vertices >= 0]
    cost = np.where(view.tree.root_of[vertices] >= 0, view.tree.cost[vertices], _FAR)
    result: npt.NDArray[np.int64] = vertices[np.argsort(cost, kind="stable")]
    return result


def _names(view: HeapView, vertices: npt.NDArray[np.int64]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for kind, count in Counter(kinds_of([view.objects[vertex] for vertex in vertices.tolist()]).tolist()).items():
        counts[type_name(object_at(kind))] += count  # type: ignore[arg-type]  # the address of a living type
    return counts


def _holders_by_name(view: HeapView, vertices: npt.NDArray[np.int64]) -> dict[str, tuple[str, ...]]:
    """Return for each type's name the expressions for the first of *vertices*, but for those held by one already named.

    ``h`` and ``h[0]`` are both new: ``h`` implies the other.
    """
    chosen: dict[int, list[int]] = defaultdict(list)
    for vertex, kind in zip(vertices.tolist(), view.kinds[vertices].tolist(), strict=True):
        if len(chosen[kind]) < _MAX_LOOKED_AT:
            chosen[kind].append(vertex)
    result: dict[str, tuple[str, ...]] = {}
    for some in list(chosen.values())[:MAX_ROWS]:
        result[type_name(type(view.objects[some[0]]))] = expressions_of(view, some)
    return result


def expressions_of(view: HeapView, vertices: Iterable[int]) -> tuple[str, ...]:
    """Return for some of *vertices* the expression that Python evaluates to it, or words; the plainest ones."""
    found = {expression_of(view, vertex) for vertex in islice(vertices, _MAX_LOOKED_AT)}
    return tuple(sorted(found, key=_by_length)[:MAX_HOLDERS])


def expression_of(view: HeapView, vertex: int) -> str:
    """Return the expression for *vertex*, words for its path where Python has none, or that nothing holds it."""
    if not view.is_reached(vertex):
        return _NOWHERE
    described = view.describe(vertex)
    if (carrier := described.graph_owner) is not None and carrier.code:
        return described.name
    if described.expressions and (expression := described.expressions[-1]):
        return expression
    if expression := _other_expression(view, vertex, described):
        return expression
    return f"{described.path.root} {_chained(step.reference for step in described.path.steps)}".strip()


def _other_expression(view: HeapView, vertex: int, described: Described) -> str:
    """Return the expression for *vertex* by another way than one that Python cannot write; empty if there is none.

    The key of an optimizer's state is a parameter, which a module has by name.
    """
    vertices = view.path(vertex)
    known = sum(1 for expression in described.expressions if expression is not None)
    if known == len(described.expressions) or not known:
        return ""
    place = described.positions[known]
    below = [view.objects[each] for each in vertices[place:]]
    others = [each for each in view.index.referrers(vertices[place]).tolist() if view.is_reached(each)]
    for other in sorted(others, key=lambda each: (int(view.tree.cost[each]), each))[:_MAX_LOOKED_AT]:
        if other != vertices[place - 1] and vertices[place] not in view.path(other):
            found = view.describe_child(other, *below)
            if (expression := found.expressions[-1]) and found.graph_owner is None:
                return expression
    return ""


def _chained(references: Iterable[str]) -> str:
    """Write references one behind the other; those in words stand apart."""
    return "".join(text if text.startswith((".", "[")) else f" {text}" for text in references).strip()


def _tensor_holders(view: HeapView, born: npt.NDArray[np.int64], number: int) -> tuple[str, ...]:
    """Return the expressions for some of the tensors that row *number* counts."""
    addresses = born[born[:, 1] == number, 0] if number < MAX_ROWS else born[:0, 0]
    return expressions_of(view, _known(view, addresses).tolist())


def _named_arrays(view: HeapView, difference: Difference, born: npt.NDArray[np.int64]) -> tuple[ArrayChange, ...]:
    wanted = [born[born[:, 1] == number, 0][:_MAX_LOOKED_AT].tolist() for number in range(len(difference.arrays))]
    names = _owners_of({address for some in wanted[:MAX_ROWS] for address in some}, view)
    return tuple(
        replace(
            row,
            holders=tuple(
                sorted({names[address] for address in some if address in names}, key=_by_length)[:MAX_HOLDERS]
            ),
        )
        for row, some in zip(difference.arrays, wanted, strict=True)
    )


def _by_length(expression: str) -> tuple[int, str]:
    return len(expression), expression  # h[2] before h[10]


def _owners_of(wanted: set[int], view: HeapView) -> dict[int, str]:
    """Return the expression for each array at the addresses *wanted*, which the collector does not list."""
    found: dict[int, str] = {}
    reached = np.where(view.tree.root_of >= 0, view.tree.cost, _FAR)
    reached[view.namespace if view.namespace >= 0 else slice(0, 0)] = -1
    order = np.argsort(reached, kind="stable")
    for start in range(0, len(order), _BATCH):
        if len(found) == len(wanted):
            break
        batch = order[start : start + _BATCH].tolist()
        targets = get_referents(*(view.objects[vertex] for vertex in batch))
        if any(id(target) in wanted for target in targets if is_leaf(target)):
            for vertex in batch:
                _look_into(view, vertex, wanted, found)
    return found


def _look_into(view: HeapView, vertex: int, wanted: set[int], found: dict[int, str]) -> None:
    for target in get_referents(view.objects[vertex]):
        if id(target) in wanted and id(target) not in found and view.is_reached(vertex):
            described = view.describe_child(vertex, target)
            expression = described.expressions[-1] if described.expressions else None
            found[id(target)] = expression or _chained(step.reference for step in described.path.steps)


def _containers(view: HeapView, grown: npt.NDArray[np.int64], ownership: Ownership) -> tuple[ContainerChange, ...]:
    """Return a row for each of the user's containers; namespaces are none, their names have rows of their own."""
    places = {start.address for start in view.starts if start.is_place or start.is_history}
    rows: list[ContainerChange] = []
    for address, before, after in grown.tolist():
        vertex = view.index.vertex_of(address)
        if vertex < 0 or address in places or vertex == view.namespace or ownership.is_one_not_users(vertex):
            continue
        thing = view.objects[vertex]
        content, each = content_of(thing, after - before) if after > before else ("", 0.0)
        n_bytes = round(each * max(after - before, 0))
        rows.append(
            ContainerChange(expression_of(view, vertex), type_name(type(thing)), before, after, content, n_bytes)
        )
        if len(rows) == MAX_ROWS:
            break
    return tuple(rows)

"""Find the fewest references that keep objects alive, and prove that cutting them frees the objects.

By the theorem of Ford and Fulkerson the smallest cut has as many references as there are paths that share none; scipy
finds both at once. References that nobody can cut count as unlimited. Of several smallest cuts the one is taken that
Python can write best, and of those the one nearest to the objects, of which there is exactly one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leaklab.explain.freeing.backward import Backward, backward
from leaklab.explain.freeing.cuttable import NEVER, is_fixed, price_of_root, prices
from leaklab.explain.reaching.flow import largest_flow
from leaklab.explain.reaching.freed import freed_without_references
from leaklab.explain.reaching.reach import ROOT

if TYPE_CHECKING:
    from leaklab.explain.heap.address_table import Ints
    from leaklab.explain.view import HeapView

__all__ = ["ROOT", "Cut", "freed_without", "independent_paths", "smallest_cut"]

_ONE = 4096
"""What one reference counts: more than the prices of all references of a cut together."""
_MAX_SORTED = 1000
"""So many paths are compared to find the best."""
_MAX_TURNS = 32
"""So often a reference of the cut may turn out to be none that can be cut before the search gives up."""


@dataclass(frozen=True, slots=True)
class Cut:
    """References whose removal makes the targets unreachable from every root.

    Attributes:
        references: ``(holder, held)`` as vertices, ascending; the holder is `ROOT` where a root itself holds the
            object. Several references from the same holder to the same object count as one: they go together.
            Empty if nothing reaches the targets, or if no cut is possible or known: *obstacle* tells.
        is_exact: Whether this is proved to be a smallest set.
        obstacle: Why there is no cut, one sentence; empty if there is one, or none is needed.
        n_orphans: Objects that no root reaches but that lead to the targets. They may keep them alive whatever is cut:
            `freed_without` counts them as holders.
    """

    references: tuple[tuple[int, int], ...]
    is_exact: bool
    obstacle: str = ""
    n_orphans: int = 0


def smallest_cut(view: HeapView, targets: Sequence[int], *, keeps_variables: bool = False) -> Cut:
    """Return a smallest set of references whose removal makes all *targets* unreachable from every root.

    Args:
        view: The heap.
        targets: Vertices, at least one.
        keeps_variables: Whether the user's variables are to stay, except those that are a target themselves: nobody
            deletes a trainer to let go of one of its results.
    """
    found = _narrowest(view, targets, keeps_variables=keeps_variables)
    region = found.region
    if found.is_known:
        references = tuple((int(region.holders[number]), int(region.held[number])) for number in found.numbers)
        return Cut(references, region.is_whole, "", region.n_orphans)
    if found.is_open:
        obstacle = "too many of the references turned out to be parts of objects"
        return Cut((), is_exact=False, obstacle=obstacle, n_orphans=region.n_orphans)
    return Cut((), region.is_whole, _obstacle(view, targets, region), region.n_orphans)


def independent_paths(view: HeapView, target: int, limit: int = 8, *, keeps_variables: bool = False) -> list[list[int]]:
    """Return paths from roots to *target*, no two of which share a reference that can be cut.

    There are as many as the smallest cut has references, one through each of them.

    Args:
        view: The heap.
        target: A vertex.
        limit: No more paths than this: the cheapest to follow.
        keeps_variables: As in `smallest_cut`: paths may then begin at the same variable.

    Returns:
        Each path root first: it begins at one of the roots of the view, such as the dict of the user's variables or a
        module's, and ends at *target*. Empty if nothing reaches it; where nothing can be cut, the one path is that of
        the view.
    """
    narrowest = _narrowest(view, [target], keeps_variables=keeps_variables)
    region, capacities = narrowest.region, narrowest.capacities
    flow = largest_flow(region.holders, region.held, np.where(capacities == NEVER, NEVER, 1), [target])
    if flow is None:
        return [path for path in [view.path(target)] if path]
    found = [_from_root(view, path) for path in flow.paths(_MAX_SORTED)]
    found.sort(key=lambda path: (len(path), [int(view.tree.cost[vertex]) for vertex in path[:2]], path))
    return found[:limit]


def freed_without(view: HeapView, references: Iterable[tuple[int, int]]) -> Ints:
    """Return the vertices that would go without *references*, ascending: what nothing else in the heap leads to.

    Only what a root reaches now can be among them. What no root reaches counts as held by something unseen, so what it
    refers to stays.

    Args:
        view: The heap.
        references: ``(holder, held)`` as vertices, the holder `ROOT` for a root's own; all references between two
            objects go together. Those that do not exist change nothing.
    """
    return freed_without_references(view.index, view.reach, references)


@dataclass(frozen=True, slots=True, eq=False)
class _Narrowest:
    """Where the way from the roots to the targets is narrowest.

    Attributes:
        region: The references that lead there.
        capacities: What each of them may carry, `NEVER` where it turned out that it cannot be cut.
        numbers: The references of the smallest cut; empty also where nothing leads to the targets.
        is_known: Whether these are the smallest cut; otherwise there is none, or none was found.
        is_open: Whether the search gave up before it knew.
    """

    region: Backward
    capacities: Ints
    numbers: list[int]
    is_known: bool = False
    is_open: bool = False


def _narrowest(view: HeapView, targets: Sequence[int], *, keeps_variables: bool) -> _Narrowest:
    """Find the smallest cut of references that can be cut: whether one can is asked of those that are in the way."""
    region, capacities = _region(view, targets, keeps_variables=keeps_variables)
    for _ in range(_MAX_TURNS):
        flow = largest_flow(region.holders, region.held, capacities, targets)
        if flow is None:
            return _Narrowest(region, capacities, [])
        numbers: list[int] = flow.nearest_cut().tolist()
        fixed = [number for number in numbers if _is_fixed(view, region, number)]
        if not fixed:
            return _Narrowest(region, capacities, numbers, is_known=True)
        capacities[fixed] = NEVER
    return _Narrowest(region, capacities, [], is_open=True)


def _from_root(view: HeapView, path: list[int]) -> list[int]:
    """Return *path* with its beginning, where the search had ended before it came to a root."""
    return path if path[0] in view.roots else [*view.path(path[0])[:-1], *path]


def _region(view: HeapView, targets: Sequence[int], *, keeps_variables: bool) -> tuple[Backward, Ints]:
    """Return what leads to *targets*, and the capacity of each reference, `NEVER` where it is unlimited."""
    region = backward(view, np.asarray(targets, np.int64))
    by_root = region.holders == ROOT
    capacities = np.full(len(by_root), NEVER, np.int64)
    asked = prices(view, region.holders[~by_root], region.held[~by_root])
    capacities[~by_root] = np.where(asked == NEVER, NEVER, _ONE + asked)
    roots = _prices_of_roots(view)
    if keeps_variables:
        kept = set(_variables(view)).difference(targets)
        roots.update(dict.fromkeys(kept, NEVER))
        capacities[(region.holders == view.namespace) & np.isin(region.held, list(kept))] = NEVER
    asked = np.array([roots.get(vertex, NEVER) for vertex in region.held[by_root].tolist()], np.int64)
    capacities[by_root] = np.where(asked == NEVER, NEVER, _ONE + asked)
    return region, capacities


def _prices_of_roots(view: HeapView) -> dict[int, int]:
    """Return for each root, by vertex, what cutting it off costs, `NEVER` if several roots hold it or it is a place."""
    found: dict[int, int] = {}
    vertices = view.index.vertices_of(np.array([start.address for start in view.starts], np.int64)).tolist()
    for vertex, start in zip(vertices, view.starts, strict=True):
        price = 0 if start.is_variable else price_of_root(start.words, is_place=start.is_place)
        found[vertex] = NEVER if NEVER in (price, found.get(vertex, 0)) else max(price, found.get(vertex, 0))
    found[view.namespace] = NEVER
    return found


def _variables(view: HeapView) -> list[int]:
    """Return the vertices of the values of the user's variables."""
    addresses = [start.address for start in view.starts if start.is_variable]
    vertices: list[int] = view.index.vertices_of(np.array(addresses, np.int64)).tolist()
    return vertices


def _is_fixed(view: HeapView, region: Backward, number: int) -> bool:
    holder, held = int(region.holders[number]), int(region.held[number])
    return holder != ROOT and is_fixed(view, holder, held)


def _obstacle(view: HeapView, targets: Sequence[int], region: Backward) -> str:
    """Say why nothing can be cut."""
    if np.isin(view.roots, targets).any():
        return "it is alive for its own sake: a module, a namespace, a running function or the like"
    if not region.is_whole:
        return "too much refers to it to look at all of it"
    return "a root reaches it through parts of objects only, none of which can be cut"

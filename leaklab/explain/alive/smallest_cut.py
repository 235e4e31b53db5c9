"""Find the fewest references that keep objects alive, and prove that cutting them frees the objects.

By the theorem of Ford and Fulkerson the smallest cut has as many references as there are paths that share none; scipy
finds both at once. References that nobody can cut count as unlimited. Of several smallest cuts the one is taken that
Python can write best, and of those the one nearest to the objects, of which there is exactly one.
"""

from __future__ import annotations

import collections
import functools
import itertools
import re
import types
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from leaklab.heap.names import best_reference
from leaklab.heap.names_by_others import by_module
from leaklab.heap.reachability import freed_without_references, largest_flow, references_to
from leaklab.heap.shortest_paths import ROOT
from leaklab.runtime.addresses import types_at
from leaklab.runtime.autograd_graph import is_node_type
from leaklab.runtime.objects import HEAP_TYPE, flags_of, has_base, is_kind_of, is_tensor_type, loaded_type

if TYPE_CHECKING:
    from leaklab.heap.view import HeapView
    from leaklab.runtime.addresses import Ints

MAX_REFERENCES = 200_000
"""So many references are followed back at most; a search in more would take seconds."""
NEVER = -1
"""The price of a reference that nobody can cut."""
_EASY, _AWKWARD, _UNKNOWN = 0, 1, 2
# Python has no way to change what they refer to once they are made.
_FIXED: tuple[type, ...] = (
    tuple, frozenset, types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType, types.FunctionType,
    types.CodeType, types.TracebackType, types.ModuleType, types.MappingProxyType, property, classmethod, staticmethod,
    slice, memoryview, functools.partial, weakref.ref, type({}.items()), type({}.keys()), type({}.values()),
)  # fmt: skip
_EASILY_CHANGED: tuple[type, ...] = (
    list, dict, set, collections.deque, collections.OrderedDict, collections.defaultdict, types.CellType, BaseException,
)  # fmt: skip
# They release what they hold when they end or are closed; their variables cannot be deleted from outside.
_ENDING: tuple[type, ...] = (types.FrameType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
# References of objects that can be changed, but not in this place.
_FIXED_REFERENCES = (".__dict__", "._base", ".__class__", ".__closure__", ".__self__", ".__func__", ".__wrapped__")
_FIXED_ROOTS = ("type ", "context variable")
_ONE = 4096
"""What one reference counts: more than the prices of all references of a cut together."""
_MAX_SORTED = 1000
"""So many paths are compared to find the best."""
_MAX_TURNS = 32
"""So often a reference of the cut may turn out to be none that can be cut before the search gives up."""
_BY_REFERENCE: Final = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"\.grad_fn", "store a tensor without its graph instead: {owner}.detach()"),
        (r"\._base", "make a copy of the part that is needed: {owner}.clone()"),
        (r"\.base", "make a copy of the part that is needed: {owner}.copy()"),
        (
            r"\.next_functions|\._?saved|\.variable",
            "let go of the autograd graph: the tensor that carries it, or backward()",
        ),
        (r"local ", "let the function return, or delete this variable in it"),
        (r"closure variable", "{gone}: that function uses this variable"),
        (r"default of", "{gone}: it is a default of that function"),
        (r"cached result", "{owner}.cache_clear()"),
        (r"element", "{owner}.discard(...)"),
        (r"key ", "delete the entry of {owner} with this key"),
        (r"queued item", "take it out of the queue: {owner}.get()"),
    )
)
_SET_TO_NONE: Final = (".grad", ".__traceback__", ".__context__", ".__cause__")


@dataclass(frozen=True, slots=True)
class FoundCut:
    """References whose removal makes the targets unreachable from every root.

    Attributes:
        references: ``(holder, held)`` as vertices, ascending; the holder is `ROOT` where a root itself holds the
            object. Several references from the same holder to the same object count as one: they go together.
            Empty if nothing reaches the targets, or if no cut is possible or known: *obstacle* says why.
        is_exact: Whether this is proved to be a smallest set.
        obstacle: Why there is no cut, one sentence; empty if there is one, or none is needed.
        n_orphans: Objects that no root reaches but that lead to the targets. They may keep them alive whatever is cut:
            `freed_without` counts them as holders.
    """

    references: tuple[tuple[int, int], ...]
    is_exact: bool
    obstacle: str = ""
    n_orphans: int = 0


def smallest_cut(view: HeapView, targets: Sequence[int], *, keeps_variables: bool = False) -> FoundCut:
    """Return a smallest set of references whose removal makes all *targets* unreachable from every root.

    Args:
        view: The heap.
        targets: Vertices, at least one.
        keeps_variables: Whether the user's variables are to stay, except those that are a target themselves: nobody
            deletes a trainer to release one of its results.
    """
    found = _narrowest(view, targets, keeps_variables=keeps_variables)
    region = found.region
    if found.is_known:
        references = tuple((int(region.holders[number]), int(region.held[number])) for number in found.numbers)
        return FoundCut(references, region.is_whole, "", region.n_orphans)
    if found.is_open:
        obstacle = "too many of the references are parts of objects, which cannot be cut"
        return FoundCut((), is_exact=False, obstacle=obstacle, n_orphans=region.n_orphans)
    return FoundCut((), region.is_whole, _obstacle(view, targets, region), region.n_orphans)


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
    found = _named_better(view, [_from_root(view, path) for path in flow.paths(_MAX_SORTED)])
    found.sort(key=lambda path: (len(path), [int(view.tree.cost[vertex]) for vertex in path[:2]], path))
    return found[:limit]


def _named_better(view: HeapView, paths: list[list[int]]) -> list[list[int]]:
    """Return the paths, through modules instead of the keys of optimizers where no other path goes there."""
    for number, path in enumerate(paths):
        better = by_module(view, path)
        if better == path:
            continue
        better = _from_root(view, better)
        others = {pair for other in paths[:number] + paths[number + 1 :] for pair in itertools.pairwise(other)}
        if others.isdisjoint(set(itertools.pairwise(better)) - set(itertools.pairwise(path))):
            paths[number] = better
    return paths


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
        return "it is a root itself: a module, a namespace, a running function or the like"
    if not region.is_whole:
        return "too many objects refer to it"
    return "a root reaches it through parts of objects only, none of which can be cut"


@dataclass(frozen=True, slots=True, eq=False)
class Backward:
    """What leads to some objects, as far as roots reach it.

    Attributes:
        holders: The holder of each reference, as a vertex; `ROOT` for what a root itself holds.
        held: The object that it holds. No two references have both in common.
        is_whole: Whether all of it is here. If not, what was not followed further back counts as held by roots.
        n_orphans: Objects that lead here and that no root reaches: they keep what they refer to, whatever is cut.
    """

    holders: Ints
    held: Ints
    is_whole: bool
    n_orphans: int


def backward(view: HeapView, targets: Ints, max_references: int = MAX_REFERENCES) -> Backward:
    """Follow references back from *targets* to the roots, no further than these.

    The search ends when it has followed *max_references*.
    """
    is_root = np.zeros(view.index.n_vertices, bool)
    is_root[view.roots] = True
    seen = np.zeros(view.index.n_vertices, bool)
    holders: list[Ints] = []
    held: list[Ints] = []
    open_ends = np.zeros(0, np.int64)
    n_followed = n_orphans = 0
    level = np.unique(targets)
    while len(level):
        seen[level] = True
        if n_followed + int(np.diff(view.index.reverse[0])[level].sum()) > max_references:
            open_ends = level
            break
        sources, above = references_to(view.index, level[~is_root[level]])
        orphans = view.is_orphan[sources]
        n_orphans += len(np.unique(sources[orphans]))
        sources, above = sources[~orphans], above[~orphans]
        n_followed += len(sources)
        holders.append(sources)
        held.append(above)
        level = np.unique(sources)
        level = level[~seen[level]]
    ends = np.union1d(open_ends, view.roots[seen[view.roots]])
    holders.append(np.full(len(ends), ROOT))
    held.append(ends)
    pairs = np.unique(np.stack([np.concatenate(holders), np.concatenate(held)], axis=1).astype(np.int64), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    return Backward(pairs[:, 0], pairs[:, 1], not len(open_ends), n_orphans)


def prices(view: HeapView, holders: Ints, held: Ints) -> Ints:
    """Return for each reference how little one would like to cut it: 0 for an entry or attribute, or `NEVER`."""
    of_kind = {address: _price_of_kind(kind) for address, kind in types_at(view.kinds[holders]).items()}
    kinds = view.kinds[holders]
    known = np.array(sorted(of_kind), np.int64)
    values = np.array([of_kind[address] for address in known.tolist()], np.int64)
    result: Ints = values[np.searchsorted(known, kinds)] if len(known) else np.zeros(0, np.int64)
    result[kinds == view.index.ids[held]] = NEVER  # its class
    return result


def _price_of_kind(kind: type) -> int:
    if any(kind is each for each in _FIXED) or has_base(kind, type) or is_node_type(kind):
        return NEVER
    if any(kind is each for each in _ENDING):
        return _AWKWARD
    if any(has_base(kind, each) for each in _EASILY_CHANGED) or is_tensor_type(kind):
        return _EASY
    if any(has_base(kind, each) for each in (tuple, frozenset, weakref.ref)):
        return NEVER
    return _EASY if flags_of(kind) & HEAP_TYPE else _UNKNOWN


def is_fixed(view: HeapView, holder: int, held: int) -> bool:
    """Return whether the reference from *holder* to *held*, whose kind allows it, is nevertheless none to be cut.

    The reference has to be named for that, which takes some microseconds.
    """
    things: list[Any] = [view.objects[holder], view.objects[held]]
    array_type = loaded_type("numpy", "ndarray")
    if array_type is not None and has_base(type(things[0]), array_type):
        return best_reference(*things).text == ".base"
    if not (type(things[1]) is dict or is_tensor_type(type(things[1]))):
        return False
    return best_reference(*things).text in _FIXED_REFERENCES


def price_of_root(words: str, *, is_place: bool) -> int:
    """Return the same for what a root itself holds; a place, such as a module, holds itself and is never cut."""
    return NEVER if is_place or words.startswith(_FIXED_ROOTS) else _AWKWARD


def release_statement(holder: object, reference: str, expressions: Sequence[str], owner: str) -> tuple[str, bool]:
    """Return how *holder* drops a reference, and whether that is a Python statement.

    Args:
        holder: The object that refers.
        reference: How it refers, as a path shows it.
        expressions: For each place that has to be emptied what evaluates to the object there; empty if unknown.
        owner: Expression for the holder, or words for it.
    """
    array = loaded_type("numpy", "ndarray")
    is_fixed = array is not None and is_kind_of(holder, array)  # an array keeps its length: nothing can be deleted
    if (reference in _SET_TO_NONE or is_fixed) and expressions:
        return f"{' = '.join(expressions)} = None", True
    for pattern, words in _BY_REFERENCE:
        if pattern.match(reference):
            gone = f"del {owner}" if owner.endswith("]") else f"let go of {owner or 'its owner'}"
            return words.format(owner=owner or "its owner", gone=gone), False
    if is_kind_of(holder, tuple) and expressions:
        return f"put a tuple without this item in the place of {owner}", False
    if expressions:
        return f"del {', '.join(expressions)}", True
    return f"drop the reference {reference!r} of {owner or 'its owner'}", False

"""Borrow the living heap as a view: read it once, with its roots, and with what each step of a path costs.

The path to an autograd graph goes through the tensors by which one run hands its graph on to the next, not through
results of it. Of all tensors that the last run made, a graph that gets longer hangs on those that the *next* run will
compute with: a hidden state, a running total. What was computed from them (an output, a loss) leads to the same nodes,
and is replaced by a new one without keeping anything. torch numbers its nodes in the order in which they are made, so
the border between two runs is known: what the nodes of the newest run take from beyond it was handed on by the run
before, and its counterparts in the newest run are what is handed on now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from leaklab.heap.backwards import on_best_paths
from leaklab.heap.hidden_references import hidden_edges
from leaklab.heap.index import HeapIndex, ReferencePass, own_dicts
from leaklab.heap.roots import find_starts, interpreter_tables, is_shell_type
from leaklab.heap.running import empty_snapshots
from leaklab.heap.shortest_paths import PathTree, Start, paths_from
from leaklab.heap.view import BASELINE, NO_BIRTHS, Births, HeapView
from leaklab.measure.checkpoint import whole_heap
from leaklab.runtime.addresses import KindTable, kinds_of, picked
from leaklab.runtime.autograd_graph import Edge, inputs_of, is_node_type, number_of, result_of
from leaklab.runtime.graph_marks import UNSET, GraphMarks, next_number
from leaklab.runtime.objects import is_tensor_type, no_torch_functions
from leaklab.runtime.ours import own_addresses


class _Result(NamedTuple):
    """A result of a node: of which type the node is, which of its results, and how long before the run's end."""

    kind: type
    number: int
    age: int


def carried_tensors(tensors: Iterable[Any], nodes: Iterable[Any], marks: GraphMarks) -> set[int]:
    """Return the addresses of those of *tensors* that hand the graph of the last run on to the next.

    Args:
        tensors: All tensors of the heap.
        nodes: The autograd nodes whose inputs were looked at before: to ask others would wrap more of a graph.
        marks: Where the runs began; nothing was computed since the last one ended.

    Returns:
        Empty where the last run used nothing of the graphs of earlier ones, or where that is not known.
    """
    taken = {
        (id(before), number): before
        for node in nodes
        if number_of(node) >= marks.newest
        for before, number in inputs_of(node)
        if before is not None and marks.first <= number_of(before) < marks.newest
    }
    if not taken:
        return set()
    with no_torch_functions():
        results = {id(tensor): result for tensor in tensors if (result := result_of(tensor)) is not None}
    now = next_number()
    made = {
        address: _Result(type(node), number, now - number_of(node))
        for address, (node, number) in results.items()
        if marks.newest <= number_of(node) < now
    }
    carried: set[int] = set()
    for (_address, number), node in taken.items():
        if number_of(node) >= marks.previous:
            carried |= _counterparts(made, _Result(type(node), number, marks.newest - number_of(node)))
    # What was used and has no counterpart was not made in every run: it is still there to be used by the next.
    return carried or {address for address, (node, number) in results.items() if (id(node), number) in taken}


def _counterparts(made: dict[int, _Result], earlier: _Result) -> set[int]:
    """Return who of *made* plays the part in the last run that *earlier* played in the run before."""
    alike = {address: abs(result.age - earlier.age) for address, result in made.items() if result[:2] == earlier[:2]}
    nearest = min(alike.values(), default=0)
    return {address for address, distance in alike.items() if distance == nearest}


# What it costs to come to an object. What the last run made has kept nothing until then: whatever of earlier runs it
# holds, as a batch that was drawn from a buffer does, somebody else held before, and is the holder if he still does.
_STEP = 1
_STEP_LEAKED = 60
_STEP_NEWEST = 600
_STEP_PASSING = 1_000_000  # a graph hangs on what is carried on, however much shorter the way through a result of it
_STEP_SHELL = 40  # whatever the shell holds, the notebook has a better name for


@contextmanager
def borrow_heap(
    births: Births,
    namespace: dict[str, Any] | None,
    own: Sequence[object] = (),
    *,
    heap: AbstractContextManager[list[object]] | None = None,
    summaries: bool = True,
    starts: Sequence[Start] = (),
    min_data_bytes: int | None = None,
) -> Iterator[HeapView]:
    """Lend the heap as a view; no automatic collection runs inside.

    *heap* lends every object and empties the list, by default `whole_heap`; all else is as for `heap_view`.
    """
    try:
        with (
            heap or whole_heap() as objects,
            heap_view(
                objects, births, namespace, own, summaries=summaries, starts=starts, min_data_bytes=min_data_bytes
            ) as view,
        ):
            yield view
    finally:
        empty_snapshots()


@contextmanager
def heap_view(
    objects: list[object],
    births: Births,
    namespace: dict[str, Any] | None,
    own: Sequence[object] = (),
    *,
    summaries: bool = True,
    starts: Sequence[Start] = (),
    min_data_bytes: int | None = None,
) -> Iterator[HeapView]:
    """Build the view of *objects*, which the caller empties.

    Args:
        objects: The whole heap; objects that only hidden references reach are appended.
        births: The survivors of the measured runs.
        namespace: The user's variables.
        own: Objects that must not appear as holders, beside instances of leaklab's classes, which never do.
        summaries: Whether paths may show shapes and lengths.
        starts: Where paths may begin, as `find_starts` has just returned it; it is asked if there are none.
        min_data_bytes: Arrays and bytes of so many bytes, which hold nothing, are objects of the view too; by default
            none is.
    """
    n_heap = len(objects)
    kinds = kinds_of(objects)
    types = KindTable(kinds)
    ignored = np.append(own_addresses(objects, types), [id(thing) for thing in (*own, own, births, objects)])
    references = ReferencePass(objects, ignored, types, with_bytes=min_data_bytes is not None)
    is_followed = births.graph_marks.newest != UNSET  # a check, which explains what it has found several times
    hidden = hidden_edges(objects, references, min_data_bytes=min_data_bytes, is_followed=is_followed)
    index = references.finish(hidden.extra_objects, hidden.edges)
    objects.extend(hidden.extra_objects)
    del references
    if hidden.extra_objects:
        kinds = np.concatenate([kinds, kinds_of(hidden.extra_objects)])
        types = KindTable(kinds)
    birth_run = np.full(index.n_vertices, BASELINE, np.int64)
    vertices = index.vertices_of(births.addresses)
    is_there = vertices >= 0
    if len(births.kinds):  # another object may lie there by now, one that was made to judge what was counted
        is_there &= kinds.take(vertices, mode="clip") == births.kinds
    birth_run[vertices[is_there]] = births.runs[is_there]
    own_dict_of = own_dicts(index, types)
    older = np.flatnonzero((own_dict_of >= 0) & (birth_run == BASELINE))
    birth_run[own_dict_of[older]] = BASELINE  # a part of what was there, made when somebody looked: no survivor
    survived = (birth_run != BASELINE) & (birth_run < births.n_runs - 1)
    in_graph = _graph_parts(types, n_heap)
    in_graph[_gradients_read(hidden.edges, birth_run, index)] = True
    _mark_read_before(in_graph, hidden.edges, types.mask(is_tensor_type), birth_run, index)
    starts = [*(starts or find_starts(namespace)), *interpreter_tables(objects, index)]
    carrying, passing = _carriers(hidden.edges, births.graph_marks, index)
    costs = _costs(birth_run, survived, types)
    costs[passing] += _STEP_PASSING * ~survived[passing]
    start_vertices = index.vertices_of(np.array([start.address for start in starts], np.int64))
    own_dict = -1 if namespace is None else index.vertex_of(id(namespace))
    tree = paths_from(index, starts, start_vertices, own_dict, costs=costs, own_dicts=own_dict_of)
    wrapped = _wrappers(tree, index, types.mask(_is_wrapper_type), n_heap, birth_run)
    birth_run[list(wrapped)] = list(wrapped.values())
    survived = (birth_run != BASELINE) & (birth_run < births.n_runs - 1)
    blamed_run = _blamed_runs(tree, birth_run, survived, own_dict_of)
    leaked = (blamed_run != BASELINE) & (blamed_run < births.n_runs - 1)
    view = HeapView(
        objects, n_heap, index, kinds, types, tree, starts, birth_run, blamed_run, leaked, in_graph,
        own_dict, hidden.notes, summaries, hidden.n_unwalked, carrying, ignored, births.graph_marks,
    )  # fmt: skip
    try:
        yield view
    finally:
        view.starts.clear()
        view._described.clear()  # noqa: SLF001 - our own
        view._routes.clear()  # noqa: SLF001 - our own
        hidden.edges.clear()
        hidden.extra_objects.clear()


@contextmanager
def view_for_path(
    objects: list[object],
    address: int,
    namespace: dict[str, Any] | None,
    own: Sequence[object] = (),
    *,
    summaries: bool = True,
    more_starts: Sequence[Start] = (),
) -> Iterator[HeapView]:
    """Build a view that shows the best path to the object at *address* as a view of the whole heap would, and sooner.

    Where it can, it holds no more of *objects* than what leads to that object: nothing else can be asked of it.

    Paths may begin at *more_starts* as well, beside what `find_starts` finds; all else is as for `heap_view`.
    """
    starts = [*find_starts(namespace), *more_starts]
    ignored = [id(thing) for thing in (*own, own, objects)]
    places = on_best_paths(objects, address, starts, ignored)
    part = objects if places is None else picked(objects, np.array(places, np.int64))
    try:
        with heap_view(part, NO_BIRTHS, namespace, [*own, objects], summaries=summaries, starts=starts) as view:
            yield view
    finally:
        part.clear()
        starts.clear()


def _gradients_read(edges: list[Edge], birth_run: npt.NDArray[np.int64], index: HeapIndex) -> list[int]:
    """Return the gradients of survivors that got a Python object outside of the runs, when somebody first read them.

    They have no run of birth, and belong to the tensors whose gradients they are.
    """
    pairs = [(index.vertex_of(id(of)), index.vertex_of(id(held))) for of, held, name in edges if name == ".grad"]
    return [held for of, held in pairs if birth_run[of] != BASELINE and birth_run[held] == BASELINE]


def _mark_read_before(
    in_graph: npt.NDArray[np.bool_],
    edges: list[Edge],
    is_tensor: npt.NDArray[np.bool_],
    birth_run: npt.NDArray[np.int64],
    index: HeapIndex,
) -> None:
    """Mark in *in_graph* the tensors that have a Python object only because somebody looked at the graph before.

    Reading what a node has saved, or what a tensor is a view of, gives that a Python object, which stays, and which the
    collector lists from then on: a second look sees an object that no run has made. It is a part of the graph all the
    same, as long as nothing but the graph, and what the runs have made, refers to it.
    """
    held = index.vertices_of(np.fromiter((id(held) for _of, held, _name in edges), np.int64, len(edges)))
    held = np.unique(held[held >= 0])
    left = held[is_tensor[held] & (birth_run[held] == BASELINE) & ~in_graph[held]].tolist()
    n_before = len(left) + 1
    while len(left) < n_before:  # a part may be held by a part that is found after it
        n_before = len(left)
        referrers = ((vertex, index.referrers(vertex)) for vertex in left)
        in_graph[[vertex for vertex, by in referrers if (in_graph[by] | (birth_run[by] != BASELINE)).all()]] = True
        left = [vertex for vertex in left if not in_graph[vertex]]


def _wrappers(
    tree: PathTree, index: HeapIndex, is_wrapper: npt.NDArray[np.bool_], n_heap: int, birth_run: npt.NDArray[np.int64]
) -> dict[int, int]:
    """Return the run of birth of arrays, tuples and dicts that the collector does not list, as far as it is known.

    The collector cannot tell when such an object was made, but one that leads to objects of a single run only is of
    that run if its container holds several like it, each with objects of a run of its own. An array that was there
    before and is filled entry by entry leads to objects of many runs.
    """
    unlisted = n_heap + np.flatnonzero(is_wrapper[n_heap:] & (birth_run[n_heap:] == BASELINE))
    runs: dict[int, int] = {}
    for vertex in unlisted[np.argsort(-tree.cost[unlisted], kind="stable")].tolist():  # what lies deepest comes first
        inside = index.referents(vertex)
        found = {runs.get(inner, int(birth_run[inner])) for inner in inside.tolist()}
        if tree.root_of[vertex] >= 0 and len(found) == 1 and BASELINE not in found:
            runs[vertex] = found.pop()
    beside: dict[int, set[int]] = defaultdict(set)
    for vertex, run in runs.items():
        beside[int(tree.parent[vertex])].add(run)
    known: dict[int, int] = {}
    for vertex, run in reversed(runs.items()):
        parent = int(tree.parent[vertex])
        if parent in known or (parent >= 0 and len(beside[parent]) > 1):
            known[vertex] = run
    return known


def _is_wrapper_type(kind: type) -> bool:
    return kind is np.ndarray or kind is tuple or kind is dict


def _carriers(edges: list[Edge], marks: GraphMarks, index: HeapIndex) -> tuple[tuple[int, ...], list[int]]:
    """Return the tensors by which the last run hands its graph on, and the others that have a graph."""
    tensors = [source for source, _held, reference in edges if reference == ".grad_fn"]
    if not tensors or marks.newest == UNSET:
        return (), []
    nodes = {id(source): source for source, _held, reference in edges if reference.startswith(".next_functions")}
    carried = carried_tensors(tensors, nodes.values(), marks)
    others = [index.vertex_of(id(tensor)) for tensor in tensors if id(tensor) not in carried]
    return tuple(index.vertex_of(address) for address in carried), others if carried else []


def _blamed_runs(
    tree: PathTree,
    birth_run: npt.NDArray[np.int64],
    survived: npt.NDArray[np.bool_],
    own_dict_of: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Return for each vertex its own run, or for one of the last run's that of the survivor on its path.

    A path leads through a survivor rather than through what the last run made: what hangs on a survivor goes with it.
    The dict of an object, which it gets when somebody first looks, stands for the object.
    """
    blamed = birth_run.copy()
    stands_for = np.arange(len(birth_run))
    owners = np.flatnonzero(own_dict_of >= 0)
    stands_for[own_dict_of[owners]] = owners
    newest = np.flatnonzero((birth_run != BASELINE) & ~survived & (tree.root_of >= 0))
    parents = tree.parent[newest]
    is_own_dict = (parents >= 0) & (tree.cost[parents] == tree.cost[newest])  # its owner, as near, comes before it
    for vertex in newest[np.lexsort((is_own_dict, tree.cost[newest]))].tolist():
        before = int(stands_for[tree.parent[vertex]]) if tree.parent[vertex] >= 0 else -1
        if before >= 0 and (survived[before] or blamed[before] != birth_run[before]):
            blamed[vertex] = blamed[before]
    return blamed


def _graph_parts(types: KindTable, n_heap: int) -> npt.NDArray[np.bool_]:
    """Return which objects are autograd nodes, or tensors that the collector did not list: held by such nodes only."""
    result = types.mask(is_node_type)
    result[n_heap:] |= types.mask(is_tensor_type)[n_heap:]
    return result


def _costs(birth_run: npt.NDArray[np.int64], leaked: npt.NDArray[np.bool_], types: KindTable) -> npt.NDArray[np.int64]:
    cost = np.full(len(birth_run), _STEP, np.int64)
    cost[types.mask(is_shell_type)] = _STEP_SHELL
    cost[birth_run != BASELINE] = _STEP_NEWEST
    cost[leaked] = _STEP_LEAKED
    return cost

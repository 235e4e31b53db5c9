"""The heap at the end of a check: one index, its roots, and the cheapest path to every object.

A `HeapView` lives for the length of a ``with``. It borrows the objects; what leaves it are records.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.collect.checkpoint import whole_heap
from leaklab.heap.backwards import on_best_paths
from leaklab.heap.carried_graphs import carried_tensors
from leaklab.heap.dominators import DominatorTree, dominators
from leaklab.heap.hidden_references import hidden_edges
from leaklab.heap.index import HeapIndex, ReferencePass, own_dicts
from leaklab.heap.names.containers import keys_of
from leaklab.heap.names.reference import has_plain_items
from leaklab.heap.names_by_others import expression_of, route_to
from leaklab.heap.paths import Described, describe_path, shows_parts
from leaklab.heap.roots import empty_snapshots, find_starts, interpreter_tables, is_shell_type
from leaklab.heap.shared_data import Storages, storages_in
from leaklab.heap.shortest_paths import PathTree, Reach, path_to, reach
from leaklab.heap.start_paths import Start, paths_from
from leaklab.model import RootPath, Status, Step
from leaklab.runtime.addresses import Addresses, kinds_of, picked
from leaklab.runtime.autograd_graph import Edge, is_node_type
from leaklab.runtime.graph_marks import NO_MARKS, GraphMarks
from leaklab.runtime.kind_table import KindTable
from leaklab.runtime.objects import is_kind_of, is_tensor_type, summary
from leaklab.runtime.ours import is_history_name, own_addresses

_VARIABLES, _NAMESPACE = "notebook variable", "globals()"

BASELINE = -1
"""The run of an object that was there before the first measured run."""

# What it costs to come to an object: one that an earlier run left is never a detour.
_STEP = 1
_STEP_NEWEST = 6
_STEP_LEAKED = 60
_STEP_PASSING = 1_000_000  # a graph hangs on what is carried on, however much shorter the way through a result of it
_STEP_SHELL = 40  # whatever the shell holds, the notebook has a better name for


@dataclass(frozen=True, slots=True)
class Births:
    """Who was born when: addresses of the survivors and the run of each (0 for the first), of one length.

    By *graph_marks* the same is known of the nodes of autograd graphs.
    """

    addresses: Addresses
    runs: npt.NDArray[np.int64]
    n_runs: int
    graph_marks: GraphMarks = NO_MARKS


NO_BIRTHS = Births(np.empty(0, np.int64), np.empty(0, np.int64), 1)


@dataclass
class HeapView:
    """The borrowed heap and what was found out about it.

    Attributes:
        objects: Every object, in the order of the index; after *n_heap* of them, what only hidden references reach.
        index: Who refers to whom.
        kinds: For each vertex the address of its type.
        types: The same, as a table.
        tree: The cheapest path to each object.
        starts: The roots, in the order that *tree* numbers them.
        birth_run: For each vertex the run it was born in (0 for the first), `BASELINE` for what was there before.
        blamed_run: For each vertex the run that is to blame for it: its own, or that of the survivor that keeps it.
            Hooks left by earlier runs make new tensors in every run: these are new, and yet the earlier runs' leak.
        leaked: For each vertex whether an earlier run is to blame for it.
        in_graph: For each vertex whether it is an autograd node, a tensor that only such a node holds, or the gradient
            of a survivor that is none itself.
        namespace: The vertex of the dict of the user's variables, -1 if there is none.
        notes: What could not be looked at.
        n_unwalked: Autograd nodes whose inputs were not looked at.
        carriers: The tensors by which the last run hands its graph on to the next; empty where it hands on none.
        summaries: Whether paths may show shapes and lengths.
        own: Addresses of what is leaklab's.
    """

    objects: list[object]
    n_heap: int
    index: HeapIndex
    kinds: Addresses
    types: KindTable
    tree: PathTree
    starts: list[Start]
    birth_run: npt.NDArray[np.int64]
    blamed_run: npt.NDArray[np.int64]
    leaked: npt.NDArray[np.bool_]
    in_graph: npt.NDArray[np.bool_]
    namespace: int = -1
    notes: tuple[str, ...] = ()
    summaries: bool = True
    n_unwalked: int = 0
    carriers: tuple[int, ...] = ()
    own: Addresses = field(default_factory=lambda: np.zeros(0, np.int64))
    _described: dict[int, Described] = field(default_factory=dict)
    _routes: dict[int, list[int]] = field(default_factory=dict)

    @cached_property
    def is_tensor(self) -> npt.NDArray[np.bool_]:
        """For each vertex whether it is a tensor."""
        return self.types.mask(is_tensor_type)

    @cached_property
    def tensors(self) -> list[int]:
        """The vertices of all tensors."""
        return np.flatnonzero(self.is_tensor).tolist()

    @cached_property
    def roots(self) -> npt.NDArray[np.int64]:
        """Where all that is alive begins: the dict of the user's variables (or these), modules, frames, and others."""
        has_namespace = self.namespace >= 0
        addresses = [start.address for start in self.starts if not (has_namespace and start.is_variable)]
        found = np.append(self.index.vertices_of(np.array(addresses, np.int64)), self.namespace)
        return np.unique(found[found >= 0]).astype(np.int64)

    @cached_property
    def reach(self) -> Reach:
        """All of the heap, as a tree of shortest paths.

        What no root reaches is alive too: something unseen holds it, or it holds itself. Each such object counts as a
        root here, so that what it refers to is never said to go with something else.
        """
        return reach(self.index, np.union1d(self.roots, np.flatnonzero(self.is_orphan)))

    @cached_property
    def is_orphan(self) -> npt.NDArray[np.bool_]:
        """For each vertex whether no root reaches it."""
        mask: npt.NDArray[np.bool_] = self.tree.root_of < 0
        mask[self.roots] = False
        return mask

    @cached_property
    def dominators(self) -> DominatorTree:
        """Who alone keeps whom alive, for all of the heap."""
        return dominators(self.index, self.reach)

    @cached_property
    def storages(self) -> Storages:
        """The storages of all tensors."""
        return storages_in(self.objects, self.kinds, self.tensors, self.index, self.n_heap)

    def is_reached(self, vertex: int) -> bool:
        """Return whether any root reaches *vertex*, or it is the dict of the user's variables itself."""
        return bool(self.tree.root_of[vertex] >= 0 or vertex == self.namespace)

    def path(self, vertex: int) -> list[int]:
        """Return the vertices from a root to *vertex*, root first; empty if none reaches it."""
        path = path_to(self.tree, vertex)
        if not any(self.is_key(holder, held) for holder, held in itertools.pairwise(path)):
            return path
        if vertex not in self._routes:
            self._routes[vertex] = route_to(self, vertex)
        return [*self._routes[vertex]]

    @property
    def paths(self) -> PathTree:
        """The cheapest path to each object."""
        return self.tree

    def python_along(self, vertices: Sequence[int], known: str | None = None) -> list[tuple[int, str]]:
        """Return the objects that are steps along *vertices*, with Python for each; none inside of a graph."""
        described = self.describe_along(vertices, known)
        codes = [described.up_to(number + 1) for number in range(len(described.path.steps))]
        return [
            (vertices[position], "" if part.graph_owner is not None else part.code)
            for position, part in zip(described.positions, codes, strict=True)
        ]

    def key_of(self, mapping: int, value: int) -> int:
        """Return the object under which a dict has *value*, -1 where that is a text or number, or it is no dict."""
        holder: Any = self.objects[mapping]
        if not is_kind_of(holder, dict) or not has_plain_items(type(holder)):
            return -1
        keys = keys_of(holder, self.objects[value])
        return self.index.vertex_of(id(keys[0])) if keys else -1

    def is_key(self, holder: int, held: int) -> bool:
        """Return whether *held* is a tensor from before the runs that *holder*, a dict, has as a key."""
        if not self.is_tensor[held] or self.birth_run[held] != BASELINE:
            return False
        mapping: Any = self.objects[holder]
        tensor = self.objects[held]
        return is_kind_of(mapping, dict) and not keys_of(mapping, tensor)

    def is_torch_module(self, vertex: int) -> bool:
        """Return whether an object is a ``torch.nn.Module`` whose parameters are found as its attributes."""
        return shows_parts(type(self.objects[vertex]))

    def describe(self, vertex: int) -> Described:
        """Return the path from a root to *vertex* in words; it must be reached."""
        if vertex == self.namespace:
            things = self.objects[vertex]
            step = Step(_NAMESPACE, "dict", summary(things) if self.summaries else "", Status.EXPECTED)
            return Described(RootPath(_VARIABLES, (step,)), (_NAMESPACE,), (_NAMESPACE,), (0,))
        if vertex not in self._described:
            vertices = self.path(vertex)
            self._described[vertex] = self.describe_along(vertices, name_key=self.key_names(vertices))
        return self._described[vertex]

    def _words(
        self,
        start: Start,
        things: list[object],
        statuses: list[Status],
        name_key: Callable[[int], str] | None = None,
    ) -> Described:
        expression = start.expression_for(things[0])
        return describe_path(things, start.words, expression, statuses, summaries=self.summaries, name_key=name_key)

    def describe_along(
        self, vertices: Sequence[int], known: str | None = None, name_key: Callable[[int], str] | None = None
    ) -> Described:
        """Return a path from a root in words, or one from an object for which *known* is Python."""
        things, statuses = [self.objects[v] for v in vertices], [*map(self.status, vertices)]
        if known is None:
            return self._words(self.starts[self.tree.root_of[vertices[0]]], things, statuses, name_key)
        return describe_path(things, _VARIABLES, known, statuses, summaries=self.summaries, name_key=name_key)

    def key_names(self, vertices: Sequence[int]) -> Callable[[int], str]:
        """Return what names the key under which a dict among *vertices* has the next of them, for `describe_path`."""

        def name_key(position: int) -> str:
            if position >= len(vertices):
                return ""
            key = self.key_of(vertices[position - 1], vertices[position])
            return expression_of(self, route_to(self, key)) if self._is_old(key) else ""

        return name_key

    def _is_old(self, vertex: int) -> bool:
        """Return whether a root reaches an object from before the runs."""
        return vertex >= 0 and self.is_reached(vertex) and self.birth_run[vertex] == BASELINE

    def describe_child(self, owner: int, *below: object) -> Described:
        """Return the path to the last of *below*, objects that *owner* leads to and that need not be tracked."""
        unknown = [Status.UNKNOWN] * len(below)
        if owner == self.namespace:
            things, statuses = [self.objects[owner], *below], [Status.EXPECTED, *unknown]
            return describe_path(things, _VARIABLES, "", statuses, summaries=self.summaries)
        vertices = self.path(owner)
        start = self.starts[self.tree.root_of[owner]]
        things = [*(self.objects[v] for v in vertices), *below]
        return self._words(start, things, [*map(self.status, vertices), *unknown], self.key_names(vertices))

    def is_history(self, described: Described) -> bool:
        """Return whether a path begins at one of the notebook's own names."""
        return bool(described.path.steps) and is_history_name(described.path.steps[0].reference)

    def status(self, vertex: int) -> Status:
        """Return whether *vertex* has a reason to be alive."""
        if self.leaked[vertex] or self.in_graph[vertex]:
            return Status.LEAKED
        return Status.EXPECTED


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

    Args:
        births: The survivors of the measured runs.
        namespace: The user's variables.
        own: As for `heap_view`.
        heap: Lends every object and empties the list; by default `whole_heap`.
        summaries: Whether paths may show shapes and lengths.
        starts: As for `heap_view`.
        min_data_bytes: As for `heap_view`.
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
    hidden = hidden_edges(objects, references, min_data_bytes=min_data_bytes)
    index = references.finish(hidden.extra_objects, hidden.edges)
    objects.extend(hidden.extra_objects)
    del references
    birth_run = np.full(index.n_vertices, BASELINE, np.int64)
    vertices = index.vertices_of(births.addresses)
    birth_run[vertices[vertices >= 0]] = births.runs[vertices >= 0]
    if hidden.extra_objects:
        kinds = np.concatenate([kinds, kinds_of(hidden.extra_objects)])
        types = KindTable(kinds)
    own_dict_of = own_dicts(index, types)
    older = np.flatnonzero((own_dict_of >= 0) & (birth_run == BASELINE))
    birth_run[own_dict_of[older]] = BASELINE  # a part of what was there, made when somebody looked: no survivor
    survived = (birth_run != BASELINE) & (birth_run < births.n_runs - 1)
    in_graph = _graph_parts(types, n_heap)
    in_graph[_gradients_read(hidden.edges, birth_run, index)] = True
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
    blamed_run = _blamed_runs(tree, birth_run, survived)
    leaked = (blamed_run != BASELINE) & (blamed_run < births.n_runs - 1)
    view = HeapView(
        objects, n_heap, index, kinds, types, tree, starts, birth_run, blamed_run, leaked, in_graph,
        own_dict, hidden.notes, summaries, hidden.n_unwalked, carrying, ignored,
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

    Args:
        objects: As `heap_view` has it.
        address: Of one of them.
        namespace: The user's variables.
        own: As `heap_view` has it.
        summaries: Whether paths may show shapes and lengths.
        more_starts: Where paths may begin as well, beside what `find_starts` finds.
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
    if not tensors or not marks.newest:
        return (), []
    nodes = {id(source): source for source, _held, reference in edges if reference.startswith(".next_functions")}
    carried = carried_tensors(tensors, nodes.values(), marks)
    others = [index.vertex_of(id(tensor)) for tensor in tensors if id(tensor) not in carried]
    return tuple(index.vertex_of(address) for address in carried), others if carried else []


def _blamed_runs(
    tree: PathTree, birth_run: npt.NDArray[np.int64], survived: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Return for each vertex its own run, or for one of the last run's that of the survivor on its path.

    A survivor is the most expensive step of all: a path leads through one only where there is no other way.
    """
    blamed = birth_run.copy()
    newest = np.flatnonzero((birth_run != BASELINE) & ~survived & (tree.root_of >= 0))
    parents = tree.parent[newest]
    is_own_dict = (parents >= 0) & (tree.cost[parents] == tree.cost[newest])  # its owner, as near, comes before it
    for vertex in newest[np.lexsort((is_own_dict, tree.cost[newest]))].tolist():
        before = int(tree.parent[vertex])
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

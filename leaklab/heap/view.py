"""The heap at the end of a check: one index, its roots, and the cheapest path to every object.

A `HeapView` lives for the length of a ``with``. It borrows the objects; what leaves it are records.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.heap.dominators import DominatorTree, dominators
from leaklab.heap.folding import shows_parts
from leaklab.heap.found_by_name import begin_at_name
from leaklab.heap.index import HeapIndex
from leaklab.heap.names import Namer, Reference, best_reference
from leaklab.heap.names.containers import keys_of
from leaklab.heap.names.reference import has_plain_items
from leaklab.heap.names_by_others import expression_of, route_to
from leaklab.heap.paths import Described, describe_path
from leaklab.heap.shared_data import Storages, storages_in
from leaklab.heap.shortest_paths import PathTree, Reach, Start, path_to, reach
from leaklab.model import RootPath, Status, Step
from leaklab.runtime.addresses import Addresses, KindTable
from leaklab.runtime.graph_marks import NO_MARKS, GraphMarks
from leaklab.runtime.objects import is_kind_of, is_tensor_type, summary
from leaklab.runtime.ours import is_history_name

_VARIABLES, _NAMESPACE = "notebook variable", "globals()"

BASELINE = -1
"""The run of an object that was there before the first measured run."""


@dataclass(frozen=True, slots=True)
class Births:
    """Who was born when: addresses of the survivors and the run of each (0 for the first), of one length.

    By *graph_marks* the same is known of the nodes of autograd graphs. *kinds* are the addresses of the survivors'
    types, where they are known.
    """

    addresses: Addresses
    runs: npt.NDArray[np.int64]
    n_runs: int
    graph_marks: GraphMarks = NO_MARKS
    kinds: Addresses = field(default_factory=lambda: np.empty(0, np.int64))


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
        graph_marks: Where in torch's numbering of autograd nodes the runs began.
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
    graph_marks: GraphMarks = NO_MARKS
    _described: dict[int, Described] = field(default_factory=dict)
    _routes: dict[int, list[int]] = field(default_factory=dict)
    _names: dict[tuple[int, int], Reference] = field(default_factory=dict)

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

    def name(self, holder: object, held: object) -> Reference:
        """Return what the reference from one object of the heap to another is called; found once, of many paths."""
        both = id(holder), id(held)
        if both not in self._names:
            self._names[both] = best_reference(holder, held)
        return self._names[both]

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
        name_key: Callable[[int], str],
        n_old: int,
        *,
        name: Namer = best_reference,
    ) -> Described:
        left_out, start = begin_at_name(start, things, n_old)
        described = describe_path(
            things[left_out:],
            start.words,
            start.expression_for(things[left_out]),
            statuses[left_out:],
            summaries=self.summaries,
            name_key=lambda position: name_key(position + left_out),
            name=name,
        )
        return replace(described, positions=tuple(left_out + position for position in described.positions))

    def _n_old(self, vertices: Sequence[int]) -> int:
        """Return how many of *vertices*, the first ones, were there before the runs."""
        return next((n for n, vertex in enumerate(vertices) if self.birth_run[vertex] != BASELINE), len(vertices))

    def describe_along(
        self, vertices: Sequence[int], known: str | None = None, name_key: Callable[[int], str] | None = None
    ) -> Described:
        """Return a path from a root in words, or one from an object for which *known* is Python."""
        things, statuses = [self.objects[v] for v in vertices], [*map(self.status, vertices)]
        if known is None:
            start = self.starts[self.tree.root_of[vertices[0]]]
            names = name_key or self.key_names([])
            return self._words(start, things, statuses, names, self._n_old(vertices), name=self.name)
        return describe_path(
            things, _VARIABLES, known, statuses, summaries=self.summaries, name_key=name_key, name=self.name
        )

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
        statuses = [*map(self.status, vertices), *unknown]
        return self._words(start, things, statuses, self.key_names(vertices), self._n_old(vertices))

    def is_history(self, described: Described) -> bool:
        """Return whether a path begins at one of the notebook's own names."""
        return bool(described.path.steps) and is_history_name(described.path.steps[0].reference)

    def status(self, vertex: int) -> Status:
        """Return whether *vertex* has a reason to be alive."""
        if self.leaked[vertex] or self.in_graph[vertex]:
            return Status.LEAKED
        return Status.EXPECTED

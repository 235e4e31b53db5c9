"""What comes back if something goes, each byte counted with the first that explains it; what a reader calls it."""

from __future__ import annotations

import ast
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from leaklab.explain.alive.retained import size_of_freed
from leaklab.explain.alive.smallest_cut import freed_without
from leaklab.explain.heaps.largest_tensors import tensor_text
from leaklab.heap.view import HeapView
from leaklab.runtime.addresses import Ints
from leaklab.runtime.objects import is_exactly, type_name
from leaklab.runtime.referents import is_own_dict

SMALL_BYTES = 64 * 1024
"""What lets go of less, or holds less, is not listed."""
MANY = 10
"""So many figures, or handlers that are alike, are listed however small they are."""
_PLAIN = (list, dict, tuple, set, deque, defaultdict)


class Freed(NamedTuple):
    """What comes back, without what is explained already.

    Attributes:
        n_bytes: How much.
        largest: The vertex of the largest tensor in it; -1 without one.
        needs_notebook: Whether the notebook has to let go of its own, too.
    """

    n_bytes: int
    largest: int
    needs_notebook: bool = False


class Claims:
    """What is explained already, and what the notebook itself holds."""

    def __init__(self, view: HeapView) -> None:
        self.view = view
        self._claimed = np.zeros(view.index.n_vertices, bool)
        self._of_notebook: list[tuple[int, int]] = []

    def is_free(self, vertices: Ints) -> Ints:
        """Return those of *vertices* that nothing so far explains."""
        free: Ints = vertices[~self._claimed[vertices]]
        return free

    def has(self, place: int, below: Sequence[object] = ()) -> bool:
        """Return whether the object at *place*, or the array below it, is explained."""
        vertex = self.view.index.vertex_of(id(below[-1])) if below else -1
        return bool(self._claimed[place] or (vertex >= 0 and self._claimed[vertex]))

    def take(self, cuts: Iterable[tuple[int, int]], *, of_notebook: bool = False) -> Freed:
        """Note as explained what goes without the references *cuts*, and without those of the notebook itself."""
        cut = list(cuts)
        alone = self.is_free(freed_without(self.view, cut))
        fresh = self.is_free(freed_without(self.view, [*self._of_notebook, *cut])) if self._of_notebook else alone
        if of_notebook:
            self._of_notebook += cut
        self._claimed[fresh] = True
        n_bytes = self.bytes_of(fresh)
        is_shared = len(fresh) > len(alone) and n_bytes > self.bytes_of(alone) + SMALL_BYTES
        return Freed(n_bytes, self._largest(fresh), needs_notebook=is_shared and not of_notebook)

    def bytes_of(self, vertices: Ints) -> int:
        """Return what comes back if exactly *vertices* go."""
        return size_of_freed(self.view, vertices).exclusive_bytes if len(vertices) else 0

    def what(self, freed: Freed) -> str:
        """Return the largest tensor of *freed* in words."""
        if freed.largest < 0:
            return ""
        return tensor_text(self.view.objects[freed.largest], summaries=self.view.summaries)

    def _largest(self, vertices: Ints) -> int:
        storages = self.view.storages
        tensors = vertices[self.view.is_tensor[vertices]].tolist()
        sizes = {v: sum(storages.by_key[key].n_bytes for key in storages.keys_of.get(v, ())) for v in tensors}
        return max(sizes, key=lambda vertex: sizes[vertex], default=-1)


def vertices_at(view: HeapView, addresses: Iterable[int]) -> Ints:
    """Return the objects at *addresses* that the heap knows."""
    found = view.index.vertices_of(np.array(sorted(addresses), np.int64))
    known: Ints = found[found >= 0]
    return known


def by_owner(view: HeapView, vertices: Sequence[int]) -> list[tuple[str, list[int]]]:
    """Return *vertices*, objects that a root reaches, by the container that has them; a variable has itself."""
    places = {start.address for start in view.starts if start.is_place}
    groups: dict[int, list[int]] = {}
    for vertex in vertices:
        if view.is_reached(vertex):
            groups.setdefault(_owner(view, vertex, places), []).append(vertex)
    return [(name_of(view, owner), group) for owner, group in groups.items()]


def _owner(view: HeapView, vertex: int, places: set[int]) -> int:
    owner = vertex
    while True:
        above = int(view.tree.parent[owner])
        if above < 0 or above == view.namespace or id(view.objects[above]) in places:
            return owner
        holder = int(view.tree.parent[above])
        is_container = is_exactly(view.objects[above], _PLAIN)
        if not is_container or (holder >= 0 and is_own_dict(view.objects[holder], view.objects[above])):
            return owner
        owner = above


def name_of(view: HeapView, vertex: int) -> str:
    """Return what a reader calls an object: Python for it, or words."""
    if not view.is_reached(vertex):
        return type_name(type(view.objects[vertex]))
    return view.describe(vertex).name


def asking(magic: str, expression: str) -> str:
    """Return the magic that asks about *expression*; empty where that is words and no Python."""
    try:
        ast.parse(expression, mode="eval")
    except (SyntaxError, ValueError):
        return ""
    return f"%{magic} {expression}" if expression else ""

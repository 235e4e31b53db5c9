"""Name an object whose cheapest path Python cannot write: by the module that has it, another holder, its key's name.

A parameter is a key of its optimizer's state, which is near, and has a name in its model. What the optimizer keeps of
the parameter lies under that key, the gradient lies in the parameter: both have a name as soon as the parameter has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from leaklab.heap.shortest_paths import path_to

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaklab.heap.index import HeapIndex
    from leaklab.heap.shortest_paths import PathTree, Start

_MOST_REFERRERS = 50
_MOST_DETOURS = 4
"""So many keys and other holders one name may lead over."""


class NamedHeap(Protocol):
    """What is asked of a heap, alive or saved, about the names in it."""

    @property
    def index(self) -> HeapIndex:
        """Who refers to whom."""

    @property
    def starts(self) -> Sequence[Start]:
        """Where the paths begin."""

    @property
    def paths(self) -> PathTree:
        """The cheapest path to each object."""

    def python_along(self, vertices: Sequence[int], known: str | None = None) -> list[tuple[int, str]]:
        """Return the objects that are steps along *vertices*, with Python for each, empty where there is none.

        Each of *vertices* refers to the next. *known* is Python for the first; without it the path begins at a
        root.
        """

    def key_of(self, mapping: int, value: int) -> int:
        """Return the object under which a dict has *value*; -1 where that is a text or number, or nothing is known."""

    def is_key(self, holder: int, held: int) -> bool:
        """Return whether *held* is a tensor that *holder*, a dict, has as a key, and was there before what is asked."""

    def is_torch_module(self, vertex: int) -> bool:
        """Return whether an object is a ``torch.nn.Module`` whose parameters are found as its attributes."""


def route_to(heap: NamedHeap, vertex: int) -> list[int]:
    """Return the path to an object: the cheapest, but through the module that has a parameter, not through its key.

    Returns:
        The vertices, root first; empty if no root reaches the object.
    """
    return by_module(heap, path_to(heap.paths, vertex))


def by_module(heap: NamedHeap, path: list[int]) -> list[int]:
    """Return a path that leads through the module that has a parameter, where *path* leads through it as a key."""
    for place in range(len(path) - 1, 0, -1):
        if heap.is_key(path[place - 1], path[place]):
            through_module = _through_module(heap, path[place])
            is_free = not set(through_module).intersection(path[place + 1 :])
            return [*through_module, *path[place + 1 :]] if through_module and is_free else path
    return path


def _through_module(heap: NamedHeap, tensor: int) -> list[int]:
    ways = [way for way in _other_ways(heap, tensor) if way.is_part]
    return min(ways, key=_OtherWay.rank).vertices if ways else []


def expression_of(heap: NamedHeap, path: list[int], n_detours: int = _MOST_DETOURS) -> str:
    """Return Python for the last object of a path, empty where none is found.

    *path* is what `route_to` gives; it may be left *n_detours* times.
    """
    steps = heap.python_along(path)
    for _ in range(n_detours):
        place, known = _detour(heap, steps, n_detours)
        if not known:
            break
        steps = heap.python_along(path[path.index(place) :], known)
    return steps[-1][1] if all(code for _place, code in steps) else ""


def _detour(heap: NamedHeap, steps: list[tuple[int, str]], n_detours: int) -> tuple[int, str]:
    """Return an object of a path that has no Python there, and Python for the object; empty where none is found.

    It is the first such object, else the last: what an autograd graph saves may have a name outside of the graph.
    """
    unnamed = [number for number, (_place, code) in enumerate(steps) if not code]
    for number in unnamed[:1] + unnamed[1:][-1:]:
        place = steps[number][0]
        if known := _by_key(heap, *steps[number - 1], place, n_detours - 1) if number else "":
            return place, known
        if ways := _other_ways(heap, place):
            return place, min(ways, key=_OtherWay.rank).code
    return -1, ""


def _by_key(heap: NamedHeap, holder: int, known: str, value: int, n_detours: int) -> str:
    """Return Python for what lies in a dict, for which *known* is Python, under an object that has a name."""
    key = heap.key_of(holder, value) if known else -1
    if key < 0 or heap.paths.root_of[key] < 0 or not n_detours:
        return ""
    name = expression_of(heap, route_to(heap, key), n_detours)
    return f"{known}[{name}]" if name else ""


class _OtherWay:
    """A path to an object through one that refers to it, and Python for the object."""

    def __init__(self, heap: NamedHeap, vertices: list[int], steps: list[tuple[int, str]]) -> None:
        self.vertices, self.code = vertices, steps[-1][1]
        self.is_part = len(steps) > 1 and heap.is_torch_module(steps[-2][0])
        self.is_variable = heap.starts[int(heap.paths.root_of[vertices[0]])].is_variable

    def rank(self) -> tuple[bool, bool, int, str]:
        """Return what says which way comes first: from a variable, a part of a module, the shorter."""
        return (not self.is_variable, not self.is_part, len(self.code), self.code)


def _other_ways(heap: NamedHeap, vertex: int) -> list[_OtherWay]:
    """Return the ways to an object that Python can write, through each that refers to it."""
    ways = []
    for holder in heap.index.referrers(vertex)[:_MOST_REFERRERS].tolist():
        vertices = [*path_to(heap.paths, holder), vertex]
        if heap.paths.root_of[holder] < 0 or vertex in vertices[:-1]:
            continue
        steps = heap.python_along(vertices)
        if all(code for _place, code in steps):
            ways.append(_OtherWay(heap, vertices, steps))
    return ways

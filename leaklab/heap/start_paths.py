"""Where paths may begin, and the cheapest path from there to every object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leaklab.heap.shortest_paths import PathTree, search

if TYPE_CHECKING:
    from leaklab.heap.index import HeapIndex
    from leaklab.runtime.addresses import Ints


@dataclass(frozen=True, slots=True)
class Start:
    """Where paths begin.

    Attributes:
        address: The object that the search begins at.
        words: What it is.
        expression: Python for the first object of a path (for a module: the module); empty where there is none.
        cost: What beginning here costs.
        is_variable: Whether it is the value of one of the user's variables.
        is_library: Whether it belongs to a library.
        is_place: Whether it is a module, its namespace, or a running function: paths begin there and pass nowhere else.
        is_history: Whether this is one of the names under which the notebook keeps its history.
        is_shells: Whether this is one of the names that the shell puts among the user's variables.
    """

    address: int
    words: str
    expression: str
    cost: int
    is_variable: bool = False
    is_library: bool = False
    is_place: bool = False
    is_history: bool = False
    is_shells: bool = False

    def expression_for(self, thing: object) -> str | None:
        """Return Python for *thing*, the first object of a path from here; None where there is none."""
        if self.expression and not self.is_variable and type(thing) is dict:
            return f"{self.expression}.__dict__"  # a module's own namespace
        return self.expression or None


def paths_from(
    index: HeapIndex, starts: Sequence[Start], vertices: Ints, namespace: int, *, costs: Ints, own_dicts: Ints
) -> PathTree:
    """Return the cheapest path to every object.

    Args:
        index: The heap.
        starts: Where paths may begin.
        vertices: The object of each, -1 where it is none of the heap.
        namespace: The dict of the user's variables, -1 if there is none.
        costs: What it costs to come to each object.
        own_dicts: For each object its ``__dict__``, or -1.
    """
    blocked = np.zeros(index.n_vertices, bool)
    # Namespaces, modules and frames are where paths begin: none leads through them to anything else.
    places = zip(starts, vertices.tolist(), strict=True)
    ends = [vertex for start, vertex in places if start.is_place]
    blocked[[vertex for vertex in (*ends, namespace) if vertex >= 0]] = True
    roots = [
        (vertex, start.cost + (int(costs[vertex]) if start.is_variable and vertex >= 0 else 0))
        for start, vertex in zip(starts, vertices.tolist(), strict=True)
    ]
    return search(index, roots, vertex_cost=costs, blocked_into=blocked, own_dicts=own_dicts)

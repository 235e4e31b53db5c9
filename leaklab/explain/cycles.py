"""Find the cycles that keep unreachable objects alive, and write them edge by edge.

Strongly connected components come from scipy (Pearce's variant of Tarjan's algorithm).
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from leaklab.explain.paths import fingerprint
from leaklab.explain.references import Reference, best_reference
from leaklab.explain.view import HeapView
from leaklab.model import RootPath, Status, Step
from leaklab.objects import summary, type_name

CYCLE_ROOT = "reference cycle that no variable reaches"
UNSEEN_ROOT = "no reference in Python"


@dataclass(slots=True)
class Orphans:
    """Survivors that no root reaches, and that one kind of cycle, or nothing visible, keeps.

    Attributes:
        cycle: Vertices of one such cycle, in the order of their references; empty if none was found.
        path: The cycle in words, back to its first object; without steps if nothing visible holds the survivors.
        crosses_hidden: Whether the cycle runs through references that the collector does not see.
        members: The survivors.
        fingerprint: The same for the same kind of cycle tomorrow.
    """

    cycle: list[int]
    path: RootPath
    crosses_hidden: bool
    members: list[int] = field(default_factory=list)
    fingerprint: str = ""


def group_orphans(view: HeapView, orphans: list[int]) -> list[Orphans]:
    """Group the unreached survivors by the cycle that keeps them."""
    if not orphans:
        return []
    region = _Region(view)
    by_place: dict[str, Orphans] = {}
    for component, members in region.by_cycle(orphans).items():
        found = _unseen(view, members) if component < 0 else _describe_cycle(view, region, component)
        known = by_place.setdefault(found.fingerprint, found)
        known.members.extend(members)
    return list(by_place.values())


class _Region:
    """The part of the heap that no root reaches, as a graph of its own."""

    def __init__(self, view: HeapView) -> None:
        self.vertices = np.flatnonzero(view.tree.root_of < 0)
        place = np.full(view.index.n_vertices, -1, np.int64)
        place[self.vertices] = np.arange(len(self.vertices))
        self._place = place
        offsets, targets = view.index.forward_offsets, view.index.forward_targets
        self._edges = [place[targets[offsets[v] : offsets[v + 1]]] for v in self.vertices.tolist()]
        self._edges = [edges[edges >= 0] for edges in self._edges]
        counts = np.fromiter(map(len, self._edges), np.int64, len(self._edges))
        columns = np.concatenate([*self._edges, np.empty(0, np.int64)]).astype(np.int32)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        size = len(self.vertices)
        graph = csr_array((np.ones(len(columns), np.int8), columns, indptr), shape=(size, size))
        _n, self.component = connected_components(graph, connection="strong")
        self._sizes = np.bincount(self.component)
        self._loops = {i for i, edges in enumerate(self._edges) if (edges == i).any()}

    def is_cycle(self, component: int) -> bool:
        """Return whether the component is more than one object without a reference to itself."""
        return bool(self._sizes[component] > 1) or any(self.component[loop] == component for loop in self._loops)

    def by_cycle(self, orphans: list[int]) -> dict[int, list[int]]:
        """Return the orphans by the nearest cycle that keeps them, -1 where there is none."""
        owner = np.full(len(self.vertices), -1, np.int64)
        queue: deque[int] = deque()
        for place in range(len(self.vertices)):
            if self.is_cycle(int(self.component[place])):
                owner[place] = self.component[place]
                queue.append(place)
        while queue:
            place = queue.popleft()
            for after in self._edges[place].tolist():
                if owner[after] < 0:
                    owner[after] = owner[place]
                    queue.append(after)
        groups: dict[int, list[int]] = defaultdict(list)
        for orphan in orphans:
            groups[int(owner[self._place[orphan]])].append(orphan)
        return groups

    def shortest_cycle(self, start: int) -> list[int]:
        """Return the vertices of the shortest cycle through *start*, which lies in a cyclic component."""
        first = int(self._place[start])
        before: dict[int, int] = {}
        queue = deque([first])
        while queue:
            place = queue.popleft()
            for after in self._edges[place].tolist():
                if after == first:
                    return [int(self.vertices[p]) for p in self._back(before, first, place)]
                if after not in before and self.component[after] == self.component[first]:
                    before[after] = place
                    queue.append(after)
        return [start]

    @staticmethod
    def _back(before: dict[int, int], first: int, place: int) -> list[int]:
        path = [place]
        while path[-1] != first:
            path.append(before[path[-1]])
        return path[::-1]

    def members_of(self, component: int) -> npt.NDArray[np.int64]:
        """Return the vertices of a component."""
        chosen: npt.NDArray[np.int64] = self.vertices[self.component == component]
        return chosen


def _describe_cycle(view: HeapView, region: _Region, component: int) -> Orphans:
    vertices = region.members_of(component)
    start = min(vertices.tolist(), key=lambda vertex: (_plainness(view.objects[vertex]), vertex))
    cycle = region.shortest_cycle(start)
    references = [_name(view, a, b) for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True)]
    steps = [_step(view, cycle[0], "")]
    steps += [_step(view, vertex, reference.text) for vertex, reference in zip(cycle[1:], references, strict=False)]
    steps.append(_step(view, cycle[0], references[-1].text, "the first object again: the cycle is closed"))
    stable = [type_name(type(view.objects[cycle[0]])), *(reference.stable for reference in references)]
    hidden = any(vertex >= view.n_heap for vertex in cycle) or any(r.kind == "hidden" for r in references)
    return Orphans(cycle, RootPath(CYCLE_ROOT, tuple(steps)), hidden, fingerprint=fingerprint([CYCLE_ROOT, *stable]))


def _plainness(thing: object) -> int:
    """Rank how little a reader knows an object: classes of the user first, then torch's, then containers."""
    name = type_name(type(thing))
    if type(thing) in (dict, list, tuple, set) or ("." not in name and name in ("cell", "function", "method", "frame")):
        return 3
    if name.startswith("torch.nn.modules"):
        return 1
    return 2 if name.startswith("torch.") else 0


def _unseen(view: HeapView, members: list[int]) -> Orphans:
    kinds = sorted({type_name(type(view.objects[vertex])) for vertex in members})
    return Orphans([], RootPath(UNSEEN_ROOT, ()), crosses_hidden=False, fingerprint=fingerprint([UNSEEN_ROOT, *kinds]))


def _name(view: HeapView, holder: int, child: int) -> Reference:
    return best_reference(view.objects[holder], view.objects[child])


def _step(view: HeapView, vertex: int, reference: str, note: str = "") -> Step:
    thing = view.objects[vertex]
    status = Status.LEAKED if view.leaked[vertex] else Status.UNKNOWN
    return Step(reference, type_name(type(thing)), summary(thing), status, note)

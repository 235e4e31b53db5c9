"""Describe independent paths to one object: steps with reasons, expressions, and where they share an object."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from leaklab.explain.freeing.cuts import ROOT
from leaklab.explain.heap.starts import Start
from leaklab.explain.paths.paths import Described, describe_path
from leaklab.explain.paths.reasons import with_reasons
from leaklab.explain.paths.remarks import remark_on
from leaklab.explain.view import HeapView
from leaklab.model import Status
from leaklab.model.alive import AlivePath

VARIABLES = "notebook variable"


@dataclass(frozen=True, slots=True)
class WalkedPath:
    """A path as vertices and as words.

    Attributes:
        vertices: Root first; the first may be a namespace, which is no step.
        described: The steps and their expressions.
        start: Where it begins; None where that is unknown.
        namespace: The vertex of the user's variables, -1 if there is none.
    """

    vertices: tuple[int, ...]
    described: Described
    start: Start | None
    namespace: int

    @property
    def step_vertices(self) -> tuple[int, ...]:
        """For each step the vertex of its object."""
        return tuple(self.vertices[position] for position in self.described.positions)

    def cut_at(self, references: Collection[tuple[int, int]]) -> tuple[int, ...]:
        """Return the steps between whose object and the one before lies one of *references*, holder and held."""
        wanted = {(self._holder_of(holder), held) for holder, held in references}
        pairs = list(zip((ROOT, *self.vertices), self.vertices, strict=False))
        found, first = [], 0
        for number, position in enumerate(self.described.positions):
            if any((self._holder_of(holder), held) in wanted for holder, held in pairs[first : position + 1]):
                found.append(number)
            first = position + 1
        return tuple(found)

    def _holder_of(self, vertex: int) -> int:
        """Return the root for the namespace: paths may begin at it, or at the value of one of its variables."""
        return ROOT if vertex == self.namespace else vertex


def walk_path(view: HeapView, vertices: Sequence[int]) -> WalkedPath:
    """Describe the path along *vertices*, root first."""
    things = [view.objects[vertex] for vertex in vertices]
    unknown = [Status.UNKNOWN] * len(things)
    if vertices[0] == view.namespace:
        start = _variable_start(view, vertices)
        described = describe_path(things, VARIABLES, "", unknown, summaries=view.summaries)
    else:
        start = start_of(view, vertices[0])
        expression: str | None = None
        if start is not None:
            expression = start.expression or None
            if expression and not start.is_variable and type(things[0]) is dict:
                expression += ".__dict__"
        root = "unknown root" if start is None else start.words
        described = describe_path(things, root, expression, unknown, summaries=view.summaries)
    shown = [things[position] for position in described.positions]
    in_graph = [bool(view.in_graph[vertices[position]]) for position in described.positions]
    steps = tuple(with_reasons(described.path.steps, shown, in_graph, start))
    path = replace(described.path, steps=steps)
    return WalkedPath(tuple(vertices), replace(described, path=path), start, view.namespace)


def start_of(view: HeapView, vertex: int) -> Start | None:
    """Return the best known root that begins at *vertex*, None if none does."""
    address = int(view.index.ids[vertex])
    found = [start for start in view.starts if start.address == address]
    return min(found, key=lambda start: start.cost, default=None)


def _variable_start(view: HeapView, vertices: Sequence[int]) -> Start | None:
    return start_of(view, vertices[1]) if len(vertices) > 1 else None


def alive_path(walked: WalkedPath, numbers: dict[int, int], cut: Collection[tuple[int, int]]) -> AlivePath:
    """Return the record of *walked*; *numbers* gives each vertex its number and is added to."""
    described, start = walked.described, walked.start
    places = tuple(numbers.setdefault(vertex, len(numbers)) for vertex in walked.step_vertices)
    return AlivePath(
        described.path,
        _holder(walked),
        described.expressions[-1] or "",
        places,
        walked.cut_at(cut),
        remark_on(start, described.path),
    )


def _holder(walked: WalkedPath) -> str:
    """Return the expression for what refers to the object asked about."""
    expressions = walked.described.expressions
    if len(expressions) > 1:
        return expressions[-2] or ""
    start = walked.start
    if start is None or start.is_variable:
        return "globals()" if start is not None else ""
    return start.expression if start.is_place and len(walked.vertices) > 1 else ""

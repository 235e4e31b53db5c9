"""Add up what the autograd graphs behind an object keep alive, by operation, line and tensor; draw it."""

from __future__ import annotations

import operator
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from leaklab.explain.autograd.nodes import GraphNodes, NameFile, read_graph
from leaklab.explain.autograd.saved import MAX_OBJECTS, FoundTensors, SavedStorages
from leaklab.heap.view import BASELINE, HeapView
from leaklab.model.autograd import AutogradRecord, Drawing, DrawnBy, GraphBox, Sharing
from leaklab.runtime.autograd_graph import has_graph, number_of, requires_grad
from leaklab.runtime.graph_marks import NO_MARKS, UNSET, GraphMarks
from leaklab.runtime.objects import is_tensor, no_torch_functions, type_name
from leaklab.runtime.sizes import node_bytes
from leaklab.text import format_bytes, unit_words

MAX_NODES_DRAWN = 60
"""A larger graph is not read as a picture of its nodes."""
_MAX_BOXES = 40
_MAX_LINKS = 120
_NO_MODULE = "(before any parameter)"
_REST = "(the rest)"
_PART = re.compile(r"\.[^.\[]+|\[[^\]]*\]")
_MAX_ROOTS = 20
_SIMPLE = re.compile(r"[\w.\[\]'\"]+")
_MAX_STEPS = 500_000
"""About a second; of many long graphs those of the tensors that are easiest to reach are measured."""
_OF_LEAVES = 1 << 63  # torch gives nodes of leaves the highest number, whenever they are made
_N_TIMES = 4
"""A graph that gets longer by every run has nodes of each of so many parts of the time, all of two runs or more."""


def explain_retention(
    starts: Mapping[str, object], variables: Mapping[str, object], name: str, name_file: NameFile
) -> AutogradRecord:
    """Return what the graphs behind the tensors in *starts* keep alive.

    Args:
        starts: Expressions with their objects, in which tensors are looked for.
        variables: Where else tensors may be held: memory that these hold too is no extra memory.
        name: What the record calls the examined object.
        name_file: Gives cells of a notebook their name.

    Raises:
        ValueError: if there is no graph; the message says why.
    """
    found = FoundTensors({_expression(start): thing for start, thing in starts.items()})
    graph = read_graph(found.tensors, name_file)
    if not graph.nodes:
        raise ValueError(_why_nothing(starts, found.tensors, name))
    # The examined object itself may be all that holds a tensor: `autograd([x.exp()])`.
    holders = FoundTensors({**variables, **{_expression(start): thing for start, thing in starts.items()}})
    storages = SavedStorages(graph.nodes, holders)
    leaf_names = _leaf_names(graph, holders)
    roots = [tensor for tensor in found.tensors if has_graph(tensor)]
    lines = {position: node.line for position, node in enumerate(graph.nodes) if node.line}
    return AutogradRecord(
        name=name,
        roots=tuple(found.name_of(tensor) for tensor in roots[:_MAX_ROOTS]),
        n_roots=max(len(roots), len(graph.starts)),
        n_nodes=len(graph.nodes),
        is_complete=not graph.n_unwalked and found.is_complete,
        n_saved=storages.n_saved,
        n_freed=storages.n_freed,
        n_packed=storages.n_packed,
        n_opaque=storages.n_opaque,
        n_unknown=storages.n_unknown,
        saved_bytes=storages.total(),
        leaf_bytes=storages.total(Sharing.LEAF),
        variable_bytes=storages.total(Sharing.VARIABLE),
        unsaved_leaf_bytes=storages.unsaved_leaf_bytes,
        operations=storages.parts({position: node.name for position, node in enumerate(graph.nodes)}),
        lines=storages.parts(lines),
        tensors=storages.rows(),
        drawings=Drawer(graph, storages, leaf_names).drawings(),
        notes=tuple(_notes(graph, storages, found, holders)),
        node_bytes=node_bytes(len(graph.nodes), sum(len(node.inputs) for node in graph.nodes)),
    )


def _expression(start: str) -> str:
    """Return *start* so that ``[0]`` or ``.x`` may follow it."""
    return start if _SIMPLE.fullmatch(start) else f"({start})"


def _leaf_names(graph: GraphNodes, holders: FoundTensors) -> dict[int, str]:
    known = {id(tensor) for tensor in holders.tensors}
    return {
        position: holders.name_of(node.leaf)
        for position, node in enumerate(graph.nodes)
        if node.leaf is not None and id(node.leaf) in known
    }


def _why_nothing(starts: Mapping[str, object], tensors: list[Any], name: str) -> str:
    things = list(starts.values())
    if len(things) == 1 and is_tensor(things[0]):
        with no_torch_functions():
            is_leaf = requires_grad(things[0])
        if is_leaf:
            return f"nothing to show: {name} is a leaf, no operation made it, so there is no graph behind it"
        return (
            f"nothing to show: {name} does not require grad: it was detached, made under torch.no_grad(), "
            "or nothing it was made of requires grad"
        )
    if not tensors:
        what = f"{name} (of type {type_name(type(things[0]))})" if len(things) == 1 else name
        return f"nothing to show: no tensor was found in {what}; give a tensor, a container of tensors or a module"
    count = "the tensor" if len(tensors) == 1 else f"none of the {len(tensors):,} tensors"
    verb = "has no graph" if len(tensors) == 1 else "has a graph"
    return f"nothing to show: {count} in {name} {verb}: they are leaves, were detached, or do not require grad"


def _notes(graph: GraphNodes, storages: SavedStorages, found: FoundTensors, holders: FoundTensors) -> list[str]:
    notes = []
    if graph.n_unwalked:
        notes.append(
            f"the graph is too large to be read safely: {len(graph.nodes):,} nodes were read, so every figure is a "
            "lower bound"
        )
    if not found.is_complete:
        notes.append(f"only the first {MAX_OBJECTS:,} objects were searched for tensors; every figure is a lower bound")
    elif not holders.is_complete:
        notes.append(f"only the first {MAX_OBJECTS:,} objects of the variables were searched for other holders")
    if storages.n_opaque:
        notes.append(
            f"hooks packed {unit_words(storages.n_opaque, 'saved tensors')} (checkpointing does that) into objects "
            "that hold no tensor; memory that the hooks keep is not counted"
        )
    if storages.n_unknown:
        unknown = unit_words(storages.n_unknown, "saved tensors")
        notes.append(f"torch does not report the size of {unknown}, counted as 0 bytes")
    if storages.unheld_leaf_bytes:
        notes.append(
            f"{format_bytes(storages.unheld_leaf_bytes)} belong to leaves without a known variable: the graph may be "
            "their only holder"
        )
    if not any(node.line for node in graph.nodes):
        notes.append(
            "forward lines are not known; a graph made under torch.autograd.set_detect_anomaly(True), which makes "
            "the forward pass several times slower, has them"
        )
    return notes


def _graph_of(view: HeapView, vertices: Iterable[int]) -> set[int]:
    """Return the parts of all graphs that *vertices* lead to."""
    seen: set[int] = set()
    queue = deque(vertices)
    while queue:
        for after in view.index.referents(queue.popleft()).tolist():
            if view.in_graph[after] and after not in seen:
                seen.add(after)
                queue.append(after)
    return seen


@dataclass(frozen=True, slots=True)
class LongGraph:
    """The graph of one tensor.

    Attributes:
        vertex: The tensor.
        n_nodes: The nodes that the measured runs made, and the leaves; all nodes where torch does not number them.
        is_handed_on: Whether some of these are from before the last two runs and some are newer, or nobody knows.
        n_elsewhere: Nodes of measured runs, the last one left out, that live outside of this graph.
        n_of_run: Nodes that a run adds to it; 0 where nobody knows.
        n_earlier: Nodes of measured runs before the last one.
    """

    vertex: int
    n_nodes: int
    is_handed_on: bool = True
    n_elsewhere: int = 0
    n_of_run: int = 0
    n_earlier: int = 0


def longest_graph(view: HeapView, marks: GraphMarks = NO_MARKS) -> LongGraph | None:
    """Return the graph with most nodes of the measured runs, of the tensors that hand theirs on; the cheapest path.

    What was there before the runs does not count: a large graph that is kept beside is no graph that gets longer. Where
    no graph has nodes of the runs, another thread may have numbered them: then it is the graph with most nodes, of the
    tensors that the runs have made if there are any.
    """
    of_runs, largest = _NO_GRAPH, (True, 0, 0, -1)
    for vertex, graph in _graphs(view):
        cost = int(view.tree.cost[vertex])
        largest = min(largest, (bool(view.birth_run[vertex] == BASELINE), -len(graph), cost, vertex))
        numbers = [] if marks.first == UNSET else _numbers_of(view, graph)
        own = frozenset(number for number in numbers if marks.first <= number < _OF_LEAVES)
        n_nodes = sum(number >= marks.first for number in numbers) if own else 0
        of_runs = min(of_runs, (-n_nodes, cost, vertex, own), key=operator.itemgetter(0, 1, 2))
    size, _cost, vertex, own = of_runs
    if not own:
        return LongGraph(largest[3], -largest[1]) if largest[1] else None
    earlier = (n for n in _numbers_of(view, np.flatnonzero(view.in_graph).tolist()) if marks.first <= n < marks.newest)
    is_handed_on = len({number < marks.previous for number in own}) > 1
    n_elsewhere = sum(number not in own for number in earlier)
    if view.n_unwalked and not is_handed_on:
        vertex = _carried(view, vertex)
    n_earlier = sum(number < marks.newest for number in own)
    return LongGraph(vertex, -size, is_handed_on, n_elsewhere, _n_of_run(own, marks), n_earlier)


def _carried(view: HeapView, vertex: int) -> int:
    """Return the tensor below *vertex* that a graph gets longer by, where so little was read that no run hands it on.

    ``mean = total / n`` divides what was added up in every step: below the last addition is another, and another.
    """
    made_by: dict[int, int] = {}
    for tensor in view.tensors:
        if view.is_reached(tensor):
            made_by.update((node, tensor) for node in _nodes_of(view, tensor))
    nodes = _nodes_of(view, vertex)
    if any(_repeats(view, node) for node in nodes):
        return vertex
    below = {made_by[one] for node in nodes for one in _nodes_of(view, node) if one in made_by and _repeats(view, one)}
    return below.pop() if len(below) == 1 else vertex


def _repeats(view: HeapView, node: int) -> bool:
    """Return whether an input of *node* is the same operation, and has the same operation for an input."""
    level = [node]
    for _ in range(2):
        level = [one for each in level for one in _nodes_of(view, each) if view.kinds[one] == view.kinds[node]]
    return bool(level)


def _nodes_of(view: HeapView, vertex: int) -> list[int]:
    """Return the autograd nodes that *vertex* refers to: its own, of a tensor, or its inputs."""
    parts = view.index.referents(vertex)
    return [int(part) for part in parts if view.in_graph[part] and not view.is_tensor[part]]


def _n_of_run(own: Collection[int], marks: GraphMarks) -> int:
    """Return how many nodes a run adds to the graph that has the nodes *own*, of which the newest were read first.

    Those of the last run but one are counted where some are older, and so all of them were read. Else the newer half of
    those that were read is as dense as all that a run makes: of the oldest, which were met as inputs, some are missing.
    """
    if min(own) < marks.previous:
        return sum(marks.previous <= number < marks.newest for number in own)
    newest, middle = max(own), (max(own) + min(own)) // 2
    n_newer = sum(number > middle for number in own)
    return round(n_newer / max(newest - middle, 1) * (marks.newest - marks.previous))


_NO_GRAPH = (0, 0, -1, frozenset[int]())


def _graphs(view: HeapView, n_steps: int = 0) -> Iterator[tuple[int, set[int]]]:
    """Yield the reached tensors that hand their graphs on, or all that have one, the nearest first, and these graphs.

    There are no more where those so far, and *n_steps*, are too many parts to go through.
    """
    carriers = [vertex for vertex in view.carriers if view.is_reached(vertex)]
    for vertex in sorted(carriers or _heads(view), key=lambda vertex: int(view.tree.cost[vertex])):
        graph = _graph_of(view, [vertex])
        yield vertex, graph
        n_steps += len(graph)
        if n_steps > _MAX_STEPS:
            return


def _numbers_of(view: HeapView, parts: Iterable[int]) -> list[int]:
    """Return the numbers of the nodes among *parts* of graphs, which grow in the order in which they are made."""
    return [number_of(view.objects[part]) for part in parts if not view.is_tensor[part]]


def graphs_beside(view: HeapView, members: Sequence[int], marks: GraphMarks, n_runs: int) -> list[LongGraph]:
    """Return the graphs that get longer and that neither *members* nor one another keep, those with most nodes first.

    A graph gets longer by every run if nodes are left from all the time between the first run and the last two, whose
    nodes may be in use. Of two graphs that share nodes the larger one has them.

    *members* are known to leak with their graphs; there were *n_runs* runs before the last two.
    """
    n_times = min(_N_TIMES, n_runs // 2)
    if view.n_unwalked or n_times < 1 or marks.first >= marks.previous:
        return []
    known = {*members, *_graph_of(view, _tops(view, members))}

    def left_in(graph: set[int]) -> list[int]:
        return [number for number in _numbers_of(view, graph - known) if marks.first <= number < marks.previous]

    found = []
    rows = [(-len(left_in(graph)), int(view.tree.cost[one]), one, graph) for one, graph in _graphs(view, len(known))]
    for _size, _cost, vertex, graph in sorted(rows, key=operator.itemgetter(0, 1, 2)):
        left = left_in(graph)
        if np.histogram(left, n_times, (marks.first, marks.previous))[0].all():
            found.append(LongGraph(vertex, len(left)))
            known |= graph
    return found


def _tops(view: HeapView, members: Iterable[int]) -> set[int]:
    """Return *members*, and what holds the graphs through which the paths to them lead."""
    seen: set[int] = set()
    tops = set(members)
    for member in members:
        vertex, top = member, member
        while vertex >= 0 and vertex not in seen:
            seen.add(vertex)
            parent = int(view.tree.parent[vertex])
            top = parent if view.in_graph[vertex] and parent >= 0 else top
            vertex = parent
        tops.add(top)
    return tops


def _heads(view: HeapView) -> list[int]:
    """Return the tensors with a graph that is not part of another's: of a chain of results only the last."""
    is_inner = np.zeros(view.index.n_vertices, bool)
    for node in np.flatnonzero(view.in_graph & ~view.is_tensor).tolist():
        is_inner[view.index.referents(node)] = True
    heads = []
    for vertex in view.tensors:
        if view.is_reached(vertex) and not view.leaked[vertex]:
            parts = view.index.referents(vertex)
            parts = parts[view.in_graph[parts]]
            if len(parts) and not is_inner[parts].all():
                heads.append(vertex)
    return heads


@dataclass(frozen=True, slots=True)
class Drawer:
    """Draws one graph.

    Attributes:
        graph: Its nodes.
        storages: What they saved.
        leaf_names: For the nodes of leaves that have one, the expression of the leaf.
    """

    graph: GraphNodes
    storages: SavedStorages
    leaf_names: dict[int, str]

    def drawings(self) -> tuple[Drawing, ...]:
        """Return all drawings that say something about this graph, from the finest to the coarsest."""
        found = []
        if len(self.graph.nodes) <= MAX_NODES_DRAWN:
            found.append(self._by_node())
        if any("." in name or "[" in name for name in self.leaf_names.values()):
            found.append(self._collapsed(DrawnBy.MODULE, self._modules()))
        if any(node.line for node in self.graph.nodes):
            lines = [node.line or "(line unknown)" for node in self.graph.nodes]
            found.append(self._collapsed(DrawnBy.LINE, lines))
        found.append(self._collapsed(DrawnBy.OPERATION, [node.name for node in self.graph.nodes]))
        return tuple(found)

    def _by_node(self) -> Drawing:
        nodes = self.graph.nodes
        names = [f"{position}" for position in range(len(nodes))]
        drawing = self._collapsed(DrawnBy.NODE, names, limit=MAX_NODES_DRAWN)
        boxes = [
            GraphBox(
                nodes[position].name, 1, box.n_bytes, box.is_root, box.is_leaf,
                self.leaf_names.get(position) or nodes[position].line,
            )
            for position, box in enumerate(drawing.boxes)
        ]  # fmt: skip
        return Drawing(DrawnBy.NODE, tuple(boxes), drawing.links)

    def _collapsed(self, by: DrawnBy, names: list[str], *, limit: int = _MAX_BOXES) -> Drawing:
        """Put the nodes of one name into one box; beyond *limit* the boxes with the fewest bytes become one."""
        parts = {part.name: part for part in self.storages.parts(dict(enumerate(names)))}
        shown = set(list(parts)[:limit])
        if len(parts) > limit:
            shown = set(list(parts)[: limit - 1])
            names = [name if name in shown else _REST for name in names]
            parts = {part.name: part for part in self.storages.parts(dict(enumerate(names)))}
        places = {name: place for place, name in enumerate(dict.fromkeys(names))}
        has_operation = {name for node, name in zip(self.graph.nodes, names, strict=True) if node.leaf is None}
        roots = {names[position] for position in self.graph.starts}
        boxes = tuple(
            GraphBox(name, parts[name].n_nodes, parts[name].n_bytes, name in roots, name not in has_operation)
            for name in places
        )
        links = Counter(
            (places[names[position]], places[names[before]])
            for position, node in enumerate(self.graph.nodes)
            for before in node.inputs
        )
        inner = [(start, end, count) for (start, end), count in links.most_common() if start != end]
        return Drawing(by, boxes, tuple(inner[:_MAX_LINKS]))

    def _modules(self) -> list[str]:
        """Return for each node the module whose parameters it uses, or that of the latest operation before it.

        Deeply nested modules are put together until there are few enough to draw.
        """
        nodes = self.graph.nodes
        modules = {position: _module_of(name) for position, name in self.leaf_names.items()}
        for position in self._forward_order():
            if position in modules:
                continue
            known = [before for before in nodes[position].inputs if modules.get(before, _NO_MODULE) != _NO_MODULE]
            latest = max(known, key=lambda before: nodes[before].order, default=None)
            modules[position] = _NO_MODULE if latest is None else modules[latest]
        names = [modules[position] for position in range(len(nodes))]
        return _few_enough(names, lambda distinct: len(distinct) <= _MAX_BOXES)

    def _forward_order(self) -> list[int]:
        """Return the positions of all nodes, each behind the nodes it takes its inputs from."""
        n_missing = [len(set(node.inputs)) for node in self.graph.nodes]
        users: list[list[int]] = [[] for _ in self.graph.nodes]
        for position, node in enumerate(self.graph.nodes):
            for before in set(node.inputs):
                users[before].append(position)
        ordered = [position for position, missing in enumerate(n_missing) if not missing]
        for position in ordered:  # grows while it is read
            for user in users[position]:
                n_missing[user] -= 1
                if not n_missing[user]:
                    ordered.append(user)
        return ordered


def _module_of(leaf: str) -> str:
    """Return ``model[0]`` for ``model[0].weight``, and the name itself for a tensor that is no attribute."""
    head, dot, _attribute = leaf.rpartition(".")
    return head if dot and "]" not in _attribute else leaf


def _few_enough(names: list[str], is_few: Callable[[set[str]], bool]) -> list[str]:
    """Cut the last parts off the longest names until there are few different ones."""
    depth = max(len(_PART.findall(name)) for name in names)
    while depth and not is_few(set(names)):
        depth -= 1
        names = [_cut(name, depth) for name in names]
    return names


def _cut(name: str, depth: int) -> str:
    ends = [match.end() for match in _PART.finditer(name)]
    return name if len(ends) <= depth else name[: ends[depth - 1]] if depth else name[: _PART.search(name).start()]  # type: ignore[union-attr]

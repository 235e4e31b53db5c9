"""Read an autograd graph into plain tables: nodes, the references between them, and what each saved.

What is returned refers to the user's tensors, and lives for the length of one explanation only.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from leaklab.explain.autograd.forward_lines import LineReader, NameFile
from leaklab.explain.autograd.saved_fields import Field, FieldReader
from leaklab.graph_walk import GraphWalk, count_leaves, descriptors_of, is_node_type
from leaklab.objects import is_tensor_type, no_torch_functions, type_name


@dataclass(slots=True)
class Node:
    """One node.

    Attributes:
        name: ``MulBackward0``.
        line: The forward line that made it, empty if unknown.
        fields: What it saved.
        leaf: The tensor that it accumulates a gradient into, None for any other operation.
        inputs: Positions of the nodes it hands gradients to: the operations before it.
        order: Grows in the order of the forward pass; leaves come last.
    """

    name: str
    line: str
    fields: list[Field]
    leaf: Any
    order: int
    inputs: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class GraphNodes:
    """The graphs behind some tensors.

    Attributes:
        nodes: Those that the tensors reach.
        starts: For each node on which one of the tensors hangs, that tensor.
        n_unwalked: Places at which the walk had to stop.
    """

    nodes: list[Node]
    starts: dict[int, Any]
    n_unwalked: int


def read_graph(tensors: Iterable[Any], name_file: NameFile) -> GraphNodes:
    """Return the nodes that *tensors* reach, as far as walking them is safe.

    Their gradients belong to them: after ``backward(create_graph=True)`` they have graphs of their own.
    """
    wrapped, n_leaves = _heap()
    walk = GraphWalk(wrapped, n_leaves, reads_saved=False)
    del wrapped
    walk.from_tensors(tensors)
    walk.from_tensors([held for _tensor, held, reference in walk.edges if reference == ".grad"])
    heads: dict[int, Any] = {}
    inputs: dict[int, list[int]] = {}
    for source, held, reference in walk.edges:
        if reference == ".grad_fn":
            heads.setdefault(id(held), source)
        elif reference.startswith(".next_functions"):
            inputs.setdefault(id(source), []).append(id(held))
    positions = _reachable(heads, inputs)
    fields, lines = FieldReader(), LineReader(name_file)
    with no_torch_functions():
        nodes = [_read(walk.nodes[address], fields, lines) for address in positions]
    for address, position in positions.items():
        nodes[position].inputs = [positions[before] for before in inputs.get(address, ())]
    return GraphNodes(nodes, {positions[address]: tensor for address, tensor in heads.items()}, walk.n_unwalked)


def _heap() -> tuple[list[Any], int]:
    """Return the nodes that Python has looked at already, and how many leaves there are."""
    is_node: dict[int, bool] = {}
    is_tensor: dict[int, bool] = {}
    nodes: list[Any] = []
    tensors: list[Any] = []
    for thing in gc.get_objects():
        kind = type(thing)
        if id(kind) not in is_node:
            is_node[id(kind)], is_tensor[id(kind)] = is_node_type(kind), is_tensor_type(kind)
        if is_node[id(kind)]:
            nodes.append(thing)
        elif is_tensor[id(kind)]:
            tensors.append(thing)
    return nodes, count_leaves(tensors)


def _reachable(heads: Iterable[int], inputs: dict[int, list[int]]) -> dict[int, int]:
    """Return the addresses of all nodes below *heads*, with their positions, breadth first."""
    positions: dict[int, int] = {}
    fresh = list(heads)
    while fresh:
        following: list[int] = []
        for address in fresh:
            if address not in positions:
                positions[address] = len(positions)
                following += inputs.get(address, ())
        fresh = following
    return positions


def _read(node: Any, fields: FieldReader, lines: LineReader) -> Node:
    kind = type(node)
    source = descriptors_of(kind)
    return Node(
        name=type_name(kind).rpartition(".")[2],
        line=lines.line_of(node),
        fields=list(fields.fields_of(node)),
        leaf=source["variable"].__get__(node) if "variable" in source else None,
        order=source["_sequence_nr"](node),
    )

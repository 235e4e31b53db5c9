"""Read an autograd graph into plain tables: nodes, the references between them, and what each saved.

What is returned refers to the user's tensors, and lives for the length of one explanation only.
"""

from __future__ import annotations

import enum
import gc
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from leaklab.runtime.autograd_graph import (
    GraphWalk,
    count_leaves,
    descriptors_of,
    is_node_type,
    is_python_node_type,
)
from leaklab.runtime.containers import items_in
from leaklab.runtime.objects import is_exactly, is_tensor, is_tensor_type, no_torch_functions, type_name
from leaklab.runtime.ours import Origin, origin_of

NameFile = Callable[[str], str | None]
"""Returns what a reader calls a file, ``Cell In[7]`` for one that a notebook made up; None for a real file."""
_FRAME = re.compile(r'  File "(.*)", line (\d+), in (.*)(?:\n    (.*))?')
_PREFIX = "_raw_saved_"
_MAX_PACKED_DEPTH = 3


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


class State(enum.Enum):
    """What has become of a saved tensor."""

    HELD = enum.auto()
    PACKED = enum.auto()
    FREED = enum.auto()


@dataclass(frozen=True, slots=True)
class Field:
    """One saved tensor of a node; for the length of a walk only, as it refers to the user's tensors.

    Attributes:
        name: What it was saved as: ``self``, ``weight``, ``tensors[1]``.
        state: Whether it is there.
        tensors: The tensor; for a packed one the tensors found in what the hook made of it.
    """

    name: str
    state: State
    tensors: tuple[Any, ...]


class FieldReader:
    """Reads what nodes saved for the backward pass, as it is stored; the fields of a type are looked up once.

    Only ``_raw_saved_*.data`` is read: no unpack hook runs and no checkpoint is computed again. Reading costs a Python
    wrapper for each saved tensor that has none yet; the wrapper lives as long as the graph.
    """

    def __init__(self) -> None:
        self._readers: dict[int, list[tuple[str, Callable[[Any], Any]]]] = {}

    def fields_of(self, node: Any) -> Iterator[Field]:
        """Yield every tensor that *node* saved, or had saved before a backward pass freed it."""
        kind = type(node)
        readers = self._readers.get(id(kind))
        if readers is None:
            readers = self._readers[id(kind)] = _readers_of(kind)
        for name, read in readers:
            try:
                raw = read(node)
            except RuntimeError:  # a list of saved tensors says so when it was freed
                yield Field(name, State.FREED, ())
                continue
            if is_exactly(raw, (list, tuple)):
                for number, one in enumerate(raw):
                    yield from _field(f"{name}[{number}]", one)
            else:
                yield from _field(name, raw)
        if is_python_node_type(kind):
            yield from _context_attributes(node)


class LineReader:
    """Reads which line of the forward pass made a node; a stack that many nodes share is parsed once.

    ``torch.autograd.set_detect_anomaly(True)`` writes the stack into ``grad_fn.metadata['traceback_']``. Asking a node
    of which nothing was recorded leaves an empty dict on it, some 70 bytes, for as long as the graph lives.
    """

    def __init__(self, name_file: NameFile) -> None:
        self._name_file = name_file
        self._readers: dict[int, Callable[[Any], Any]] = {}
        self._known: dict[str, str] = {}

    def line_of(self, node: Any) -> str:
        """Return ``Cell In[7], line 3 in step: loss = ...``, empty where nothing was recorded."""
        kind = type(node)
        read = self._readers.get(id(kind))
        if read is None:
            read = self._readers[id(kind)] = descriptors_of(kind)["metadata"].__get__
        stack = read(node).get("traceback_")
        if type(stack) is not list or not stack or not all(type(entry) is str for entry in items_in(stack)):
            return ""
        key = "".join(stack)
        if key not in self._known:
            self._known[key] = self._innermost(stack)
        return self._known[key]

    def _innermost(self, stack: list[str]) -> str:
        """Return the innermost line of the user's own code; any code's where there is none."""
        frames = [match.groups() for match in map(_FRAME.match, stack) if match is not None]
        own = [frame for frame in frames if origin_of(frame[0]) is Origin.USER]
        for file, number, function, code in (own or frames)[-1:]:
            place = self._name_file(file) or file
            where = f" in {function}" if function != "<module>" else ""
            return f"{place}, line {number}{where}" + (f": {code.strip()}" if code else "")
        return ""


def _readers_of(kind: type) -> list[tuple[str, Callable[[Any], Any]]]:
    source = descriptors_of(kind)
    return [(name.removeprefix(_PREFIX), source[name].__get__) for name in source if name.startswith(_PREFIX)]


def _field(name: str, raw: Any) -> Iterator[Field]:
    if raw is None:
        return
    held = raw.data
    if raw.unpack_hook is not None:
        yield Field(name, State.PACKED, tuple(_tensors_in(held)))
    elif held is not None:
        yield Field(name, State.HELD, (held,))
    elif _was_freed(raw):
        yield Field(name, State.FREED, ())


def _was_freed(raw: Any) -> bool:
    """Return whether a tensor was freed, not just never saved; asked only where there is no data and no hook to run."""
    try:
        raw.unpack()
    except RuntimeError:
        return True
    return False


def _tensors_in(packed: Any, depth: int = 0) -> Iterator[Any]:
    """Yield the tensors in what a pack hook returned, such as the ``(device, tensor)`` of ``save_on_cpu``."""
    if is_tensor(packed):
        yield packed
    elif is_exactly(packed, (tuple, list)) and depth < _MAX_PACKED_DEPTH:
        for item in packed:
            yield from _tensors_in(item, depth + 1)
    elif type(packed) is dict and depth < _MAX_PACKED_DEPTH:
        for item in packed.values():
            yield from _tensors_in(item, depth + 1)


def _context_attributes(node: Any) -> Iterator[Field]:
    """Yield the tensors that a ``torch.autograd.Function`` put on its ``ctx`` instead of saving them."""
    for name, value in list(object.__getattribute__(node, "__dict__").items()):
        if is_tensor(value):
            yield Field(f"ctx.{name}", State.HELD, (value,))

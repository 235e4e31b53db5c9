"""The records of an autograd graph: what it keeps alive, through which operations, lines and saved tensors."""

from __future__ import annotations

import enum
from dataclasses import dataclass

RETENTION_SCHEMA = 1
"""Raised whenever `AutogradRecord` changes so that older files cannot be read any more."""


class Sharing(str, enum.Enum):
    """Who else holds the memory of a saved tensor."""

    GRAPH = "graph"  # nobody that could be found: it comes back when the graph goes
    LEAF = "leaf"  # a parameter or another tensor that collects a gradient
    VARIABLE = "variable"  # a variable, or a buffer of a model


class DrawnBy(str, enum.Enum):
    """What one box of a drawn graph stands for."""

    NODE = "node"
    MODULE = "module"
    LINE = "line"
    OPERATION = "operation"


@dataclass(frozen=True, slots=True)
class KeptTensor:
    """Tensors that operations saved, alike in everything below; each storage is told once.

    Attributes:
        kind: Qualified name of the tensors' type.
        shape: Of the first tensor saved with this storage.
        dtype: ``float32``; ``?`` where torch does not tell.
        device: ``cpu``, ``cuda:0``.
        count: How many storages are alike.
        n_bytes: Their bytes together; None where torch cannot tell how large one is.
        saved_by: ``MulBackward0.self``: the operations that saved it, and as what.
        lines: Forward lines of those operations; empty where they are not known.
        sharing: Who else holds the memory.
        shared_with: Expression of that holder, empty where it has no name.
        is_packed: Whether a ``saved_tensors_hooks`` pack hook put it where it is.
    """

    kind: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    count: int
    n_bytes: int | None
    saved_by: tuple[str, ...]
    lines: tuple[str, ...]
    sharing: Sharing
    shared_with: str
    is_packed: bool


@dataclass(frozen=True, slots=True)
class GraphPart:
    """The nodes of one operation, or of one forward line.

    Attributes:
        name: ``MulBackward0``, or ``Cell In[7], line 3 in step: loss = ...``.
        n_nodes: How many nodes.
        n_saved: Tensors that are saved in them, a tensor saved twice counted twice.
        n_freed: Saved tensors that a backward pass has freed.
        n_packed: Those of *n_saved* that pack hooks replaced by something of their own.
        n_bytes: Bytes of what they save, each storage once; a storage that other parts save too counts there as well.
        own_bytes: Bytes that nobody else holds: no other part, no leaf, no variable.
    """

    name: str
    n_nodes: int
    n_saved: int
    n_freed: int
    n_packed: int
    n_bytes: int
    own_bytes: int


@dataclass(frozen=True, slots=True)
class GraphBox:
    """One box of a drawing.

    Attributes:
        name: What the box stands for.
        n_nodes: Nodes in it.
        n_bytes: As in `GraphPart`.
        is_root: Whether one of the examined tensors hangs on it.
        is_leaf: Whether it is made of leaves only.
        note: A remark for the reader, may be empty: the forward line, the name of the parameter.
    """

    name: str
    n_nodes: int
    n_bytes: int
    is_root: bool
    is_leaf: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture of the graph: boxes, and between them the references from later to earlier operations.

    Attributes:
        by: What one box stands for.
        boxes: At most some tens.
        links: ``(from, to, count)`` by position in *boxes*, the most frequent first.
    """

    by: DrawnBy
    boxes: tuple[GraphBox, ...]
    links: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class AutogradRecord:
    """What the autograd graphs behind some tensors keep alive.

    Attributes:
        name: The expression that was examined.
        roots: Expressions of the tensors with a graph, at most 20.
        n_roots: How many such tensors there are.
        n_nodes: Nodes that they reach.
        is_complete: False if a limit was met: every figure is then a lower bound.
        n_saved: Saved tensors, a tensor saved twice counted twice.
        n_freed: Saved tensors that a backward pass has freed; the nodes are still there.
        n_packed: Those of *n_saved* that pack hooks replaced by something of their own.
        n_opaque: Packed ones in which no tensor was found, such as those of a checkpoint.
        n_unknown: Saved tensors of which torch cannot tell how large they are.
        saved_bytes: Bytes of all saved tensors, each storage once.
        leaf_bytes: Of these, the memory of leaves: parameters, and other tensors that collect a gradient.
        variable_bytes: Of the rest, what variables or buffers hold as well.
        unsaved_leaf_bytes: Memory of leaves that no operation saved: the graph keeps them all the same.
        node_bytes: What the nodes themselves take, estimated; 0 in a record of a version that did not count it.
        operations: By operation, most bytes first.
        lines: By forward line, most bytes first; empty unless some are known.
        tensors: Saved tensors, largest first.
        drawings: From the finest to the coarsest.
        notes: Caveats, one sentence each.
        environment: Versions, as ``(name, version)``.
    """

    name: str
    roots: tuple[str, ...]
    n_roots: int
    n_nodes: int
    is_complete: bool
    n_saved: int
    n_freed: int
    n_packed: int
    n_opaque: int
    n_unknown: int
    saved_bytes: int
    leaf_bytes: int
    variable_bytes: int
    unsaved_leaf_bytes: int
    operations: tuple[GraphPart, ...]
    lines: tuple[GraphPart, ...]
    tensors: tuple[KeptTensor, ...]
    drawings: tuple[Drawing, ...]
    notes: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    schema: int = RETENTION_SCHEMA
    node_bytes: int = 0

    @property
    def graph_bytes(self) -> int:
        """Saved bytes that nobody but the graph holds, as far as could be seen."""
        return self.saved_bytes - self.leaf_bytes - self.variable_bytes

"""Find the references that the garbage collector does not report, and the objects that it does not list.

A table of providers: numpy arrays that hold objects, autograd graphs, running functions. Everything is read through
the descriptors of the C types themselves, so neither a subclass, nor a hook, nor ``__torch_function__`` gets to run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from leaklab.addresses import addresses_of, types_at
from leaklab.explain.heap.address_table import AddressTable
from leaklab.explain.heap.frames import local_variables, places_in_code, running_frames
from leaklab.explain.heap.hidden_arrays import ArraySearch
from leaklab.explain.heap.index import ReferencePass
from leaklab.explain.heap.kinds import kinds_at
from leaklab.explain.heap.node_hooks import node_hooks, tensor_hooks
from leaklab.graph_walk import MAX_WRAPPED_NODES, Edge, GraphWalk, count_leaves, is_node_type
from leaklab.pausing import gc_paused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAX_NAMED = 3


@dataclass(slots=True, eq=False, repr=False)
class HiddenEdges:
    """What has to be added to a heap; holds the user's objects, so let go of it soon.

    Attributes:
        edges: ``(source, target, reference)``, the reference as Python writes it where it can.
        extra_objects: Objects to become vertices that the collector did not list: arrays, frames, autograd nodes,
            tensors that nothing in Python had touched. None of them is in the list of objects that was given.
        n_unwalked: Autograd nodes whose inputs, and tensors whose graph, were not looked at.
        notes: What could not be looked at and why, one sentence each.
    """

    edges: list[Edge] = field(default_factory=list)
    extra_objects: list[Any] = field(default_factory=list)
    n_unwalked: int = 0
    notes: tuple[str, ...] = ()


def hidden_edges(objects: list[Any], references: ReferencePass | None = None) -> HiddenEdges:
    """Find what the collector does not report about *objects*, which ``gc.get_objects()`` returned.

    Reading a gradient or a saved tensor for the first time makes a Python object of it that stays for its life: count
    objects before, not after.

    Args:
        objects: The heap.
        references: A pass over them that has not been made; it is made here, so that only one is needed.
    """
    before = places_in_code()
    with gc_paused():
        references = ReferencePass(objects) if references is None else references
        found = _Found(objects, references.table)
        frame_edges = _frames(found)
        _arrays(found, references, [target for _, target, _ in frame_edges])
        walk = _graphs(found)
        result = found.result()
    result.n_unwalked = walk.n_unwalked
    result.notes = (*_left_out(walk.n_unwalked), *_changes(before))
    return result


def _left_out(n_unwalked: int) -> Iterator[str]:
    if n_unwalked:
        yield (
            f"{n_unwalked:,} autograd nodes were not followed further: reading more than {MAX_WRAPPED_NODES:,} "
            "of a graph from Python could crash the process when the graph is freed; what was counted of graphs is a "
            "lower bound"
        )


def _changes(before: dict[str, tuple[int, ...]]) -> Iterator[str]:
    """Yield a caveat for threads that ran meanwhile."""
    after = places_in_code()
    ran = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if ran:
        names = ", ".join(map(repr, ran[:_MAX_NAMED])) + (" and others" if len(ran) > _MAX_NAMED else "")
        yield (
            f"the heap changed while it was read, because other threads ran ({names}): what they changed meanwhile may "
            "be missing or out of date"
        )


class _Found:
    """References and objects found so far, beside the objects that are known."""

    def __init__(self, objects: list[Any], table: AddressTable) -> None:
        self.objects = objects
        self.edges: list[Edge] = []
        self.extra: dict[int, Any] = {}
        self._table = table
        self._kinds = kinds_at(objects, addresses_of(objects))
        self._types = types_at(self._kinds)

    def add(self, edges: list[Edge], vertices: list[Any]) -> list[Any]:
        """Add references and objects; return those of the objects that are new."""
        self.edges.extend(edges)
        unlisted = self._table.positions(addresses_of(vertices)) < 0
        new = {id(vertices[at]): vertices[at] for at in np.flatnonzero(unlisted).tolist()}
        new = {address: vertex for address, vertex in new.items() if address not in self.extra}
        self.extra.update(new)
        return list(new.values())

    def of_types(self, is_wanted: Callable[[type], bool]) -> list[Any]:
        """Return the known objects whose type *is_wanted*; each type is asked for once."""
        wanted = [address for address, kind in self._types.items() if is_wanted(kind)]
        return [self.objects[at] for at in np.flatnonzero(np.isin(self._kinds, wanted)).tolist()]

    def result(self) -> HiddenEdges:
        """Return everything between objects that are vertices."""
        vertices = list(self.extra.values())
        table = AddressTable(addresses_of(vertices))
        is_vertex = np.ones(len(self.edges), dtype=bool)
        for end in (0, 1):
            addresses = addresses_of([edge[end] for edge in self.edges])
            is_vertex &= (self._table.positions(addresses) >= 0) | (table.positions(addresses) >= 0)
        return HiddenEdges([self.edges[at] for at in np.flatnonzero(is_vertex).tolist()], vertices)


def _frames(found: _Found) -> list[Edge]:
    """Add the local variables of running functions."""
    running = running_frames()
    edges = [
        (one.frame, value, f"local {name!r} of {one.function}()")
        for one in running
        for name, value in local_variables(one.frame)
    ]
    found.add(edges, [one.frame for one in running])
    return edges


def _arrays(found: _Found, references: ReferencePass, local_values: list[Any]) -> None:
    """Add what numpy arrays hold."""
    arrays = ArraySearch()
    for unlisted in references.unlisted():
        arrays.among(unlisted)
    arrays.among(local_values)
    found.add(arrays.edges, list(arrays.vertices.values()))


def _is_tensor_type(kind: type) -> bool:
    return type.__subclasscheck__(torch.Tensor, kind)  # in C: asks no metaclass, unlike issubclass


def _graphs(found: _Found) -> GraphWalk:
    """Add what tensors and autograd graphs hold."""
    nodes = found.of_types(is_node_type)
    tensors = found.of_types(_is_tensor_type)
    walk = GraphWalk(nodes, count_leaves(tensors))
    while tensors:
        n_before = len(walk.edges)
        walk.from_tensors(tensors)
        edges = walk.edges[n_before:]
        new = found.add(edges, [*walk.nodes.values(), *(held for _, held, _ in edges if _is_tensor_type(type(held)))])
        tensors = [thing for thing in new if _is_tensor_type(type(thing))]
    hooks = [*node_hooks(walk.nodes.values()), *tensor_hooks(walk.edges)]
    found.add(hooks, [held for _, held, _ in hooks])
    return walk

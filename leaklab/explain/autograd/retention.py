"""Say what the autograd graphs behind an object keep alive, by operation, line and saved tensor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

from leaklab.explain.autograd.drawings import Drawer
from leaklab.explain.autograd.forward_lines import NameFile
from leaklab.explain.autograd.found_tensors import MAX_OBJECTS, FoundTensors
from leaklab.explain.autograd.graph_nodes import GraphNodes, read_graph
from leaklab.explain.autograd.saved_storages import SavedStorages
from leaklab.model.retention import Retention, Sharing
from leaklab.objects import is_tensor, no_torch_functions, type_name
from leaklab.words import format_bytes

_MAX_ROOTS = 20
_SIMPLE = re.compile(r"[\w.\[\]'\"]+")
_tensor = torch._C.TensorBase.__dict__  # noqa: SLF001 - its own descriptors, so that no subclass can answer instead
_requires_grad, _is_leaf = _tensor["requires_grad"].__get__, _tensor["is_leaf"].__get__


def explain_retention(
    starts: Mapping[str, object], variables: Mapping[str, object], name: str, name_file: NameFile
) -> Retention:
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
    roots = [tensor for tensor in found.tensors if _has_graph(tensor)]
    lines = {position: node.line for position, node in enumerate(graph.nodes) if node.line}
    return Retention(
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
    )


def _expression(start: str) -> str:
    """Return *start* so that ``[0]`` or ``.x`` may follow it."""
    return start if _SIMPLE.fullmatch(start) else f"({start})"


def _has_graph(tensor: Any) -> bool:
    with no_torch_functions():
        return bool(_requires_grad(tensor) and not _is_leaf(tensor))


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
            is_leaf = bool(_requires_grad(things[0]))
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
            f"the graph is larger than can be walked without harm: {len(graph.nodes):,} nodes were read, "
            "and every figure is a lower bound"
        )
    if not found.is_complete:
        notes.append(f"only the first {MAX_OBJECTS:,} objects were searched for tensors; every figure is a lower bound")
    elif not holders.is_complete:
        notes.append(f"only the first {MAX_OBJECTS:,} objects of the variables were searched for other holders")
    if storages.n_opaque:
        notes.append(
            f"{storages.n_opaque:,} saved tensors were packed by hooks, such as those of a checkpoint, into objects "
            "without a tensor; what the hooks themselves keep, for instance to compute again, is not counted"
        )
    if storages.n_unknown:
        notes.append(f"torch does not tell the size of {storages.n_unknown:,} saved tensors; they count as nothing")
    if storages.unheld_leaf_bytes:
        notes.append(
            f"{format_bytes(storages.unheld_leaf_bytes)} belong to leaves that no variable was found to hold: "
            "if nothing else does, the graph alone keeps them"
        )
    if not any(node.line for node in graph.nodes):
        notes.append(
            "forward lines are not known; a graph made under torch.autograd.set_detect_anomaly(True), which makes "
            "the forward pass several times slower, has them"
        )
    return notes

"""Estimate what objects take of native memory: storages, large blocks of Python, the C++ objects of torch."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from leaklab.explain.heap.address_table import Ints
from leaklab.explain.reaching.freed import references_of
from leaklab.explain.view import HeapView
from leaklab.model.native import NativeParts
from leaklab.objects import loaded_type, no_torch_functions, type_name
from leaklab.sizes import owned_objects, shallow_bytes
from leaklab.tensors import storages_of

# Measured with torch 2.13 on glibc: 61 operations (element-wise, views, reductions, products, convolution, norms,
# attention, losses, LSTM, GRU, decompositions, one written in Python), 500 of each kept, malloc's level before and
# after, the bytes of the storages taken off. Each was kept three ways: its result with the graph, its result made
# without one, and its node alone. The least squares of the relative errors of these figures are off by 10 % (root mean
# square); the extremes are -21 % (the node of an addition) and +39 % (that of unbind, with a record for each of four
# results).
TENSOR_BYTES = 360
"""TensorImpl and StorageImpl with their counters, and what aligning the storage costs."""
GRADIENT_BYTES = 155
"""The AutogradMeta of a tensor that requires a gradient."""
NODE_BYTES = 520
"""A node with its metadata and its saved variables: 430 for a negation, 900 for a batch norm with its three."""
EDGE_BYTES = 85
"""What a node keeps of each of its inputs."""

_ACCUMULATOR = "AccumulateGrad"
_POOLED_BYTES = 512
"""Python takes blocks up to this size from arenas of its own, which malloc does not hand out."""


def native_parts(view: HeapView, vertices: Sequence[int], without_storages: Collection[int] = ()) -> NativeParts:
    """Estimate what the objects at *vertices* take of native memory, everything counted once.

    Args:
        view: The heap.
        vertices: All of them: nodes and saved tensors are not looked for.
        without_storages: Keys of storages that belong to somebody else.
    """
    things = [view.objects[vertex] for vertex in vertices]
    tensors = (thing for thing, vertex in zip(things, vertices, strict=True) if view.is_tensor[vertex])
    on_host, on_device = _storage_bytes(tensors, without_storages)
    pooled_bytes = _POOLED_BYTES if sys.getallocatedblocks() else 0  # no block: PYTHONMALLOC=malloc
    sizes = map(shallow_bytes, owned_objects(things))
    return NativeParts(
        data_bytes=on_host + sum(size for size in sizes if size > pooled_bytes),
        cpp_bytes=cpp_bytes(view, vertices),
        device_bytes=on_device,
    )


def cpp_bytes(view: HeapView, vertices: Sequence[int] | Ints) -> int:
    """Estimate the bytes of the C++ objects behind the tensors and autograd nodes at *vertices*."""
    places = np.asarray(vertices, np.int64)
    is_tensor = view.is_tensor[places]
    nodes = places[view.in_graph[places] & ~is_tensor]
    _holders, held = references_of(view.index, nodes)
    n_edges = int(np.count_nonzero(view.in_graph[held] & ~view.is_tensor[held]))
    tensors = [view.objects[vertex] for vertex in places[is_tensor].tolist()]
    n_with_gradient, n_accumulated = _count_gradients(tensors)
    n_leaves = sum(1 for vertex in nodes.tolist() if type_name(type(view.objects[vertex])) == _ACCUMULATOR)
    # A parameter keeps its AccumulateGrad once it took part in a graph (480 bytes), and shows it to nobody.
    n_nodes = len(nodes) + max(0, n_accumulated - n_leaves)
    return TENSOR_BYTES * len(tensors) + GRADIENT_BYTES * n_with_gradient + NODE_BYTES * n_nodes + EDGE_BYTES * n_edges


def _count_gradients(tensors: Iterable[Any]) -> tuple[int, int]:
    """Return how many of *tensors* require a gradient, and into how many one was accumulated."""
    base: Any = loaded_type("torch", "Tensor")
    if base is None:
        return 0, 0
    with no_torch_functions():
        requiring = [tensor for tensor in tensors if base.requires_grad.__get__(tensor)]
        leaves = [tensor for tensor in requiring if base.is_leaf.__get__(tensor)]
        return len(requiring), sum(1 for leaf in leaves if base.grad.__get__(leaf) is not None)


def _storage_bytes(tensors: Iterable[Any], without: Collection[int]) -> tuple[int, int]:
    """Return the bytes of the storages of *tensors* in main memory, and of those on accelerators."""
    base: Any = loaded_type("torch", "Tensor")
    on_host: dict[int, int] = {}
    on_device: dict[int, int] = {}
    for tensor in tensors:
        with no_torch_functions():
            place = on_host if base.is_cpu.__get__(tensor) else on_device
        place.update(storages_of(tensor) or ())
    return tuple(sum(n for key, n in place.items() if key not in without) for place in (on_host, on_device))  # type: ignore[return-value]  # two of them

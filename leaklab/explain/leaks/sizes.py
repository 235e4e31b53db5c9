"""Say what a group of survivors is: which objects, how many, how many bytes, native memory included."""

from __future__ import annotations

import sys
import threading
import types
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.heap.reachability import references_of
from leaklab.heap.view import BASELINE, HeapView
from leaklab.model.check import NativeParts
from leaklab.runtime.addresses import Ints
from leaklab.runtime.autograd_graph import has_graph, is_node_type, number_of
from leaklab.runtime.containers import newest_items, newest_pairs
from leaklab.runtime.graph_marks import UNSET
from leaklab.runtime.objects import (
    HEAP_TYPE,
    STREAM_TYPES,
    flags_of,
    has_base,
    is_exactly,
    is_kind_of,
    is_tensor,
    is_tensor_type,
    loaded_type,
    mro_of,
    no_torch_functions,
    safe_len,
    summary,
    type_name,
)
from leaklab.runtime.referents import get_referents
from leaklab.runtime.sizes import (
    is_on_host,
    leaves_beside,
    node_bytes,
    owned_bytes,
    owned_objects,
    shallow_bytes,
    shown_bytes,
    storage_bytes,
    storages_of,
)

# Measured as `leaklab.runtime.sizes.node_bytes` was.
TENSOR_BYTES = 360
"""TensorImpl and StorageImpl with their counters, and what aligning the storage costs."""
GRADIENT_BYTES = 155
"""The AutogradMeta of a tensor that requires a gradient."""
_ACCUMULATOR = "AccumulateGrad"
_POOLED_BYTES = 512
"""Python takes blocks up to this size from arenas of its own, which malloc does not hand out."""
_MAX_SAMPLED = 1000
_POINTER_BYTES = 8
_FEWEST_VIEWS, _MAX_VIEWS = 4, 64
"""Of fewer tensors it is not said that most of them share a storage; so many are asked."""


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group of survivors in numbers and words.

    Attributes:
        what: The objects that matter most: the tensors that the holder refers to, else those in what it refers to, else
            what it refers to.
        main_objects: Those objects, as vertices.
        n_bytes: Bytes of all of the group, storages of other owners not counted; the C++ parts are estimated.
        others: The other types in it, with how many of each, most frequent first.
        kinds: Names of all types in it.
        has_graph: Whether any of its tensors still has its autograd graph.
    """

    what: str
    main_objects: tuple[int, ...]
    n_bytes: int
    others: tuple[tuple[str, int], ...]
    kinds: frozenset[str]
    has_graph: bool


class GroupSizer:
    """Counts groups of one view."""

    def __init__(self, view: HeapView) -> None:
        self._view = view
        listed = (v for v in view.tensors if v < view.n_heap and not view.in_graph[v])
        others = (v for v in listed if view.birth_run[v] == BASELINE)
        self._owned_by_others = frozenset(storage_bytes(view.objects[vertex] for vertex in others))

    def count(self, members: Sequence[int], entries: Sequence[int], *, is_chain: bool = False) -> GroupSummary:
        """Count *members*; *entries* are those that the holder refers to.

        Args:
            members: All objects of the group.
            entries: Those of them that the holder refers to.
            is_chain: Whether the entries refer to further ones of their kind, which matter as much.
        """
        objects = self._view.objects
        places = np.asarray(members, np.int64)
        tensors = places[self._view.is_tensor[places]].tolist()
        held = [vertex for vertex in entries if self._view.leaked[vertex]]
        # What the holder refers to is what somebody put there; further tensors are what the graphs of those keep.
        main_objects = [vertex for vertex in held if self._view.is_tensor[vertex]] or tensors
        main_objects = main_objects or self._threads_that_hold(held, members) or held or list(members)
        if is_chain:
            main_objects = places[np.isin(self._view.kinds[places], self._view.kinds[main_objects])].tolist()
        names = self._names(places)
        what, main_kind = self._words(main_objects)
        vertices = [*members, *self._hidden_below({*members, *entries})]
        owned = [*(objects[v] for v in vertices), *self._beside(entries)]
        data_bytes = owned_bytes(owned, without_storages=self._owned_by_others | shared_storages(owned))
        return GroupSummary(
            what=what,
            main_objects=tuple(main_objects),
            n_bytes=data_bytes + cpp_bytes(self._view, vertices),
            others=tuple((name, count) for name, count in names.most_common(8) if name != main_kind),
            kinds=frozenset(names),
            has_graph=any(has_graph(objects[vertex]) for vertex in tensors),
        )

    def _beside(self, entries: Sequence[int]) -> list[object]:
        """Return the data that dicts and caches have under *entries*, which are keys of theirs."""
        view, held = self._view, {id(self._view.objects[vertex]) for vertex in entries}
        holders = {int(view.tree.parent[vertex]) for vertex in entries} - {-1, view.namespace}
        return [leaf for holder in holders for leaf in leaves_beside(view.objects[holder], held)]

    def _threads_that_hold(self, entries: Sequence[int], members: Sequence[int]) -> list[int]:
        """Return the threads among *members* if *entries* are what the functions of threads hold."""
        view = self._view
        starts = [view.starts[view.tree.root_of[vertex]] for vertex in entries if view.tree.root_of[vertex] >= 0]
        if len(starts) < len(entries) or not all(start.words.startswith("thread ") for start in starts):
            return []
        return [vertex for vertex in members if has_base(type(view.objects[vertex]), threading.Thread)]

    def native_parts(self, members: Sequence[int], entries: Sequence[int]) -> NativeParts:
        """Return what *members*, and the graphs below them and *entries*, take of native memory."""
        vertices = [*members, *self._hidden_below({*members, *entries})]
        return native_parts(self._view, vertices, self._owned_by_others, self._beside(entries))

    def bytes_of(self, members: Iterable[int]) -> int:
        """Return the bytes of *members*, storages of others not counted."""
        return owned_bytes([self._view.objects[v] for v in members], without_storages=self._owned_by_others)

    def storages_of(self, vertices: Iterable[int]) -> int:
        """Return the bytes of the storages of the tensors *vertices*, those of others not counted."""
        sizes = storage_bytes(self._view.objects[vertex] for vertex in vertices)
        return sum(size for key, size in sizes.items() if key not in self._owned_by_others)

    @staticmethod
    def storages_of_all(view: HeapView, vertices: Iterable[int]) -> int:
        """Return the bytes of the storages of the tensors *vertices*, whoever else owns them."""
        return sum(storage_bytes(view.objects[vertex] for vertex in vertices).values())

    def _names(self, places: npt.NDArray[np.int64]) -> Counter[str]:
        """Return how many of the objects at *places* have a type of each name."""
        kinds = self._view.kinds[places]
        distinct, firsts, counts = np.unique(kinds, return_index=True, return_counts=True)
        names: Counter[str] = Counter()
        for _kind, first, count in zip(distinct, firsts.tolist(), counts.tolist(), strict=True):
            names[type_name(type(self._view.objects[int(places[first])]))] += count
        return names

    def _words(self, main_objects: Sequence[int]) -> tuple[str, str]:
        """Return the words for the biggest kind among *main_objects*, and the name of its type."""
        shapes: Counter[tuple[str, str]] = Counter()
        places = np.asarray(main_objects, np.int64)
        is_tensor = self._view.is_tensor[places]
        for thing in (self._view.objects[vertex] for vertex in places[is_tensor].tolist()):
            weight = sum(size for _key, size in storages_of(thing) or ())
            shapes[type_name(type(thing)), summary(thing)] += max(weight, 1)
        for name, count in self._names(places[~is_tensor]).items():
            shapes[name, ""] += count
        (name, words), _weight = shapes.most_common(1)[0]
        more = len(shapes) - 1
        suffix = f" and {more} other kind{'s' if more > 1 else ''}" if more else ""
        return f"{name} {words}".strip() + suffix, name

    def _hidden_below(self, vertices: set[int]) -> list[int]:
        """Return what only hidden references reach from *vertices*: autograd nodes and the tensors they saved.

        What several groups lead to is counted with the one that the path to it runs through. A graph that each run
        takes over from the one before reaches beyond the measured runs: what was made outside of them is left out.
        """
        view = self._view
        counts = dict.fromkeys(vertices, True)  # for each vertex met whether it, and what hangs on it alone, counts
        queue = deque(vertices)
        while queue:
            above = queue.popleft()
            for after in view.index.referents(above).tolist():
                is_hidden = view.in_graph[after] or after >= view.n_heap
                if is_hidden and after not in counts and self._is_path(above, after):
                    counts[after] = self._is_of_a_run(after, is_below=counts[above])
                    queue.append(after)
        return [vertex for vertex, is_counted in counts.items() if is_counted and vertex not in vertices]

    def _is_path(self, above: int, after: int) -> bool:
        return int(self._view.tree.parent[after]) == above or int(self._view.tree.root_of[after]) < 0

    def _is_of_a_run(self, vertex: int, *, is_below: bool) -> bool:
        """Return whether a node was made from the first run on, and before the last, which may still use it.

        What is no node is taken for as old as what it hangs on, of which *is_below* says the same.
        """
        marks = self._view.graph_marks
        if not self._view.carriers or marks.newest == UNSET or not is_node_type(type(self._view.objects[vertex])):
            return is_below
        return marks.first <= number_of(self._view.objects[vertex]) < marks.newest


def has_optimizer(view: HeapView, members: Sequence[int]) -> bool:
    """Return whether an optimizer is among *members*."""
    optimizer = loaded_type("torch.optim", "Optimizer")
    kinds = {id(type(view.objects[vertex])): type(view.objects[vertex]) for vertex in members}
    return optimizer is not None and any(has_base(kind, optimizer) for kind in kinds.values())


def native_parts(
    view: HeapView,
    vertices: Sequence[int],
    without_storages: Collection[int] = (),
    beside: Sequence[object] = (),
) -> NativeParts:
    """Estimate what the objects at *vertices* take of native memory, everything counted once.

    Args:
        view: The heap.
        vertices: All of them: nodes and saved tensors are not looked for.
        without_storages: Keys of storages that belong to somebody else.
        beside: Data that is no vertex.
    """
    things = [view.objects[vertex] for vertex in vertices]
    tensors = (thing for thing, vertex in zip(things, vertices, strict=True) if view.is_tensor[vertex])
    on_host, on_device = _storage_bytes(tensors, without_storages)
    pooled_bytes = _POOLED_BYTES if sys.getallocatedblocks() else 0  # no block: PYTHONMALLOC=malloc
    owned = [(thing, shallow_bytes(thing)) for thing in owned_objects([*things, *beside])]
    arrays = (thing for thing, size in owned if size <= pooled_bytes and is_exactly(thing, (np.ndarray,)))
    large = sum(size for _thing, size in owned if size > pooled_bytes)
    return NativeParts(
        data_bytes=on_host + sum(map(_array_bytes, arrays)) + large,
        cpp_bytes=cpp_bytes(view, vertices),
        device_bytes=on_device,
    )


def _array_bytes(array: Any) -> int:
    """Return what malloc hands out for a small array of NumPy, which asks it for data and shape, however little.

    Blocks of malloc are multiples of 16 bytes, 32 at least, with 8 for itself.
    """
    n_dims, is_owner = _ndim_of(array), _flags_of(array).owndata
    blocks = [16 * n_dims] * (n_dims > 0) + [_nbytes_of(array)] * is_owner
    return sum(max(32, -(-(size + 8) // 16) * 16) for size in blocks)


_ndim_of, _nbytes_of, _flags_of = (np.ndarray.__dict__[name].__get__ for name in ("ndim", "nbytes", "flags"))


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
    return TENSOR_BYTES * len(tensors) + GRADIENT_BYTES * n_with_gradient + node_bytes(n_nodes, n_edges)


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
    on_host: dict[int, int] = {}
    on_device: dict[int, int] = {}
    for tensor in tensors:
        place = on_host if is_on_host(tensor) else on_device
        place.update(storages_of(tensor) or ())
    return tuple(sum(n for key, n in place.items() if key not in without) for place in (on_host, on_device))  # type: ignore[return-value]  # two of them


_COLLECTIONS: tuple[type, ...] = (list, deque, set, tuple)


def is_opaque(kind: type) -> bool:
    """Return whether objects of *kind* may have native memory that nobody tells: C code of an extension made them.

    A class of Python adds nothing to its C base. What the interpreter, numpy, torch's tensors and nodes take is known.
    """
    base = next((base for base in mro_of(kind) if not _is_written_in_python(base)), object)
    module = type_name(base).rpartition(".")[0].partition(".")[0]
    is_told = module in _TOLD or is_tensor_type(kind) or is_node_type(kind) or has_base(kind, type)
    return bool(module) and not is_told


_TOLD = frozenset((
    "_abc", "_asyncio", "_collections", "_contextvars", "_functools", "_io", "_json", "_queue", "_random", "_re",
    "_socket", "_struct", "_thread", "_weakref", "_weakrefset", "array", "collections", "contextvars", "datetime",
    "decimal", "functools", "itertools", "numpy", "operator", "re", "types", "weakref",
))  # fmt: skip
"""Packages whose C types take what they say, or next to nothing."""


def _is_written_in_python(kind: type) -> bool:
    """Return whether a class statement made *kind*: nothing in its dict was made by C code for this very class."""
    if not flags_of(kind) & HEAP_TYPE:
        return False
    for name, value in _type_dict(kind).items():
        of = type(value)
        is_descriptor = any(of is descriptor for descriptor in _C_DESCRIPTORS)
        if is_descriptor and value.__objclass__ is kind and name not in ("__dict__", "__weakref__"):
            return False
        if type_name(of) == "instancemethod":  # so pybind11 writes methods
            return False
    return True


_C_DESCRIPTORS = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
)  # fmt: skip
_type_dict = type.__dict__["__dict__"].__get__


def has_opaque(things: Sequence[object]) -> bool:
    """Return whether any of *things*, or of what these refer to, is opaque."""
    kinds = {id(type(thing)): type(thing) for thing in (*things, *get_referents(*things))}
    return any(map(is_opaque, kinds.values()))


def newest_entries(thing: object, n_new: int) -> list[object]:
    """Return the *n_new* newest entries of a container, keys and values of a dict, a thousand at most."""
    n_wanted = min(n_new, _MAX_SAMPLED)
    if is_kind_of(thing, dict):
        pairs = newest_pairs(thing, n_wanted)
        return [part for key, value in pairs for part in (value, key)]
    return newest_items(thing, n_wanted) if _width_of(type(thing)) else []


def _width_of(kind: type) -> int:
    """Return how many objects an entry of a container of *kind* is; 0 if it is none."""
    return 2 if has_base(kind, dict) else int(any(has_base(kind, each) for each in _COLLECTIONS))


def shared_storages(things: Sequence[object]) -> frozenset[int]:
    """Return the key of the storage of which most of the tensors among *things* show the greater part, if there is one.

    One view more of such a storage takes no byte of it. Views that have parts of their own, as rows have, do.
    """
    tensors = [thing for thing in things if is_tensor(thing)]
    sample = tensors[:: max(len(tensors) // _MAX_VIEWS, 1)]
    shown = Counter(
        key for tensor in sample for key, size in storages_of(tensor) or () if 2 * shown_bytes(tensor) > size
    )
    return frozenset(key for key, n in shown.items() if n >= _FEWEST_VIEWS and 2 * n > len(sample))


def content_of(thing: object, n_new: int) -> tuple[str, float]:
    """Return what the *n_new* newest entries of a container are, and the bytes of one.

    Returns:
        Name of the commonest type among them, of the values where there are keys; empty where the container holds
        plain data. The bytes are those of the entry with what it alone refers to, and of its place in the container.
    """
    if any(type(thing) is stream for stream in STREAM_TYPES):
        return "", 1.0
    width = _width_of(type(thing))
    if not width:
        return "", float(owned_bytes([thing])) / max(safe_len(thing) or 1, 1)
    sample = newest_entries(thing, n_new)
    if not sample:
        return "", 0.0
    ((name, _count),) = Counter(type_name(type(entry)) for entry in sample[::width]).most_common(1)
    distinct = list({id(entry): entry for entry in sample}.values())
    n_bytes = owned_bytes(distinct, without_storages=shared_storages(distinct))
    return name, n_bytes * width / len(sample) + width * _POINTER_BYTES

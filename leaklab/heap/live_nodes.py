"""Read a borrowed heap as `leaklab.heap.nodes.HeapNodes`, for the length of its ``with``."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from leaklab.heap.folding import shows_parts
from leaklab.heap.names.reference import MISSING, class_dict, is_one_of, look_up
from leaklab.heap.nodes import ArrayTraits, HeapNodes, NodeType, StorageUse, TraitsTable, in_own_modules
from leaklab.heap.reachability import references_of
from leaklab.runtime.autograd_graph import is_node_type
from leaklab.runtime.objects import (
    has_base,
    is_tensor_type,
    loaded_type,
    mro_of,
    no_torch_functions,
    type_name,
)
from leaklab.runtime.ours import own_data_addresses
from leaklab.runtime.sizes import node_bytes, shallow_bytes_of

if TYPE_CHECKING:
    from leaklab.heap.dominators import DominatorTree
    from leaklab.heap.index import HeapIndex
    from leaklab.heap.shared_data import Storages
    from leaklab.heap.shortest_paths import PathTree
    from leaklab.heap.view import HeapView
    from leaklab.runtime.addresses import Ints, KindTable

_UNKNOWN = (RuntimeError, TypeError, ValueError, AttributeError)
_PLAIN_DESCRIPTORS = (types.FunctionType, property, types.MemberDescriptorType, types.GetSetDescriptorType)
_module_of = type.__dict__["__module__"].__get__


class LiveNodes(HeapNodes):
    """The objects of *view*; what is asked of them in vain is never computed."""

    def __init__(self, view: HeapView) -> None:
        self._view = view
        self.index = view.index
        self.kind_of = view.types.rows
        self.starts = view.starts
        self.n_listed = view.n_heap

    @property
    def roots(self) -> Ints:
        """Where everything that is alive begins."""
        return self._view.roots

    @functools.cached_property
    def is_foreign(self) -> Ints:
        """For each object whether it is leaklab's."""
        view = self._view
        namespace = int(view.index.ids[view.namespace]) if view.namespace >= 0 else 0
        addresses = np.append(view.own, own_data_addresses(view.objects, view.types, namespace)).astype(np.int64)
        vertices = self.index.vertices_of(addresses)
        mask = in_own_modules(self.starts, view.tree)
        mask[vertices[vertices >= 0]] = True
        return mask

    @functools.cached_property
    def kinds(self) -> Sequence[NodeType]:
        """The types."""
        return kinds_in(self._view.types)

    @functools.cached_property
    def own_bytes(self) -> Ints:
        """Of each object alone."""
        return own_bytes_of(self._view.objects, self._view.kinds, self._view.types, self.index)

    @functools.cached_property
    def contents(self) -> TraitsTable:
        """Of tensors and arrays."""
        return contents_of(self._view.objects, self._view.types)

    @functools.cached_property
    def storages(self) -> StorageUse:
        """Of tensors."""
        return storage_use(self._view.storages)

    @property
    def paths(self) -> PathTree:
        """The cheapest path to each object."""
        return self._view.tree

    @functools.cached_property
    def start_vertices(self) -> Ints:
        """Of the roots."""
        return self.index.vertices_of(np.array([start.address for start in self.starts], np.int64))

    @property
    def dominators(self) -> DominatorTree:
        """Who alone keeps whom alive."""
        return self._view.dominators

    @property
    def namespace(self) -> int:
        """The dict of the user's variables, -1 if there is none."""
        return self._view.namespace

    def python_along(self, vertices: Sequence[int], known: str | None = None) -> list[tuple[int, str]]:
        """Return the objects that are steps along *vertices*, with Python for each; none inside of a graph."""
        return self._view.python_along(vertices, known)

    def key_of(self, mapping: int, value: int) -> int:
        """Return the object under which a dict has *value*, -1 where that is a text or number, or it is no dict."""
        return self._view.key_of(mapping, value)

    def is_key(self, holder: int, held: int) -> bool:
        """Return whether *held* is a tensor that *holder*, a dict, has as a key."""
        return self._view.is_key(holder, held)

    def owner_of(self, vertex: int) -> str:
        """Return Python for the tensor in whose graph an object is; empty where it is in none."""
        return self._view.describe(vertex).code


def own_bytes_of(objects: list[Any], kinds: Ints, types: KindTable, index: HeapIndex) -> Ints:
    """Return the bytes of each object alone, shape ``(n_objects,)``; those of autograd nodes with their C++ part."""
    found = shallow_bytes_of(objects, kinds)
    is_node = types.mask(is_node_type)
    nodes = np.flatnonzero(is_node)
    holders, held = references_of(index, nodes)
    n_inputs = np.bincount(holders[is_node[held]], minlength=len(found))
    found[nodes] += node_bytes(1, 0) + node_bytes(0, 1) * n_inputs[nodes]
    return found


def kinds_in(table: KindTable) -> list[NodeType]:
    """Return what is known of each type of the table."""
    return [_kind(kind) for kind in table.types]


def _kind(kind: type) -> NodeType:
    is_module = shows_parts(kind)
    hidden = {name for base in mro_of(kind) for name in class_dict(base) if type(name) is str} if is_module else ()
    is_descriptor = look_up(kind, "__get__") is not MISSING and not is_one_of(kind, _PLAIN_DESCRIPTORS)
    return NodeType(
        type_name(kind), _module_name(kind), has_base(kind, type), is_module, is_descriptor, tuple(sorted(hidden))
    )


def _module_name(kind: type) -> str:
    try:
        name = _module_of(kind)
    except (AttributeError, TypeError):
        return ""
    return name if type(name) is str else ""


def contents_of(objects: Sequence[Any], table: KindTable) -> TraitsTable:
    """Return what the tensors and arrays among *objects*, of the types in *table*, are."""
    arrays = loaded_type("numpy", "ndarray")
    is_tensor = table.mask(is_tensor_type)
    is_array = table.mask(lambda kind: arrays is not None and has_base(kind, arrays))
    numbers: dict[ArrayTraits, int] = {}
    number_of = np.full(len(table.rows), -1, np.int32)
    with no_torch_functions():
        for vertex in np.flatnonzero(is_tensor).tolist():
            number_of[vertex] = numbers.setdefault(tensor_content(objects[vertex]), len(numbers))
    for vertex in np.flatnonzero(is_array).tolist():
        number_of[vertex] = numbers.setdefault(array_content(objects[vertex]), len(numbers))
    return TraitsTable(number_of, tuple(numbers))


def tensor_content(tensor: Any) -> ArrayTraits:
    """Return what *tensor* is; to be asked while `leaklab.runtime.objects.no_torch_functions` holds."""
    base: Any = loaded_type("torch", "Tensor")
    try:
        shape = tuple(map(int, base.size(tensor)))
    except _UNKNOWN:
        shape = None
    try:
        dtype = str(base.dtype.__get__(tensor)).removeprefix("torch.")
        device = str(base.device.__get__(tensor))
        requires_grad = bool(base.requires_grad.__get__(tensor))
    except _UNKNOWN:
        return ArrayTraits(shape, None, None, None)
    return ArrayTraits(shape, dtype, device, requires_grad)


def array_content(array: Any) -> ArrayTraits:
    """Return what a numpy array is."""
    base: Any = loaded_type("numpy", "ndarray")
    return ArrayTraits(tuple(base.shape.__get__(array)), str(base.dtype.__get__(array)), "cpu", None)


def storage_use(storages: Storages) -> StorageUse:
    """Return *storages* as arrays."""
    found = list(storages.by_key.values())
    return storages_from((each.n_bytes, each.users, each.is_used_unseen) for each in found)


def storages_from(found: Iterable[tuple[int, Sequence[int], bool]]) -> StorageUse:
    """Return the arrays for storages, each given as its size, its users, and whether it is used unseen."""
    rows = list(found)
    counts = [len(users) for _size, users, _unseen in rows]
    return StorageUse(
        np.array([size for size, _users, _unseen in rows], np.int64),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.array([user for _size, users, _unseen in rows for user in users], np.int64),
        np.array([unseen for _size, _users, unseen in rows], bool),
    )

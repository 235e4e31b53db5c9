"""Tell which objects of a heap use which storage of tensors: one of them alone keeps it alive."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from leaklab.objects import loaded_type
from leaklab.tensors import storages_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leaklab.explain.heap.address_table import Ints
    from leaklab.explain.heap.index import HeapIndex


@dataclass(frozen=True, slots=True)
class Storage:
    """The memory of one or more tensors.

    Attributes:
        n_bytes: Its size.
        users: The vertices of all tensors that use it, and of the storage itself where a reference leads to it.
        is_used_unseen: Whether C++ uses it where no object tells, so that it may outlive all *users*.
    """

    n_bytes: int
    users: list[int] = field(default_factory=list)
    is_used_unseen: bool = False


@dataclass(frozen=True, slots=True)
class Storages:
    """The storages of all tensors of a heap.

    Attributes:
        by_key: Each storage, by its key.
        keys_of: For each vertex that uses any the keys of those it uses.
        unknown: The tensors that do not tell.
    """

    by_key: dict[int, Storage] = field(default_factory=dict)
    keys_of: dict[int, list[int]] = field(default_factory=dict)
    unknown: frozenset[int] = frozenset()


def storages_in(objects: list[Any], kinds: Ints, tensors: Iterable[int], index: HeapIndex, n_listed: int) -> Storages:
    """Find the storages of *tensors*.

    Args:
        objects: The heap.
        kinds: The address of the type of each.
        tensors: The vertices of all of its tensors.
        index: Its references.
        n_listed: So many of the objects the collector listed. What comes after is part of autograd graphs, whose own
            use of a storage is not told apart from that of the tensor that was read from them.
    """
    sizes: dict[int, int] = {}
    users: dict[int, list[int]] = {}
    unknown: set[int] = set()
    for vertex in tensors:
        pairs = storages_of(objects[vertex])
        if pairs is None:
            unknown.add(vertex)
        for key, n_bytes in pairs or ():
            sizes[key] = n_bytes
            users.setdefault(key, []).append(vertex)
    for vertex, key in _storages_by_themselves(objects, kinds, index):
        if key in users:
            users[key].append(vertex)
    found = Storages({}, {}, frozenset(unknown))
    for key, each in users.items():
        is_listed = max(each) < n_listed
        found.by_key[key] = Storage(sizes[key], each, is_listed and _n_uses(key) > len(each) + 1)
        for vertex in each:
            found.keys_of.setdefault(vertex, []).append(key)
    return found


def _storages_by_themselves(objects: list[Any], kinds: Ints, index: HeapIndex) -> Iterator[tuple[int, int]]:
    """Yield the objects that are storages and that something refers to, with the key of each."""
    kind = loaded_type("torch", "UntypedStorage")
    if kind is None:
        return
    for vertex in np.flatnonzero(kinds == id(kind)).tolist():
        if len(index.referrers(vertex)):
            yield vertex, objects[vertex]._cdata  # noqa: SLF001 - the storage's identity has no public name


def _n_uses(key: int) -> int:
    """Return how many tensors and other owners share a living storage, the Python object for it among them."""
    torch: Any = sys.modules["torch"]
    count = getattr(torch._C, "_storage_Use_Count", None)  # noqa: SLF001 - no public way
    return 0 if count is None else int(count(key))

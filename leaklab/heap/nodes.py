"""What can be read of a heap, whether it is alive or was saved: one interface for questions, pictures and files.

`HeapNodes` is that interface. Its objects are numbered from 0, and everything about them is in flat arrays by that
number, its *vertex*. `leaklab.heap.live_nodes` fills it from a borrowed heap, `leaklab.heap.saved.arrays` from a file.

=================== ==================================================================================================
``index``           who refers to whom: ``referents``, ``referrers``, ``forward_offsets``, ``forward_targets``
``kind_of``         for each object the number of its type; ``kinds`` has the name, and the module, of each
``own_bytes``       of each object alone, an array's data included, without storages of tensors
``contents``        shape, dtype, device and requires_grad of tensors and arrays
``storages``        the memory of tensors: size, and the objects that use it
``roots``           where everything that is alive begins
``starts``          the same in words: variables, modules, running functions; ``variables`` names the user's
``paths``           the cheapest path to each object: the object before it
``dominators``      who alone keeps whom alive: ``parents()`` is the tree
``exclusive_bytes`` what comes back if the object goes, storages included: sums over the tree of dominators
``exclusive_parts`` the part of it that no object below has: they add up to the bytes of everything
``devices``         whose memory there is: the host's, then each accelerator's; ``exclusive_on`` is the part of one
``name_of``         what a person calls the object, Python where there is any; ``reference_name`` one reference
=================== ==================================================================================================
"""

from __future__ import annotations

import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from leaklab.heap.names_by_others import expression_of, route_to

if TYPE_CHECKING:
    from leaklab.heap.dominators import DominatorTree
    from leaklab.heap.index import HeapIndex
    from leaklab.heap.shortest_paths import PathTree, Reach, Start
    from leaklab.runtime.addresses import Ints


def exclusive_sizes(
    tree: DominatorTree, own_bytes: Ints, storages: Iterable[tuple[int, list[int]]]
) -> tuple[Ints, Ints]:
    """Return for each vertex the bytes that come back if it goes, and the part of it that no vertex below it has.

    Args:
        tree: Who alone keeps whom alive. Everything that is a vertex must be reached.
        own_bytes: Of each vertex alone.
        storages: Size and users of each storage of tensors, which comes back if all its users go.

    Returns:
        Two arrays of shape ``(n_vertices,)``. The second adds up to the bytes of everything: what of a vertex and its
        storages is counted right there. A storage counts at the nearest vertex that keeps all of its users.
    """
    weights = np.zeros(len(tree.above), np.int64)
    weights[tree.reach.bfs_index] = own_bytes
    sizes: list[int] = []
    groups: list[list[int]] = []
    for n_bytes, users in storages:
        sizes.append(n_bytes)
        groups.append(users)
    owners = tree.reach.bfs_index[[users[0] for users in groups]] if groups else np.zeros(0, np.int32)
    for number in [number for number, users in enumerate(groups) if len(users) > 1]:
        below: Ints = tree.reach.bfs_index[groups[number]]
        while len(below) > 1:  # halves them: whoever is above both of a pair is above the storage
            middle = (len(below) + 1) // 2
            padded = np.append(below, below[:1]) if len(below) % 2 else below
            below = tree.nearest_above(padded[:middle], padded[middle:])
        owners[number] = below[0]
    np.add.at(weights, owners, sizes)
    return tree.sums(weights)[tree.reach.bfs_index], weights[tree.reach.bfs_index]


MIN_DATA_BYTES = 1024
"""Arrays and bytes that refer to nothing are objects of a heap from this size on."""
NAMESPACE_WORDS, VARIABLE_WORDS = "globals()", "notebook variable"
UNREACHED_WORDS = "no variable reaches it"
HOST = "host"
_CPU = "cpu"


class NodeType(NamedTuple):
    """A type.

    Attributes:
        name: Its qualified name.
        module: The module that it is defined in.
        is_meta: Whether its objects are classes.
        is_torch_module: Whether it is a ``torch.nn.Module`` whose parameters are found as its attributes.
        is_descriptor: Whether its objects are not what their class answers to their name: class methods and the like.
        hidden: Names in the class of a ``torch.nn.Module``, which hide parameters of the same name.
    """

    name: str
    module: str
    is_meta: bool
    is_torch_module: bool
    is_descriptor: bool = False
    hidden: tuple[str, ...] = ()


class ArrayTraits(NamedTuple):
    """What a tensor or an array is, without its data; None for what it does not tell."""

    shape: tuple[int, ...] | None
    dtype: str | None
    device: str | None
    requires_grad: bool | None

    @property
    def words(self) -> str:
        """Shape, dtype and device in a few words."""
        return f"{'?' if self.shape is None else self.shape} {self.dtype or '?'} {self.device or '?'}"


@dataclass(frozen=True, slots=True, eq=False)
class TraitsTable:
    """What the tensors and arrays of a heap are.

    Attributes:
        number_of: For each object the number of its content, -1 for what is neither tensor nor array.
        table: The distinct contents.
    """

    number_of: Ints
    table: tuple[ArrayTraits, ...]


@dataclass(frozen=True, slots=True, eq=False)
class StorageUse:
    """The storages of the tensors of a heap.

    Attributes:
        sizes: Bytes of each.
        offsets: Where the users of each storage begin in *users*; one more entry than storages.
        users: Objects, storage after storage; each storage has one at least.
        is_used_unseen: Whether C++ uses it without an object that shows it, so that it may outlive all users.
    """

    sizes: Ints
    offsets: Ints
    users: Ints
    is_used_unseen: Ints

    def bytes_of(self, n_vertices: int) -> Ints:
        """Return for each object the bytes of the storages it uses, shared ones counted for each user."""
        result = np.zeros(n_vertices, np.int64)
        np.add.at(result, self.users, np.repeat(self.sizes, np.diff(self.offsets)))
        return result

    def bytes_together(self, mask: Ints) -> int:
        """Return the bytes of the storages that any of the objects of *mask* uses, each once."""
        if not len(self.sizes):
            return 0
        is_used = np.add.reduceat(mask[self.users].astype(np.int64), self.offsets[:-1]) > 0
        return int(self.sizes[is_used].sum())


class HeapNodes(ABC):
    """The objects of a heap; the module says what can be read of them."""

    index: HeapIndex
    """Who refers to whom."""
    kind_of: Ints
    """For each object the number of its type."""
    starts: Sequence[Start]
    """Where paths begin: variables, modules, running functions, the interpreter."""
    n_listed: int
    """So many of the objects the collector lists; those after them only hidden references reach."""

    @property
    @abstractmethod
    def roots(self) -> Ints:
        """Where everything that is alive begins."""

    @property
    @abstractmethod
    def is_foreign(self) -> Ints:
        """For each object whether it is leaklab's own: no answer to any question."""

    @property
    @abstractmethod
    def kinds(self) -> Sequence[NodeType]:
        """The types, by their numbers."""

    @property
    @abstractmethod
    def own_bytes(self) -> Ints:
        """Of each object alone, an array's data included, without storages of tensors."""

    @property
    @abstractmethod
    def contents(self) -> TraitsTable:
        """What the tensors and arrays are."""

    @property
    @abstractmethod
    def storages(self) -> StorageUse:
        """The memory of the tensors."""

    @cached_property
    def is_class(self) -> Ints:
        """For each object whether it is a class."""
        mask: Ints = np.array([kind.is_meta for kind in self.kinds], bool).take(self.kind_of)
        return mask

    @property
    def n_objects(self) -> int:
        """Number of objects, without leaklab's own."""
        return int(len(self.is_foreign) - self.is_foreign.sum())

    @property
    @abstractmethod
    def paths(self) -> PathTree:
        """The cheapest path to each object, as a tree."""

    @property
    @abstractmethod
    def start_vertices(self) -> Ints:
        """For each of `starts` its object, -1 where that is none of the heap."""

    @property
    @abstractmethod
    def namespace(self) -> int:
        """The dict of the user's variables, -1 if there is none."""

    def is_reached(self, vertex: int) -> bool:
        """Return whether any root reaches an object, or it is the dict of the user's variables itself."""
        return bool(self.paths.root_of[vertex] >= 0 or vertex == self.namespace)

    def name_of(self, vertex: int) -> tuple[str, str]:
        """Return the expression for an object, empty where Python has none, and where its path begins."""
        if vertex == self.namespace:
            return NAMESPACE_WORDS, VARIABLE_WORDS
        if not self.is_reached(vertex):
            return "", UNREACHED_WORDS
        path = route_to(self, vertex)
        start = self.starts[int(self.paths.root_of[path[0]])]
        return expression_of(self, path) or self.owner_of(vertex), start.words

    @abstractmethod
    def python_along(self, vertices: Sequence[int], known: str | None = None) -> list[tuple[int, str]]:
        """Return the objects that are steps along *vertices*, with Python for each, empty where there is none.

        Each of *vertices* refers to the next. *known* is Python for the first; without it the path begins at a
        root.
        """

    @abstractmethod
    def key_of(self, mapping: int, value: int) -> int:
        """Return the object under which a dict has *value*; -1 where that is a text or number, or nothing is known."""

    @abstractmethod
    def is_key(self, holder: int, held: int) -> bool:
        """Return whether *held* is a tensor that *holder*, a dict, has as a key."""

    def is_torch_module(self, vertex: int) -> bool:
        """Return whether an object is a ``torch.nn.Module`` whose parameters are found as its attributes."""
        return self.kinds[int(self.kind_of[vertex])].is_torch_module

    def owner_of(self, vertex: int) -> str:  # noqa: ARG002 - who knows of no owner needs no object
        """Return Python for the tensor in whose graph an object is; empty where nothing is known of that."""
        return ""

    @property
    def reach(self) -> Reach:
        """All of the heap as a tree of shortest paths; what no root reaches counts as a root: it is alive too."""
        return self.dominators.reach

    @property
    @abstractmethod
    def dominators(self) -> DominatorTree:
        """Who alone keeps whom alive."""

    @cached_property
    def used_bytes(self) -> Ints:
        """Bytes of each object with the storages it uses; what several tensors share counts for each."""
        found: Ints = self.own_bytes + self.storages.bytes_of(self.index.n_vertices)
        return found

    @cached_property
    def _exclusive(self) -> tuple[Ints, Ints]:
        return self._exclusive_with(self.own_bytes, ~self.storages.is_used_unseen)

    def _exclusive_with(self, own_bytes: Ints, is_counted: Ints) -> tuple[Ints, Ints]:
        use = self.storages
        groups = (
            (int(use.sizes[number]), use.users[use.offsets[number] : use.offsets[number + 1]].tolist())
            for number in np.flatnonzero(is_counted).tolist()
        )
        return exclusive_sizes(self.dominators, own_bytes, groups)

    @cached_property
    def device_of_storages(self) -> list[str]:
        """Whose memory each storage is: ``host``, ``cuda:0``."""
        names = [HOST if traits.device in (_CPU, None) else str(traits.device) for traits in self.contents.table]
        use, of_object = self.storages, self.contents.number_of
        found = []
        for start, end in itertools.pairwise(use.offsets.tolist()):
            contents = of_object[use.users[start:end]]
            found.append(names[int(contents.max())] if contents.max() >= 0 else HOST)  # an unseen one is the host's
        return found

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """Whose memory there is: the host's, then that of each accelerator."""
        return (HOST, *sorted(set(self.device_of_storages) - {HOST}))

    def exclusive_on(self, device: str) -> tuple[Ints, Ints]:
        """Return the parts of `exclusive_bytes` and `exclusive_parts` that lie in the memory of *device*."""
        is_there = np.array([each == device for each in self.device_of_storages], bool)
        own_bytes = self.own_bytes if device == HOST else np.zeros(self.index.n_vertices, np.int64)
        return self._exclusive_with(own_bytes, is_there & ~self.storages.is_used_unseen)

    def bytes_on(self, device: str) -> int:
        """Return the bytes of everything that lies in the memory of *device*, storages counted once."""
        is_there = np.array([each == device for each in self.device_of_storages], bool)
        own_bytes = int(self.own_bytes.sum()) if device == HOST else 0
        return own_bytes + int(self.storages.sizes[is_there].sum())

    @property
    def exclusive_bytes(self) -> Ints:
        """What comes back if the object goes: itself, and all that nothing else keeps alive."""
        return self._exclusive[0]

    @property
    def exclusive_parts(self) -> Ints:
        """What of `exclusive_bytes` no object that it dominates has; together, the bytes of everything."""
        return self._exclusive[1]

    @cached_property
    def variables(self) -> dict[str, int]:
        """The user's variables by name, each with its object, -1 where that is none of the heap."""
        vertices = self.start_vertices.tolist()
        return {
            start.expression: vertex for start, vertex in zip(self.starts, vertices, strict=True) if start.is_variable
        }

    def bytes_together(self, mask: Ints) -> int:
        """Return the bytes of all objects of *mask*, storages counted once."""
        return int(self.own_bytes[mask].sum()) + self.storages.bytes_together(mask)


_OWN_MODULE = re.compile(r"module 'leaklab(\.[\w.]+)?'")


def in_own_modules(starts: Sequence[Start], paths: PathTree) -> Ints:
    """Return for each object whether the path to it begins in a module of leaklab's."""
    is_own = np.array([*(_OWN_MODULE.match(start.words) is not None for start in starts), False], bool)
    mask: Ints = is_own.take(paths.root_of)  # of -1 the last, which says no
    return mask

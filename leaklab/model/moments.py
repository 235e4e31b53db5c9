"""The records of a moment of the heap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MOMENT_SCHEMA = 1
"""Raised whenever the layout of a saved moment or difference changes."""

Whole = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class HeapMoment:
    """Everything that was alive at one moment, in flat arrays and packed words.

    Nothing in it is an object that Python's collector follows: kept between two cells it is not itself something that
    was born there, and it keeps nothing of the user's alive. Addresses mean something only in the process that they
    were read in, and only as long as their object lives.

    Attributes:
        name: What the user calls it; may be empty.
        taken_at: Seconds since the epoch.
        process: Names the process: two moments with the same text share their addresses.
        token: Names the moment itself.
        exact_since: Token of the moment since which *young* lists all that was born; empty where it may miss some.
        collected: Whether garbage was collected before counting.
        addresses: Of all tracked objects, sorted, shape ``(n,)``.
        kinds: Position of each object's type in the table of kinds, shape ``(n,)``.
        kind_addresses: Of the types, shape ``(n_kinds,)``.
        kind_bytes: Bytes of all objects of each type, without what they refer to, shape ``(n_kinds,)``.
        young: Addresses of objects that are certainly younger than any earlier moment, sorted.
        container_rows: Positions in *addresses* of the containers, ascending, shape ``(n_containers,)``.
        lengths: Of the containers.
        tensor_rows: Positions in *addresses* of the tensors, ascending, shape ``(n_tensors,)``.
        tensor_kinds: Position of each tensor's description in the words.
        storage_tensors: For each storage of a tensor the position of that tensor in *tensor_rows*, -1 for a storage
            that lives without any.
        storage_keys: The storage's identity; equal for tensors that share it.
        storage_bytes: Its size.
        storage_devices: Position of its device in the words.
        array_addresses: Of arrays and buffers, which the collector does not know, sorted; only those of some size.
        array_kinds: Position of each one's description in the words.
        array_bytes: Of each.
        words: The texts that the positions above point to, packed (`MomentWords`).
        heap_bytes: Native heap before and after the moment was taken, -1 where the system cannot tell.
        accelerator_bytes: What torch has allocated on all accelerators, -1 without one.
        rss_bytes: Resident set of the process.
        n_left_out: Objects of leaklab and of the notebook's own history, which are not in *addresses*.
    """

    name: str
    taken_at: float
    process: str
    token: str
    exact_since: str
    collected: bool
    addresses: Whole
    kinds: Small
    kind_addresses: Whole
    kind_bytes: Whole
    young: Whole
    container_rows: Small
    lengths: Whole
    tensor_rows: Small
    tensor_kinds: Small
    storage_tensors: Small
    storage_keys: Whole
    storage_bytes: Whole
    storage_devices: Small
    array_addresses: Whole
    array_kinds: Small
    array_bytes: Whole
    words: bytes
    heap_bytes: tuple[int, int]
    accelerator_bytes: int
    rss_bytes: int
    n_left_out: int
    schema: int = MOMENT_SCHEMA

    @property
    def n_objects(self) -> int:
        """Tracked objects alive."""
        return len(self.addresses)

    @property
    def n_tensors(self) -> int:
        """Tensors alive."""
        return len(self.tensor_rows)

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all storages, each counted once."""
        _keys, first = np.unique(self.storage_keys, return_index=True)
        return int(self.storage_bytes[first].sum())

    @property
    def n_bytes(self) -> int:
        """The memory that this record takes."""
        arrays = (getattr(self, name) for name in self.__slots__)
        return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray)) + len(self.words)


@dataclass(frozen=True, slots=True)
class TensorKind:
    """What tensors are grouped by; *shape* is text (``(64, 128)``), ``?`` where torch does not tell."""

    kind: str
    shape: str
    dtype: str
    device: str
    has_graph: bool

    def __str__(self) -> str:
        return f"{self.kind} {self.shape} {self.dtype} {self.device}"


@dataclass(frozen=True, slots=True)
class Place:
    """A name that refers to a value: a variable of the notebook, or an attribute of a module.

    Attributes:
        expression: Python for it: ``x``, ``mypackage.cache``.
        home: ``notebook``, or the name of the module.
        address: Of the value.
        kind: The value's type.
        summary: A few words on it, may be empty.
        n_bytes: Of the value alone (a tensor: of its storages).
        length: Entries, for containers; -1 for anything else.
    """

    expression: str
    home: str
    address: int
    kind: str
    summary: str
    n_bytes: int
    length: int


@dataclass(frozen=True, slots=True)
class MomentWords:
    """The texts of a moment; packed while it is kept, because as objects they would be counted."""

    kinds: tuple[str, ...]
    tensor_kinds: tuple[TensorKind, ...]
    devices: tuple[str, ...]
    arrays: tuple[str, ...]
    places: tuple[Place, ...]
    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Totals:
    """What is alive after a cell; *heap_bytes* is -1 where the system cannot tell."""

    n_objects: int
    n_tensors: int
    tensor_bytes: int
    heap_bytes: int

    def since(self, before: Totals) -> Totals:
        """Return what changed from *before* to this."""
        known = min(self.heap_bytes, before.heap_bytes) >= 0
        return Totals(
            self.n_objects - before.n_objects,
            self.n_tensors - before.n_tensors,
            self.tensor_bytes - before.tensor_bytes,
            self.heap_bytes - before.heap_bytes if known else 0,
        )

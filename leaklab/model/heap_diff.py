"""The records of a heap snapshot, which is one moment of the heap, and of what differs between two."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MOMENT_SCHEMA = 1
"""Raised whenever the layout of a saved moment or difference changes."""

Whole = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class HeapSnapshotRecord:
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
        words: The texts that the positions above point to, packed (`SnapshotWords`).
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
class SnapshotWords:
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


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """Objects of one type.

    Attributes:
        kind: Qualified name of the type.
        n_born: Objects that were not there before.
        n_died: Objects that are not there any more.
        n_before: Objects alive before.
        n_after: Objects alive after; ``n_after - n_before`` is always exact.
        bytes_delta: Change of their bytes, without what they refer to.
        n_aside: Objects born that belong to a library or to the notebook's own machinery.
        holders: Expressions for some of those born; empty where nobody looked.
    """

    kind: str
    n_born: int
    n_died: int
    n_before: int
    n_after: int
    bytes_delta: int
    n_aside: int = 0
    holders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TensorChange:
    """Tensors of one shape, dtype and device.

    Attributes:
        what: The group.
        n_born: Tensors that were not there before.
        n_died: Tensors that are not there any more.
        n_before: Tensors alive before.
        n_after: Tensors alive after.
        bytes_born: Bytes of storages that only came with those born, each storage counted once.
        bytes_died: Bytes of storages that went with those that died.
        holders: Expressions for some of those born; empty where nobody looked.
    """

    what: TensorKind
    n_born: int
    n_died: int
    n_before: int
    n_after: int
    bytes_born: int
    bytes_died: int
    holders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ArrayChange:
    """Arrays and buffers that the collector does not know; *what* tells type, shape and dtype."""

    what: str
    n_born: int
    n_died: int
    bytes_born: int
    bytes_died: int
    holders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerChange:
    """A container that lives at both moments and has another length.

    Attributes:
        holder: Python expression for it; empty where nobody looked or none was found.
        kind: Its type.
        before: Its length before.
        after: Its length after.
        content: What its newest entries are, ``2 numpy.ndarray``; empty where nobody looked.
        content_bytes: Of those entries alone, tensors not counted: they have their own rows.
    """

    holder: str
    kind: str
    before: int
    after: int
    content: str = ""
    content_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PlaceChange:
    """A variable or module attribute that is new, gone, replaced by another object, or bigger or smaller.

    Attributes:
        expression: Python for it.
        home: ``notebook``, or the name of the module.
        change: ``born``, ``died``, ``replaced``, ``grown`` or ``shrunk``.
        before: What it was, empty if it was not there.
        after: What it is, empty if it is gone.
        bytes_before: Bytes of the value alone.
        bytes_after: Bytes of the value alone.
    """

    expression: str
    home: str
    change: str
    before: str
    after: str
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class DeviceChange:
    """Tensors and their unique storages on one device."""

    device: str
    tensors_before: int
    tensors_after: int
    storages_before: int
    storages_after: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Everything that differs between two moments: the record behind a `MemDiff`.

    Attributes:
        before: Name of the earlier moment.
        after: Name of the later one.
        seconds: Between them.
        same_process: Whether addresses could be compared; if not, births and deaths are net figures per kind.
        exact: Whether every birth was seen; if not, an object that took the address of a dead one of its own type
            counts as that one. Net figures are exact in any case.
        objects: By type, largest change first.
        tensors: By shape, dtype and device.
        arrays: By type, shape and dtype.
        containers: Largest change first.
        places: Variables first, then attributes of modules.
        devices: One row for each device that holds a tensor's memory.
        object_bytes: Change of the bytes of all objects themselves.
        heap_bytes: Change of the native heap, None where it is not known.
        accelerator_bytes: Change of what torch has allocated on accelerators, None without one.
        rss_bytes: Change of the resident set.
        new_modules: Names of modules imported between the moments.
        n_aside: Objects born inside libraries and the notebook's machinery.
        aside: Where those are kept, a few words each.
        notes: Caveats, one sentence each.
        failure: Empty, or what the code between the moments raised.
    """

    before: str
    after: str
    seconds: float
    same_process: bool
    exact: bool
    objects: tuple[ObjectChange, ...]
    tensors: tuple[TensorChange, ...]
    arrays: tuple[ArrayChange, ...]
    containers: tuple[ContainerChange, ...]
    places: tuple[PlaceChange, ...]
    devices: tuple[DeviceChange, ...]
    object_bytes: int
    heap_bytes: int | None
    accelerator_bytes: int | None
    rss_bytes: int
    new_modules: tuple[str, ...] = ()
    n_aside: int = 0
    aside: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    failure: str = ""
    schema: int = MOMENT_SCHEMA


@dataclass(frozen=True, slots=True, eq=False)
class Changed:
    """The addresses that a difference is about, valid only in the process and at the moment of the later one.

    Attributes:
        born: Of the objects born, sorted.
        born_tensors: ``(address, row in Difference.tensors)`` of the tensors born, shape ``(n, 2)``.
        born_arrays: ``(address, row in Difference.arrays)`` of the arrays born, shape ``(n, 2)``.
        grown: ``(address, length before, length after)`` of the containers whose length changed, largest change first,
            shape ``(n, 3)``.
    """

    born: Whole
    born_tensors: Whole
    born_arrays: Whole
    grown: Whole

    def only(self, alive: Whole, arrays: Whole) -> Changed:
        """Return what is left if only the objects at *alive* and the arrays at *arrays* are."""
        return Changed(
            self.born[np.isin(self.born, alive)],
            self.born_tensors[np.isin(self.born_tensors[:, 0], alive)],
            self.born_arrays[np.isin(self.born_arrays[:, 0], arrays)],
            self.grown[np.isin(self.grown[:, 0], alive)],
        )

    @property
    def is_empty(self) -> bool:
        """Whether nobody need be asked who holds what."""
        return not (len(self.born) or len(self.born_arrays) or len(self.grown))

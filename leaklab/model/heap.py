"""The records of a whole heap: what fills it, what differs between two, which objects fit a condition."""

from __future__ import annotations

from dataclasses import dataclass

SHAPE_SCHEMA = 1
"""Raised whenever the layout of a saved comparison changes."""


@dataclass(frozen=True, slots=True)
class HeapHolder:
    """What one variable, or another object, alone keeps alive.

    Attributes:
        holder: Python for it; words where there is none.
        kind: Qualified name of its type.
        place: Where the path to it begins.
        exclusive_bytes: What comes back if it goes.
        number: Its number in the heap.
    """

    holder: str
    kind: str
    place: str
    exclusive_bytes: int
    number: int


@dataclass(frozen=True, slots=True)
class KindSize:
    """All objects of one type: how many, and their bytes with the storages that they use, each storage once."""

    kind: str
    count: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class IcicleNode:
    """One object of a heap, or a group of them, with everything that it alone keeps alive below it.

    Attributes:
        label: The step from the object above: ``.weight``, ``['loss']``; the name of a group.
        expression: Python for the object; words where there is none, empty for a group.
        kind: Qualified name of its type, with shape, dtype and device of a tensor; empty for a group.
        part: What it is to a training program: ``parameter``, ``gradient``, ``optimizer state``,
            ``saved for backward``, ``buffer``, ``tensor``, ``array`` or ``other``.
        n_bytes: What comes back if it goes: the bytes of its children, of what is too small to be one, and its own.
        small_bytes: The part of it that objects below it have which are too small to be shown.
        n_small: How many of those stand right below it.
        number: Of the object, -1 for a group.
        children: Objects that only it keeps alive, the largest first.
    """

    label: str
    expression: str
    kind: str
    part: str
    n_bytes: int
    small_bytes: int
    n_small: int
    number: int
    children: tuple[IcicleNode, ...]

    @property
    def own_bytes(self) -> int:
        """What no object below it has: itself, and storages that several objects below it share."""
        return self.n_bytes - self.small_bytes - sum(child.n_bytes for child in self.children)


@dataclass(frozen=True, slots=True)
class HeapShape:
    """What fills a heap.

    Attributes:
        name: What the user calls the moment.
        taken_at: Seconds since the epoch.
        n_objects: Objects alive, without leaklab's own.
        n_references: References between them.
        n_bytes: Bytes of all objects and storages, each counted once.
        storage_bytes: The part of it that storages of tensors have.
        holders: Variables and other objects, what keeps most alone first.
        kinds: Types, the most bytes first.
        notes: What could not be looked at.
        environment: Versions.
    """

    name: str
    taken_at: float
    n_objects: int
    n_references: int
    n_bytes: int
    storage_bytes: int
    holders: tuple[HeapHolder, ...]
    kinds: tuple[KindSize, ...]
    notes: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SizeChange:
    """What one holder, or all objects of one type, had before and have after; 0 where there was none."""

    name: str
    bytes_before: int
    bytes_after: int
    count_before: int
    count_after: int

    @property
    def step(self) -> int:
        """How many bytes there are more."""
        return self.bytes_after - self.bytes_before


@dataclass(frozen=True, slots=True)
class HeapChange:
    """What differs between two heaps.

    Attributes:
        before: Name of the earlier one.
        after: Name of the later one.
        seconds: Between them.
        n_objects: How many objects there were before and after.
        n_bytes: Bytes of everything before and after.
        holders: Holders by their expressions, the largest change first.
        kinds: Types, the largest change first.
    """

    before: str
    after: str
    seconds: float
    n_objects: tuple[int, int]
    n_bytes: tuple[int, int]
    holders: tuple[SizeChange, ...]
    kinds: tuple[SizeChange, ...]
    schema: int = SHAPE_SCHEMA


FOUND_SCHEMA = 1
"""Raised whenever the layout of a saved answer changes."""


@dataclass(frozen=True, slots=True)
class FoundObject:
    """One object that fits.

    Attributes:
        kind: Qualified name of its type.
        holder: Python for the object, or for what of it the reader can name; empty where there is none.
        place: Where the path to it begins, in words: ``notebook variable``, ``module 'torch'``.
        n_bytes: The object itself, with the data of an array and the storages that a tensor uses.
        exclusive_bytes: What comes back if it goes.
        shape: Of a tensor or an array, ``(32, 10)``; empty for anything else.
        dtype: Of these; empty for anything else.
        device: Of these; empty for anything else.
        requires_grad: Of a tensor; None for anything else.
        number: Of a living object its address (``id``), of a saved one its number in the file.
    """

    kind: str
    holder: str
    place: str
    n_bytes: int
    exclusive_bytes: int
    shape: str
    dtype: str
    device: str
    requires_grad: bool | None
    number: int


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """Everything that fits a condition.

    Attributes:
        kind: The type that was asked for, empty for any.
        where: The condition, empty for none.
        n_found: Objects that fit.
        n_bytes: Of all of them together, storages counted once.
        n_objects: Objects that were looked at.
        rows: Those that fit, the largest first; not all of them where there are many.
        is_live: Whether the objects were alive when they were asked for; else they are those of a file.
        notes: What could not be looked at, one sentence each.
        environment: Versions.
    """

    kind: str
    where: str
    n_found: int
    n_bytes: int
    n_objects: int
    rows: tuple[FoundObject, ...]
    is_live: bool
    notes: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    schema: int = FOUND_SCHEMA

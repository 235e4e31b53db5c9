"""The records of what differs between two moments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leaklab.model.moments import MOMENT_SCHEMA, TensorKind, Whole


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

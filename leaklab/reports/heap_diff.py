"""What the user holds of the heap: a snapshot of it, and what differs between two of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from leaklab.files import FilePath
from leaklab.model.heap_diff import MOMENT_SCHEMA, Difference, HeapSnapshotRecord
from leaklab.render import tables
from leaklab.render.base import Forms, FrameProperty, Report
from leaklab.render.heap_diff import (
    headline,
    lines_of,
    remarks,
    render_difference,
    render_difference_html,
    render_difference_page,
)
from leaklab.render.heap_snapshot_file import load_heap_snapshot, save_heap_snapshot
from leaklab.text import format_bytes, shorten, unit_words

_FORMS = Forms(
    kind=Difference,
    format="leaklab difference",
    schema=MOMENT_SCHEMA,
    text=render_difference,
    html=render_difference_html,
    page=render_difference_page,
    more={".csv": tables.changes_csv},
)
SUFFIXES: Final = _FORMS.suffixes
"""Of the files that a difference can be saved to."""
_REPR_LIMIT = 100


@dataclass(frozen=True, slots=True, repr=False)
class MemDiff(Report[Difference]):
    """What was born, died, grew and was replaced between two moments.

    It holds the record and nothing else: it can be pickled and keeps nothing of the user's alive.

    Attributes:
        record: The record, with every figure.
    """

    _forms: ClassVar = _FORMS
    record: Difference

    objects = FrameProperty(tables.object_change_table)
    """Types of which objects were born or died."""
    tensors = FrameProperty(tables.tensor_change_table)
    """Tensors born and died, by shape, dtype and device; bytes of storages, each counted once."""
    arrays = FrameProperty(tables.array_table)
    """Arrays and buffers of a kilobyte or more, which the collector does not know."""
    containers = FrameProperty(tables.container_change_table)
    """Containers that live at both moments and have another length."""
    variables = FrameProperty(tables.variable_table)
    """Variables of the notebook and attributes of modules that are new, gone, replaced, bigger or smaller."""
    devices = FrameProperty(tables.device_table)
    """Tensors, unique storages and their bytes on each device."""

    @property
    def changed(self) -> bool:
        """Whether anything was made, freed, replaced, or changed its length."""
        return bool(lines_of(self.record))

    @property
    def lines(self) -> tuple[str, ...]:
        """Everything that changed, one sentence each: ``+1 torch.Tensor (3,) float32 cpu, 12 B, held by x``."""
        return tuple(map(str, lines_of(self.record)))

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats, and what was left out."""
        return remarks(self.record)

    def __repr__(self) -> str:
        return f"<MemDiff {shorten(headline(self.record), _REPR_LIMIT)}>"


@dataclass(frozen=True, slots=True, repr=False)
class HeapSnapshot:
    """Everything that was alive at one moment: addresses, types, sizes, names.

    It keeps nothing of the user's alive, takes some 20 bytes an object, and can be saved and compared later, also by
    another process: then kinds are compared, because addresses mean nothing there.

    Attributes:
        record: The record, with every figure.
    """

    record: HeapSnapshotRecord

    @property
    def name(self) -> str:
        """What the user calls it."""
        return self.record.name

    @property
    def n_objects(self) -> int:
        """Objects alive that the collector knows, without leaklab's own and the notebook's records."""
        return self.record.n_objects

    @property
    def n_tensors(self) -> int:
        """Tensors alive."""
        return self.record.n_tensors

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all storages, each counted once."""
        return self.record.tensor_bytes

    def save(self, path: FilePath) -> None:
        """Write the moment to *path*, which ends in ``.npz``.

        Raises:
            ReportError: for another suffix, or a file that cannot be written.
        """
        save_heap_snapshot(self.record, path)

    @classmethod
    def load(cls, path: FilePath) -> HeapSnapshot:
        """Return the moment that `save` wrote.

        Raises:
            ReportError: if the file cannot be read, is damaged, or holds something else.
        """
        return cls(load_heap_snapshot(path))

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        tensors = unit_words(self.n_tensors, "tensors")
        return f"<HeapSnapshot{name}: {self.n_objects:,} objects, {tensors}, {format_bytes(self.tensor_bytes)}>"

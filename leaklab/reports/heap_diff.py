"""What the user holds after a comparison of two moments: the record, and every view of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from leaklab.model.heap_diff import Difference, HeapSnapshotRecord
from leaklab.render import tables
from leaklab.render.base import Exports, FilePath, save_by_suffix
from leaklab.render.heap_diff import (
    headline,
    lines_of,
    remarks,
    render_difference,
    render_difference_html,
    render_difference_page,
)
from leaklab.render.heap_snapshot_file import load_heap_snapshot, save_heap_snapshot
from leaklab.render.json import one_line
from leaklab.text import format_bytes, shorten

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "leaklab difference"
SUFFIXES = (".html", ".json", ".csv")
"""Of the files that a difference can be saved to."""
_REPR_LIMIT = 100


@dataclass(frozen=True, slots=True, repr=False)
class MemDiff(Exports):
    """What was born, died, grew and was replaced between two moments.

    It holds the record and nothing else: it can be pickled and keeps nothing of the user's alive.

    Attributes:
        record: The record, with every figure.
    """

    record: Difference

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

    @property
    def objects(self) -> pd.DataFrame:
        """Types of which objects were born or died."""
        return tables.object_change_table(self.record)

    @property
    def tensors(self) -> pd.DataFrame:
        """Tensors born and died, by shape, dtype and device; bytes of storages, each counted once."""
        return tables.tensor_change_table(self.record)

    @property
    def arrays(self) -> pd.DataFrame:
        """Arrays and buffers of a kilobyte or more, which the collector does not know."""
        return tables.array_table(self.record)

    @property
    def containers(self) -> pd.DataFrame:
        """Containers that live at both moments and have another length."""
        return tables.container_change_table(self.record)

    @property
    def variables(self) -> pd.DataFrame:
        """Variables of the notebook and attributes of modules that are new, gone, replaced, bigger or smaller."""
        return tables.variable_table(self.record)

    @property
    def devices(self) -> pd.DataFrame:
        """Tensors, unique storages and their bytes on each device."""
        return tables.device_table(self.record)

    def _html_file(self) -> str:
        return render_difference_page(self.record)

    def _json_file(self) -> str:
        return _to_json(self.record)

    def save(self, path: FilePath) -> None:
        """Write the difference to *path*: ``.html`` a page, ``.json`` the record, ``.csv`` one line a change.

        Raises:
            ReportError: for any other suffix, or a file that cannot be written.
        """
        writers = dict(zip(SUFFIXES, (render_difference_page, _to_json, tables.changes_csv), strict=True))
        save_by_suffix(path, {suffix: partial(write, self.record) for suffix, write in writers.items()})

    def __str__(self) -> str:
        return render_difference(self.record)

    def __repr__(self) -> str:
        return f"<MemDiff {shorten(headline(self.record), _REPR_LIMIT)}>"

    def _fragment(self) -> str:
        return render_difference_html(self.record)


def _to_json(difference: Difference) -> str:
    return one_line({"format": FORMAT, **asdict(difference)}, "difference")


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
        tensors = f"{self.n_tensors:,} tensor{'' if self.n_tensors == 1 else 's'}"
        return f"<HeapSnapshot{name}: {self.n_objects:,} objects, {tensors}, {format_bytes(self.tensor_bytes)}>"

"""What differs between two snapshots of the heap: what is said of it, and what the user holds of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Final

from leaklab.files import FilePath
from leaklab.model.comparison import ChangeRow, Fate
from leaklab.model.heap_diff import MOMENT_SCHEMA, DeviceChange, Difference, HeapSnapshotRecord
from leaklab.render.base import Forms, FrameProperty, Report
from leaklab.render.document import (
    Changes,
    Chapter,
    Document,
    DocumentBlock,
    Either,
    Headline,
    Points,
    Remark,
    Styled,
    Table,
    Tone,
    Typeface,
    code,
    faint,
)
from leaklab.reports.heap_diff_lines import Course, Line, headline, levels, lines_of, remarks, title
from leaklab.reports.heap_snapshot_file import load_heap_snapshot, save_heap_snapshot
from leaklab.reports.tables import csv_of, frame_of
from leaklab.text import SHOWN_LIMIT, clipped, format_bytes, shorten, signed_bytes, unit_words

if TYPE_CHECKING:
    import pandas as pd

_REPR_LIMIT = 100
_N_TEXT_LINES, _TEXT_LIMIT = 12, 300  # of one course; characters of a line
_N_ROWS, _N_REST, _CELL_LIMIT = 6, 300, 200
_N_REPLACED = 3  # kinds that text names one by one
_N_BARS, _LEAST_SHARE = 10, 0.01
_OBJECT_CHANGES = {
    "kind": "string", "n_born": "int64", "n_died": "int64", "n_before": "int64", "n_after": "int64",
    "bytes_delta": "int64", "n_aside": "int64", "holders": "string",
}  # fmt: skip
_TENSOR_CHANGES = {
    "kind": "string", "shape": "string", "dtype": "string", "device": "string", "has_graph": "bool",
    "n_born": "int64", "n_died": "int64", "n_before": "int64", "n_after": "int64", "bytes_born": "int64",
    "bytes_died": "int64", "holders": "string",
}  # fmt: skip
_ARRAY_CHANGES = {
    "what": "string", "n_born": "int64", "n_died": "int64", "bytes_born": "int64", "bytes_died": "int64",
    "holders": "string",
}  # fmt: skip
_CONTAINER_CHANGES = {
    "holder": "string", "kind": "string", "before": "int64", "after": "int64", "content": "string",
    "content_bytes": "int64",
}  # fmt: skip
_VARIABLES = {
    "expression": "string", "home": "string", "change": "string", "before": "string", "after": "string",
    "bytes_before": "int64", "bytes_after": "int64",
}  # fmt: skip
_DEVICES = {
    "device": "string", "tensors_before": "int64", "tensors_after": "int64", "storages_before": "int64",
    "storages_after": "int64", "bytes_before": "int64", "bytes_after": "int64",
}  # fmt: skip
_CHANGES = {"group": "string", "count": "int64", "what": "string", "bytes": "Int64", "holders": "string"}


def document_of(difference: Difference, *, is_page: bool = False) -> Document:
    """Return what is said of a difference: the sums, what is new, what grew, what is gone; folded what was replaced."""
    del is_page  # a page says the same
    difference = clipped(difference, SHOWN_LIMIT)
    courses = [(course, list(lines)) for course, lines in groupby(lines_of(difference), key=lambda line: line.course)]
    grows = sum(row.bytes_after - row.bytes_before for row in difference.devices) > 0
    tone = (Tone.BAD if grows else Tone.CALM) if courses else Tone.GOOD
    answer = Headline(headline(difference), tone, (faint(title(difference)),), is_large=True)
    notes = Points(remarks(difference))
    blocks: list[DocumentBlock] = [Either((Remark(f"{title(difference)}: {headline(difference)}"),), (answer,))]
    for course, lines in courses:
        blocks.append(Either(tuple(_remarks(course, lines)), (_chapter(course, lines),)))
    if courses:
        sums = (*_device_remarks(difference.devices), Remark(levels(difference), indent=2))
        bars = _bars(difference)
        rest = (*((Changes(bars),) if bars else ()), *_devices(difference.devices), Remark(faint(levels(difference))))
        blocks.append(Either(sums, (Chapter("Evidence", rest, is_open=False),)))
    return Document((*blocks, Either((notes,), (Chapter("Notes", (notes,)),))))


def _remarks(course: Course, lines: list[Line]) -> Iterator[Remark]:
    if course is Course.REPLACED and len(lines) > _N_REPLACED:
        yield Remark(f"{len(lines):,} kinds were {course.value}: see .lines", indent=2)
        return
    for line in lines[:_N_TEXT_LINES]:
        yield Remark(shorten(str(line), _TEXT_LIMIT), indent=2)
    if len(lines) > _N_TEXT_LINES:
        yield Remark(f"... {len(lines) - _N_TEXT_LINES:,} more in .lines", indent=2)


def _chapter(course: Course, lines: list[Line]) -> Chapter:
    """Return the lines as a table, of many those first that weigh most; what was replaced is folded."""
    n_shown = _N_ROWS if course is Course.NEW else _N_ROWS // 2
    blocks: list[DocumentBlock] = [_table(lines[:n_shown])]
    if rest := lines[n_shown:]:
        n_more = len(rest) - _N_REST
        more = (Remark(faint(f"{n_more:,} more are in .lines")),) if n_more > 0 else ()
        blocks.append(Chapter(f"{len(rest):,} more", (_table(rest[:_N_REST]), *more), is_open=False))
    title = f"{course.value.capitalize()} ({len(lines):,})"
    return Chapter(title, tuple(blocks), is_open=course is not Course.REPLACED)


def _table(lines: list[Line]) -> Table:
    rows = tuple(
        (
            f"{line.count:+,}" if line.count else "",
            (code(shorten(line.what, _CELL_LIMIT)), *_held_by(line)),
            Styled(format_bytes(line.n_bytes), Typeface.UNBROKEN) if line.n_bytes else "",
        )
        for line in lines
    )
    return Table((">change", "what, held by", ">bytes"), rows)


def _held_by(line: Line) -> Iterator[str | Styled]:
    for number, holder in enumerate(line.holders):
        yield ", " if number else " held by "
        yield code(shorten(holder, _CELL_LIMIT))


def _device_remarks(devices: tuple[DeviceChange, ...]) -> Iterator[Remark]:
    for row in devices:
        if (row.bytes_before, row.tensors_before) != (row.bytes_after, row.tensors_after):
            n_bytes = f"{format_bytes(row.bytes_before)} -> {format_bytes(row.bytes_after)}"
            words = f"{row.device}: {n_bytes} ({signed_bytes(row.bytes_after - row.bytes_before)})"
            yield Remark(f"{words}, {row.tensors_before:,} -> {row.tensors_after:,} tensors", indent=2)


def _devices(devices: tuple[DeviceChange, ...]) -> Iterator[Table]:
    rows = tuple(
        (
            code(row.device),
            f"{row.tensors_before:,} \u2192 {row.tensors_after:,}",
            f"{row.storages_before:,} \u2192 {row.storages_after:,}",
            format_bytes(row.bytes_before),
            format_bytes(row.bytes_after),
        )
        for row in devices
    )
    if rows:
        yield Table(("device", ">tensors", ">storages", ">before", ">after"), rows)


def _bars(difference: Difference) -> tuple[ChangeRow, ...]:
    """Return the memory of each device and of the variables that changed most, before and after."""
    sizes = [(f"tensors on {row.device}", row.bytes_before, row.bytes_after) for row in difference.devices]
    least = max((abs(after - before) for _, before, after in sizes), default=0) * _LEAST_SHARE
    places = [(f"`{row.expression}`", row.bytes_before, row.bytes_after) for row in difference.places]
    places = [size for size in places if abs(size[2] - size[1]) > least]
    places.sort(key=lambda size: -abs(size[2] - size[1]))
    return tuple(
        ChangeRow(
            name,
            Fate.STILL if before and after else Fate.GONE if before else Fate.NEW,
            before,
            after,
            f"{format_bytes(before)} -> {format_bytes(after)} ({signed_bytes(after - before)})",
        )
        for name, before, after in (*sizes, *places[:_N_BARS])
        if before != after
    )


def _joined_holders(row: Any) -> str:
    return ", ".join(row.holders)


_HOLDERS: Mapping[str, Callable[[Any], object]] = {"holders": _joined_holders}


def _object_change_table(difference: Difference) -> pd.DataFrame:
    """Return the types of which objects were born or died, indexed by the type's name."""
    return frame_of(difference.objects, _OBJECT_CHANGES, "kind", _HOLDERS)


def _tensor_change_table(difference: Difference) -> pd.DataFrame:
    """Return the kinds of tensors that were born or died; each storage's bytes are counted once."""
    computed = {
        "kind": lambda row: row.what.kind,
        "shape": lambda row: row.what.shape,
        "dtype": lambda row: row.what.dtype,
        "device": lambda row: row.what.device,
        "has_graph": lambda row: row.what.has_graph,
    }
    return frame_of(difference.tensors, _TENSOR_CHANGES, computed={**computed, **_HOLDERS})


def _array_table(difference: Difference) -> pd.DataFrame:
    """Return the arrays and buffers of a kilobyte or more that were born or died."""
    return frame_of(difference.arrays, _ARRAY_CHANGES, "what", _HOLDERS)


def _container_change_table(difference: Difference) -> pd.DataFrame:
    """Return the containers that live at both moments and have another length."""
    return frame_of(difference.containers, _CONTAINER_CHANGES, "holder")


def _variable_table(difference: Difference) -> pd.DataFrame:
    """Return the variables and module attributes that changed, indexed by their expression."""
    return frame_of(difference.places, _VARIABLES, "expression")


def _device_table(difference: Difference) -> pd.DataFrame:
    """Return tensors and unique storages by device, indexed by the device."""
    return frame_of(difference.devices, _DEVICES, "device")


def _changes_csv(difference: Difference) -> str:
    """Return the lines of the report as CSV, one change in each."""
    computed = {**_HOLDERS, "bytes": lambda line: line.n_bytes}
    return csv_of(frame_of(lines_of(difference), _CHANGES, computed=computed), index=False)


_FORMS = Forms(
    kind=Difference,
    format="leaklab difference",
    schema=MOMENT_SCHEMA,
    document=document_of,
    title=lambda difference: f"memdiff: {title(difference)}",
    more={".csv": _changes_csv},
)
SUFFIXES: Final = _FORMS.suffixes
"""Of the files that a difference can be saved to."""


@dataclass(frozen=True, slots=True, repr=False)
class MemDiff(Report[Difference]):
    """What was born, died, grew and was replaced between two moments.

    It holds the record and nothing else: it can be pickled and keeps nothing of the user's alive.

    Attributes:
        record: The record, with every figure.
    """

    _forms: ClassVar = _FORMS
    record: Difference

    objects = FrameProperty(_object_change_table)
    """Types of which objects were born or died."""
    tensors = FrameProperty(_tensor_change_table)
    """Tensors born and died, by shape, dtype and device; bytes of storages, each counted once."""
    arrays = FrameProperty(_array_table)
    """Arrays and buffers of a kilobyte or more, which the collector does not know."""
    containers = FrameProperty(_container_change_table)
    """Containers that live at both moments and have another length."""
    variables = FrameProperty(_variable_table)
    """Variables of the notebook and attributes of modules that are new, gone, replaced, bigger or smaller."""
    devices = FrameProperty(_device_table)
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

"""A whole heap with its references: what is said of it and of the difference of two, and what the user holds.

On a page the heap is an icicle: data, and the one script that draws it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, TypeAlias, overload

from markupsafe import Markup

from leaklab.explain.heaps.found import find_in, found_record, row_limit, wanted_type
from leaklab.explain.heaps.icicle import icicle_of, icicles_of
from leaklab.explain.heaps.saved import compare_heaps, shape_of, vertex_called, why_saved
from leaklab.files import FilePath
from leaklab.heap.saved.arrays import HeapArrays, SavedNodes
from leaklab.heap.saved.file import load_heap, save_heap
from leaklab.model.comparison import ChangeRow, Fate
from leaklab.model.heap import SHAPE_SCHEMA, HeapChange, HeapHolder, HeapShape, IcicleNode, SizeChange
from leaklab.model.sentences import quoted
from leaklab.render.base import Displayed, Forms, FrameProperty, Report, returned_or_written
from leaklab.render.document import (
    Changes,
    Chapter,
    Document,
    DocumentBlock,
    Drawn,
    Either,
    Gap,
    Headline,
    Remark,
    RowLine,
    Table,
    code,
    notes_of,
)
from leaklab.render.json import one_line, script_data
from leaklab.render.templates import joined, page, unfolding
from leaklab.render.writers import html_of, text_of
from leaklab.reports.alive import WhyAlive
from leaklab.reports.found import FoundObjects
from leaklab.reports.tables import frame_of
from leaklab.text import clipped, format_bytes, format_seconds, shorten, signed_bytes, unit_words, visible

if TYPE_CHECKING:
    import pandas as pd


DRAWING_SCRIPT = joined("page_parts.js", "icicle.js")
"""Draws an icicle of what `icicle_rows` returns: on a page of its own, and in the explorer."""
SCRIPT = f'"use strict";\n{DRAWING_SCRIPT}\n{joined("heap_icicle.js")}\n{unfolding()}'
"""Draws the icicle of a page that has no other."""
Icicles: TypeAlias = Sequence[tuple[str, IcicleNode]]
"""Of each device the name, and what fills its memory."""
_LABEL_LIMIT, _NODE_LIMIT = 60, 200


def icicle_data(icicles: Icicles) -> str:
    """Return *icicles* as the element of a page that `SCRIPT` draws."""
    data: Mapping[str, object] = {"devices": icicle_rows(icicles)}
    return script_data(one_line(data, "icicle"), "icicle")


def icicle_rows(icicles: Icicles) -> list[list[object]]:
    """Return *icicles* as the script reads them: plain data, every text cut and made visible."""
    return [[visible(device), _row(root)] for device, root in icicles]


def _row(node: IcicleNode) -> list[object]:
    """Return a node and all below it."""
    texts = (shorten(visible(node.label), _LABEL_LIMIT), *(shorten(visible(text), _NODE_LIMIT) for text in (
        node.expression, node.kind)))  # fmt: skip
    figures = (node.n_bytes, node.small_bytes, node.n_small, node.number)
    return [*texts, node.part, *figures, [_row(child) for child in node.children]]


_N_HOLDERS, _N_KINDS, _N_CHANGES = 20, 15, 20
_NAME_LIMIT, _WORDS_LIMIT = 160, 120
_LATEST = 4e9
_HOLDER_COLUMNS = {
    "holder": "string", "type": "string", "exclusive_bytes": "int64", "place": "string", "number": "int64",
}  # fmt: skip
_KIND_COLUMNS = {"type": "string", "count": "int64", "bytes": "int64"}
_CHANGE_COLUMNS = {
    "name": "string", "bytes_before": "int64", "bytes_after": "int64", "count_before": "int64", "count_after": "int64",
}  # fmt: skip


def shape_document(shape: HeapShape, icicle: Markup | None = None) -> Document:
    """Return what is said of a heap: its sums, what keeps most of it alive, its types; *icicle* stands above these."""
    shape = clipped(shape)
    picture = () if icicle is None else (Drawn(lambda: icicle),)
    environment = ", ".join(f"{name} {version}" for name, version in shape.environment)
    versions = Either((Gap(), Remark(environment, hang=0))) if environment else Either()
    blocks = (Headline(_shape_words(shape)), *picture, *_holders(shape), *_kinds(shape), *notes_of(shape.notes))
    return Document((*blocks, versions))


def _holders(shape: HeapShape) -> tuple[DocumentBlock, ...]:
    rows = tuple(
        (format_bytes(holder.exclusive_bytes), code(_holder_words(holder)), holder.kind, f"{holder.number}")
        for holder in shape.holders[:_N_HOLDERS]
    )
    table = Table((">comes back", "holder", "type", ">number"), rows, (RowLine("{0:>9}  {1}  {2}  #{3}", hang=13),))
    title = "Largest holders (memory that is freed with each)"
    return (Chapter(title, (table,), is_open=None),) if rows else ()


def _kinds(shape: HeapShape) -> tuple[DocumentBlock, ...]:
    rows = tuple((format_bytes(row.n_bytes), f"{row.count:,}", row.kind) for row in shape.kinds[:_N_KINDS])
    table = Table((">bytes", ">objects", "type"), rows, (RowLine("{0:>9}  {1:>11}  {2}", hang=26),))
    return (Chapter("Objects by type", (table,), is_open=False),) if rows else ()


def _shape_words(shape: HeapShape) -> str:
    """Return how much there is, in one sentence."""
    name = f"{shape.name}: " if shape.name else ""
    made = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(min(max(shape.taken_at, 0.0), _LATEST)))
    objects = f"{unit_words(shape.n_objects, 'objects')}, {unit_words(shape.n_references, 'references')}"
    size = f"{format_bytes(shape.n_bytes)}, of which tensors {format_bytes(shape.storage_bytes)}"
    return f"{name}{objects}, {size}, at {made} UTC"


def _holder_words(holder: HeapHolder) -> str:
    """Return Python for a holder, where its path begins if there is none."""
    return shorten(holder.holder, _NAME_LIMIT) or f"({holder.place})"


def render_heap_page(shape: HeapShape, icicles: Icicles) -> str:
    """Return the shape of a heap as a page of its own, with its icicles, that asks nothing of any server."""
    place = Markup("<div>{}</div>").format(Markup(icicle_data(icicles)))  # noqa: S704 - coded
    title = f"what fills the memory: {shape.name}" if shape.name else "what fills the memory"
    return page(title, html_of(shape_document(shape, place)), script=SCRIPT)


def change_document(change: HeapChange) -> Document:
    """Return what is said of the difference of two heaps: by holders, and by types."""
    change = clipped(change)
    parts = (("Holders whose kept memory changed", change.holders), ("Objects by type", change.kinds))
    chapters = (Chapter(title, (_changes(rows[:_N_CHANGES]),)) for title, rows in parts if rows)
    return Document((Headline(_change_words(change)), *chapters))


def _changes(rows: Sequence[SizeChange]) -> Either:
    cells = tuple((signed_bytes(row.step), shorten(row.name, _NAME_LIMIT), _size_words(row)) for row in rows)
    table = Table(("change", "name", "size"), cells, (RowLine("{0:>10}  {1}  {2}", hang=14),))
    return Either((table,), (Changes(tuple(map(_change_row, rows))),))


def _change_row(row: SizeChange) -> ChangeRow:
    is_new, is_gone = (not (n_bytes or count) for n_bytes, count in (
        (row.bytes_before, row.count_before), (row.bytes_after, row.count_after)
    ))  # fmt: skip
    fate = Fate.NEW if is_new else Fate.GONE if is_gone else Fate.STILL
    words = f"{signed_bytes(row.step)}: {_size_words(row)}"
    return ChangeRow(quoted(shorten(row.name, _NAME_LIMIT)), fate, row.bytes_before, row.bytes_after, words)


def _change_words(change: HeapChange) -> str:
    """Return how much more there is, in one sentence."""
    names = f"from {change.before or 'the first'} to {change.after or 'the second'}"
    objects = change.n_objects[1] - change.n_objects[0]
    step = signed_bytes(change.n_bytes[1] - change.n_bytes[0])
    return f"{names}, {format_seconds(abs(change.seconds))} apart: {objects:+,} objects, {step}"


def _size_words(row: SizeChange) -> str:
    """Return what one holder or type had and has."""
    counts = "" if row.count_before == row.count_after else f", {row.count_before:,} -> {row.count_after:,} objects"
    return f"{format_bytes(row.bytes_before)} -> {format_bytes(row.bytes_after)}{counts}"


def _holder_table(shape: HeapShape) -> pd.DataFrame:
    return frame_of(shape.holders, _HOLDER_COLUMNS, computed={"type": lambda row: row.kind})


def _kind_table(shape: HeapShape) -> pd.DataFrame:
    computed = {"type": lambda row: row.kind, "bytes": lambda row: row.n_bytes}
    return frame_of(shape.kinds, _KIND_COLUMNS, computed=computed)


@dataclass(frozen=True, slots=True, repr=False)
class HeapComparison(Report[HeapChange]):
    """What differs between two saved heaps.

    Attributes:
        record: Every figure.
    """

    _forms: ClassVar = Forms(
        kind=HeapChange,
        format="leaklab heap comparison",
        schema=SHAPE_SCHEMA,
        document=change_document,
    )
    record: HeapChange

    holders = FrameProperty(lambda change: frame_of(change.holders, _CHANGE_COLUMNS))
    """What holders keep alive, before and after, the largest change first."""
    kinds = FrameProperty(lambda change: frame_of(change.kinds, _CHANGE_COLUMNS))
    """Objects by type, before and after, the largest change first."""

    def __repr__(self) -> str:
        return f"<HeapComparison {shorten(_change_words(self.record), _WORDS_LIMIT)}>"


class SavedHeap(Displayed):
    """Everything that was alive at one moment, with its references: ``leaklab.snapshot(references=True)``.

    It keeps nothing of the user's alive: it has the references between objects, their names, types and sizes, no
    values. It takes some 60 bytes an object. It can be saved, and opened elsewhere by `leaklab.load`, without torch.
    """

    __slots__ = ("__dict__", "_heap")

    def __init__(self, arrays: HeapArrays) -> None:
        self._heap = SavedNodes(arrays)

    @property
    def name(self) -> str:
        """What the user calls the moment."""
        return self._heap.arrays.name

    @property
    def taken_at(self) -> float:
        """Seconds since the epoch."""
        return self._heap.arrays.taken_at

    @property
    def n_objects(self) -> int:
        """Objects, without leaklab's own."""
        return self._heap.n_objects

    @property
    def n_references(self) -> int:
        """References between them."""
        return self._heap.index.n_edges

    @cached_property
    def shape(self) -> HeapShape:
        """What fills it: the record behind its tables."""
        return shape_of(self._heap)

    @cached_property
    def icicle(self) -> IcicleNode:
        """What keeps what alive, as a tree whose widths add up: groups, variables, attributes, tensors."""
        return icicle_of(self._heap)

    @overload
    def to_html(self, path: None = None) -> str: ...

    @overload
    def to_html(self, path: FilePath) -> None: ...

    def to_html(self, path: FilePath | None = None) -> str | None:
        """Return the shape of the heap as a page of its own, with its icicle; with *path* write it and return None.

        Raises:
            ReportError: if the file cannot be written.
        """
        return returned_or_written(render_heap_page(self.shape, icicles_of(self._heap)), path)

    @property
    def holders(self) -> pd.DataFrame:
        """Variables and other objects, what keeps most alive first: one row each."""
        return _holder_table(self.shape)

    @property
    def kinds(self) -> pd.DataFrame:
        """Types, the most bytes first: one row each."""
        return _kind_table(self.shape)

    def find(self, type: str | type | None = None, where: str = "", *, limit: int = 100) -> FoundObjects:  # noqa: A002 - as `leaklab.find`
        """Find the objects that fit, as `leaklab.find` does; their age is not known here.

        Raises:
            QueryError: if *where* cannot be understood.
            TypeError: if an argument is of the wrong type.
            ValueError: if *limit* is negative.
        """
        kind, limit = wanted_type(type), row_limit(limit)
        found = find_in(self._heap, kind, where)
        arrays = self._heap.arrays
        return FoundObjects(
            found_record(
                self._heap,
                found,
                kind=kind,
                where=where,
                limit=limit,
                notes=arrays.notes,
                environment=arrays.environment,
            )
        )

    def why(self, what: str | int) -> WhyAlive:
        """Say why an object was alive: the best path to it, who refers to it, what would have come back.

        Args:
            what: Its expression as reports have it, which is read and never run, ``"trainer.history[0]['loss']"``; or
                its number, as the rows of `find` and `holders` have it.

        Raises:
            QueryError: if there is no such object.
        """
        vertex = vertex_called(self._heap, what)
        return WhyAlive(why_saved(self._heap, vertex, what if isinstance(what, str) else f"object {what}"))

    def compare(self, other: SavedHeap) -> HeapComparison:
        """Return what differs from this heap to *other*, a later one: by holders and by types.

        Raises:
            TypeError: if *other* is no saved heap.
        """
        later = _heap_of(other)
        return HeapComparison(compare_heaps(self._heap, later._heap, (self.shape, later.shape)))  # noqa: SLF001 - of the same class

    def save(self, path: FilePath, *, redact: bool = False) -> None:
        """Write it to *path*, which ends in ``.heap``: references, names, types, sizes, no values and no pickle.

        Args:
            path: The file.
            redact: Whether to hide the keys of dicts. Names of variables, attributes, functions and types stay.

        Raises:
            ReportError: for another suffix, or a file that cannot be written.
        """
        save_heap(self._heap.arrays, path, redact=redact)

    @classmethod
    def load(cls, path: FilePath) -> SavedHeap:
        """Return the heap that `save` wrote.

        Raises:
            ReportError: if the file cannot be read, is damaged, or holds something else.
        """
        return cls(load_heap(path))

    def _text(self) -> str:
        return text_of(shape_document(self.shape))

    def _fragment(self) -> str:
        return str(html_of(shape_document(self.shape)))

    def __repr__(self) -> str:
        return f"<SavedHeap {shorten(_shape_words(self.shape), _WORDS_LIMIT)}>"


def _heap_of(other: object) -> SavedHeap:
    if not isinstance(other, SavedHeap):
        msg = f"compare asks for another saved heap, not {type(other).__name__}"
        raise TypeError(msg)
    return other

"""What keeps most of the heap alive: what is said of it, and what a notebook shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from leaklab.model.alive import HeapOverview
from leaklab.render.base import Displayed
from leaklab.render.document import Chapter, Document, DocumentBlock, Either, Lines, Remark, Table, bold, code, faint
from leaklab.render.writers import html_of, text_of
from leaklab.text import format_bytes, shorten, unit_words

_N_ROWS = 15
_WIDTH, _HTML_LIMIT = 60, 200


@dataclass(frozen=True, slots=True, repr=False)
class HeapPicture(Displayed):
    """What a notebook shows of a `HeapOverview`; it holds the record and nothing else."""

    overview: HeapOverview

    def _text(self) -> str:
        return text_of(document_of(self.overview)).removesuffix("\n")

    def __repr__(self) -> str:
        return f"<HeapPicture: {overview_words(self.overview)}>"

    def _fragment(self) -> str:
        return str(html_of(document_of(self.overview)))


def document_of(overview: HeapOverview) -> Document:
    """Return what is said of a heap: its sum, then what keeps most of it alive."""
    words = overview_words(overview)
    parts = (Chapter(title, tuple(_table(rows))) for title, rows in _rows(overview))
    notes = Either(html=tuple(Remark(faint(note)) for note in overview.notes))
    return Document((Remark((bold("Heap"), f" {words}"), f"HEAP  {words}"), *parts, notes))


def overview_words(overview: HeapOverview) -> str:
    """Return the heap in one sentence."""
    n_bytes, count = sum(row.n_bytes for row in overview.tensors), sum(row.count for row in overview.tensors)
    tensors = "no tensor" if not count else f"{unit_words(count, 'tensors')} of {format_bytes(n_bytes)}"
    return f"{unit_words(overview.n_objects, 'objects')}, {tensors}"


def _rows(overview: HeapOverview) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Yield each list with its title: sizes, names and types in words."""
    for title, rows in (
        ("Variables, by what only they keep alive", overview.variables),
        ("Other large retainers", overview.retainers),
    ):
        cells = [
            (format_bytes(row.retained_bytes), row.expression or f"({row.place})", f"{row.kind} {row.summary}".strip())
            for row in rows[:_N_ROWS]
        ]
        yield title, cells
    tensors = [(format_bytes(row.n_bytes), f"{row.count:,} x", f"{row.kind} {row.words}") for row in overview.tensors]
    yield "Living tensors", tensors[:_N_ROWS]


def _table(rows: list[tuple[str, str, str]]) -> Iterator[DocumentBlock]:
    if rows:
        lines = (f"  {size:>9}  {shorten(name, _WIDTH)}  {shorten(kind, _WIDTH)}" for size, name, kind in rows)
        cells = ((size, code(shorten(name, _HTML_LIMIT)), shorten(kind, _HTML_LIMIT)) for size, name, kind in rows)
        yield Either((Lines(tuple(lines)),), (Table((">size", "name", "type"), tuple(cells)),))

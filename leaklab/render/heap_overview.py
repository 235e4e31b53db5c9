"""Show what keeps most of the heap alive, as text and as HTML; a picture of one moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from leaklab.model.live import HeapOverview
from leaklab.render.display import Displayed
from leaklab.render.parts import code, escaped, faint, fold, table
from leaklab.render.wording import shorten
from leaklab.words import format_bytes, unit_words

_N_ROWS = 15
_WIDTH = 60
_LIMIT = 200


@dataclass(frozen=True, slots=True, repr=False)
class HeapPicture(Displayed):
    """What a notebook shows of a `HeapOverview`; it holds the record and nothing else."""

    overview: HeapOverview

    def __str__(self) -> str:
        return "\n".join(_lines(self.overview))

    def __repr__(self) -> str:
        return f"<HeapPicture: {overview_words(self.overview)}>"

    def _fragment(self) -> str:
        return _markup(self.overview)


def overview_words(overview: HeapOverview) -> str:
    """Return the heap in one sentence."""
    n_bytes, count = sum(row.n_bytes for row in overview.tensors), sum(row.count for row in overview.tensors)
    tensors = (
        "no tensor" if not count else f"{count:,} {'tensor' if count == 1 else 'tensors'} of {format_bytes(n_bytes)}"
    )
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


def _lines(overview: HeapOverview) -> Iterator[str]:
    yield f"HEAP  {overview_words(overview)}"
    for title, rows in _rows(overview):
        if rows:
            yield f"\n{title}"
            for size, name, kind in rows:
                yield f"  {size:>9}  {shorten(name, _WIDTH)}  {shorten(kind, _WIDTH)}"


def _markup(overview: HeapOverview) -> str:
    parts = [f"<div><b>Heap</b> {escaped(overview_words(overview))}</div>"]
    for title, rows in _rows(overview):
        cells = [
            (escaped(size), code(shorten(name, _LIMIT)), escaped(shorten(kind, _LIMIT))) for size, name, kind in rows
        ]
        if cells:
            parts.append(
                fold(escaped(title), table(("size", "name", "type"), cells, right=frozenset({"size"})), is_open=True)
            )
    parts += [f"<div>{faint(escaped(note))}</div>" for note in overview.notes]
    return f'<div style="font-size:14px;line-height:1.45;color:inherit;max-width:1000px">{"".join(parts)}</div>'

"""Write which objects fit a condition: plain text, HTML."""

from __future__ import annotations

from collections.abc import Iterator

from leaklab.model.found import FoundObject, FoundRecord
from leaklab.render.templates import render
from leaklab.text import clipped, format_bytes, shorten, unit_words, wrap

_N_ROWS = 30
_HOLDER_LIMIT = 160
_WHERE_LIMIT = 300


def found_words(record: FoundRecord) -> str:
    """Return the answer in one sentence."""
    asked = ", ".join(filter(None, (record.kind, shorten(record.where, _WHERE_LIMIT))))
    fit = f"fit ({asked})" if asked else "are known"
    size = f": {format_bytes(record.n_bytes)} together" if record.n_found else ""
    return f"{record.n_found:,} of {unit_words(record.n_objects, 'objects')} {fit}{size}"


def what_words(row: FoundObject) -> str:
    """Return type, shape, dtype and device of an object."""
    grad = "requires_grad" if row.requires_grad else ""
    return " ".join(filter(None, (row.kind, row.shape, row.dtype, row.device, grad)))


def holder_words(row: FoundObject) -> str:
    """Return Python for an object, where it begins if there is none."""
    return shorten(row.holder, _HOLDER_LIMIT) or f"({row.place})"


def rest_words(record: FoundRecord) -> str:
    """Return how many objects are not shown; empty if all are."""
    n_shown = min(len(record.rows), _N_ROWS)
    if record.n_found <= n_shown:
        return ""
    in_table = f", of which .to_frame() has {len(record.rows) - n_shown:,}" if len(record.rows) > n_shown else ""
    return f"and {record.n_found - n_shown:,} more{in_table}"


def render_found(record: FoundRecord) -> str:
    """Return *record* as lines."""
    return "\n".join(_lines(clipped(record))) + "\n"


def _lines(record: FoundRecord) -> Iterator[str]:
    yield from wrap(found_words(record), "", "  ")
    if record.rows:
        yield ""
        yield f"  {'bytes':>9}  {'exclusive':>9}  object"
    for row in record.rows[:_N_ROWS]:
        sizes = f"{format_bytes(row.n_bytes):>9}  {format_bytes(row.exclusive_bytes):>9}"
        yield from wrap(f"{sizes}  {holder_words(row)}", "  ", " " * 24)
        yield from wrap(what_words(row), " " * 26, " " * 28)
    if rest := rest_words(record):
        yield f"  {rest}"
    for note in record.notes:
        yield from wrap(f"note: {note}", "", "  ")


def render_found_html(record: FoundRecord) -> str:
    """Return *record* as HTML that survives the sanitizers of notebooks."""
    shown = clipped(record)
    words = {"title": found_words(shown), "rest": rest_words(shown)}
    rows = [(row, holder_words(row), what_words(row)) for row in shown.rows[:_N_ROWS]]
    return str(render("found.html.j2", record=shown, rows=rows, **words))

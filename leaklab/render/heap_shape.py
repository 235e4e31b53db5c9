"""Write what fills a heap, and what differs between two: plain text, HTML."""

from __future__ import annotations

import time
from collections.abc import Iterator

from markupsafe import Markup

from leaklab.model.before_after import ChangeRow, Fate
from leaklab.model.heap_shape import HeapChange, HeapHolder, HeapShape, SizeChange
from leaklab.model.sentences import quoted
from leaklab.render.templates import render
from leaklab.text import clipped, format_bytes, format_seconds, shorten, signed_bytes, unit_words, wrap

_N_HOLDERS, _N_KINDS, _N_CHANGES = 20, 15, 20
_NAME_LIMIT = 160
_NOTHING = Markup("")


def shape_words(shape: HeapShape) -> str:
    """Return how much there is, in one sentence."""
    name = f"{shape.name}: " if shape.name else ""
    made = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(min(max(shape.taken_at, 0.0), _LATEST)))
    objects = f"{unit_words(shape.n_objects, 'objects')}, {unit_words(shape.n_references, 'references')}"
    size = f"{format_bytes(shape.n_bytes)}, of which tensors {format_bytes(shape.storage_bytes)}"
    return f"{name}{objects}, {size}, at {made} UTC"


_LATEST = 4e9


def holder_words(holder: HeapHolder) -> str:
    """Return Python for a holder, where its path begins if there is none."""
    return shorten(holder.holder, _NAME_LIMIT) or f"({holder.place})"


def render_shape(shape: HeapShape) -> str:
    """Return *shape* as lines."""
    return "\n".join(_lines(clipped(shape))) + "\n"


def _lines(shape: HeapShape) -> Iterator[str]:
    yield from wrap(shape_words(shape), "", "  ")
    yield ""
    yield "What keeps most alive (what comes back if it goes)"
    for holder in shape.holders[:_N_HOLDERS]:
        words = f"{holder_words(holder)}  {holder.kind}  #{holder.number}"
        yield from wrap(f"{format_bytes(holder.exclusive_bytes):>9}  {words}", "  ", " " * 13)
    yield ""
    yield "Objects by type"
    for row in shape.kinds[:_N_KINDS]:
        yield from wrap(f"{format_bytes(row.n_bytes):>9}  {row.count:>11,}  {row.kind}", "  ", " " * 26)
    for note in shape.notes:
        yield from wrap(f"note: {note}", "", "  ")
    if shape.environment:
        yield ""
        yield from wrap(", ".join(f"{name} {version}" for name, version in shape.environment))


def render_shape_html(shape: HeapShape, icicle: Markup = _NOTHING) -> str:
    """Return *shape* as HTML that survives the sanitizers of notebooks, if *icicle* does, which is put on top."""
    shown = clipped(shape)
    holders = [(holder, holder_words(holder)) for holder in shown.holders[:_N_HOLDERS]]
    title = shape_words(shown)
    kinds = shown.kinds[:_N_KINDS]
    return str(render("heap_shape.html.j2", shape=shown, title=title, holders=holders, kinds=kinds, icicle=icicle))


def change_words(change: HeapChange) -> str:
    """Return how much more there is, in one sentence."""
    names = f"from {change.before or 'the first'} to {change.after or 'the second'}"
    objects = change.n_objects[1] - change.n_objects[0]
    step = signed_bytes(change.n_bytes[1] - change.n_bytes[0])
    return f"{names}, {format_seconds(abs(change.seconds))} apart: {objects:+,} objects, {step}"


def size_words(row: SizeChange) -> str:
    """Return what one holder or type had and has."""
    counts = "" if row.count_before == row.count_after else f", {row.count_before:,} -> {row.count_after:,} objects"
    return f"{format_bytes(row.bytes_before)} -> {format_bytes(row.bytes_after)}{counts}"


def render_change(change: HeapChange) -> str:
    """Return *change* as lines."""
    return "\n".join(_change_lines(clipped(change))) + "\n"


def _change_lines(change: HeapChange) -> Iterator[str]:
    yield from wrap(change_words(change), "", "  ")
    for title, rows in (("What it keeps alive changed", change.holders), ("Objects by type", change.kinds)):
        if rows:
            yield ""
            yield title
        for row in rows[:_N_CHANGES]:
            name = shorten(row.name, _NAME_LIMIT)
            yield from wrap(f"{signed_bytes(row.step):>10}  {name}  {size_words(row)}", "  ", " " * 14)


def render_change_html(change: HeapChange) -> str:
    """Return *change* as HTML that survives the sanitizers of notebooks."""
    shown = clipped(change)
    titles = (("What it keeps alive changed", shown.holders), ("Objects by type", shown.kinds))
    parts = [(title, [_change_row(row) for row in rows[:_N_CHANGES]]) for title, rows in titles]
    return str(render("heap_change.html.j2", title=change_words(shown), parts=parts))


def _change_row(row: SizeChange) -> ChangeRow:
    is_new, is_gone = (not (n_bytes or count) for n_bytes, count in (
        (row.bytes_before, row.count_before), (row.bytes_after, row.count_after)
    ))  # fmt: skip
    fate = Fate.NEW if is_new else Fate.GONE if is_gone else Fate.STILL
    words = f"{signed_bytes(row.step)}: {size_words(row)}"
    return ChangeRow(quoted(shorten(row.name, _NAME_LIMIT)), fate, row.bytes_before, row.bytes_after, words)

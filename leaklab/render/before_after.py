"""Show two reports side by side: what is new, still there, gone; a bar for each before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from leaklab.model.before_after import BeforeAfter, ChangeRow, Fate
from leaklab.render.templates import render
from leaklab.text import clipped, format_bytes, shorten, wrap

_N_ROWS = 40
_NAME_LIMIT = 120
_BAR, _WORDS_WIDTH = 10, 30
_FATE_WIDTH = max(len(fate.value) for fate in Fate) + 2


def change_words(before: float, after: float, per: str = "") -> str:
    """Return bytes before and after in words."""
    return f"{format_bytes(before)} -> {format_bytes(after)}{per}"


def fates_words(rows: Sequence[ChangeRow]) -> str:
    """Return ``2 fixed, 1 still there``; empty without rows."""
    counts = Counter(row.fate for row in rows)
    return ", ".join(f"{counts[fate]:,} {fate.value}" for fate in Fate if counts[fate])


def row_lines(rows: Sequence[ChangeRow], *, has_fates: bool = True) -> Iterator[str]:
    """Yield each of *rows* with two bars of characters, of one scale: before, and after."""
    shown = rows[:_N_ROWS]
    most = max((max(row.before, row.after) for row in shown), default=0.0) or 1.0
    width = min(max((len(row.words) for row in shown), default=0), _WORDS_WIDTH)
    for row in shown:
        fate = f"{row.fate.value:<{_FATE_WIDTH}}" if has_fates else ""
        bars = " ".join(
            f"{mark * round(_BAR * size / most):<{_BAR}}" for mark, size in (("-", row.before), ("=", row.after))
        )
        start = f"  {fate}{row.words:<{width}}  {bars} "
        yield from wrap(shorten(row.name, _NAME_LIMIT), start, " " * len(start))
    if len(rows) > _N_ROWS:
        yield f"  ... and {len(rows) - _N_ROWS:,} more"


def before_after_line(record: BeforeAfter) -> str:
    """Return what was compared, and what came of it, in one sentence."""
    told = fates_words(record.rows) or "nothing to compare"
    return f"{record.kind}, {record.before or 'the first'} and {record.after or 'the second'}: {told}"


def before_after_text(record: BeforeAfter) -> str:
    """Return *record* as lines."""
    shown = clipped(record)
    lines = wrap(before_after_line(shown), "", "  ")
    if shown.levels:
        lines += ["", "Memory", *row_lines(shown.levels, has_fates=False)]
    if shown.rows:
        lines += ["", "What became of it (- before, = after)", *row_lines(shown.rows)]
    return "\n".join([*lines, *(line for note in shown.notes for line in wrap(f"note: {note}", "", "  "))]) + "\n"


def before_after_html(record: BeforeAfter) -> str:
    """Return *record* as HTML that survives the sanitizers of notebooks."""
    shown = clipped(record)
    parts = [("Memory", shown.levels, False), ("What became of it", shown.rows[:_N_ROWS], True)]
    n_hidden = max(len(shown.rows) - _N_ROWS, 0)
    title = before_after_line(shown)
    return str(render("before_after.html.j2", title=title, parts=parts, n_hidden=n_hidden, notes=shown.notes))

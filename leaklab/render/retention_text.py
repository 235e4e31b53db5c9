"""Write what a graph keeps as plain text, at most 100 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from leaklab.model.retention import GraphPart, KeptTensor, Retention
from leaklab.render.retention_words import details, headline, sharing_words, size_words, tensor_words
from leaklab.render.texts import SHOWN_LIMIT, clipped
from leaklab.render.wording import shorten, visible
from leaklab.words import format_bytes

_WIDTH = 100
_N_ROWS = 10
_NUMBERS = "{:>9}{:>9}{:>9}{:>12}{:>12}"
_N_NUMBER_COLUMNS = 51


def render_retention(retention: Retention) -> str:
    """Return the whole record as lines of at most 100 columns, the sum first."""
    retention = clipped(retention, SHOWN_LIMIT)
    blocks = [list(_head(retention)), list(_parts("By operation", retention.operations))]
    blocks += [list(_parts("By forward line", retention.lines)), list(_tensors(retention.tensors))]
    blocks.append([line for note in retention.notes for line in _wrapped(note, "  - ", "    ")])
    if blocks[-1]:
        blocks[-1].insert(0, "Notes")
    blocks.append([", ".join(f"{name} {version}" for name, version in retention.environment)])
    return "\n\n".join("\n".join(block) for block in blocks if any(block)) + "\n"


def _head(retention: Retention) -> Iterator[str]:
    yield from _wrapped(headline(retention), "GRAPH  ", " " * 7)
    for line in details(retention):
        yield from _wrapped(line, " " * 7, " " * 9)


def _parts(title: str, parts: Sequence[GraphPart]) -> Iterator[str]:
    """Yield a table of parts; what only one part saves and nobody else holds is its own."""
    if not parts:
        return
    yield title.ljust(_WIDTH - _N_NUMBER_COLUMNS) + _NUMBERS.format("nodes", "saved", "freed", "bytes", "its own")
    width = _WIDTH - _N_NUMBER_COLUMNS - 3
    for part in parts[:_N_ROWS]:
        numbers = (f"{part.n_nodes:,}", f"{part.n_saved:,}", f"{part.n_freed:,}")
        sizes = (format_bytes(part.n_bytes), format_bytes(part.own_bytes))
        yield f"  {shorten(part.name, width):<{width + 1}}" + _NUMBERS.format(*numbers, *sizes)
    if len(parts) > _N_ROWS:
        yield f"  ... {len(parts) - _N_ROWS:,} more"


def _tensors(rows: Sequence[KeptTensor]) -> Iterator[str]:
    if not rows:
        return
    yield "Saved tensors, largest first"
    for row in rows[:_N_ROWS]:
        yield from _wrapped(tensor_words(row), f"{size_words(row):>12}  ", " " * 14)
        origin = f"saved by {', '.join(row.saved_by)}" + (" (packed)" if row.is_packed else "")
        for line in filter(None, (origin, sharing_words(row), *row.lines[:1])):
            yield from _wrapped(shorten(line, 2 * _WIDTH), " " * 14, " " * 16)
    if len(rows) > _N_ROWS:
        yield f"  ... {len(rows) - _N_ROWS:,} more in report.tensors"


def _wrapped(text: str, first_indent: str, indent: str) -> list[str]:
    return textwrap.wrap(
        visible(text), _WIDTH, initial_indent=first_indent, subsequent_indent=indent, break_on_hyphens=False
    ) or [first_indent.rstrip()]

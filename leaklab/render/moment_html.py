"""Write a difference between two moments as HTML: a fragment for a notebook, or a page of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from leaklab.model.differences import Difference
from leaklab.render.moment_wording import Line, headline, levels, lines_of, remarks, title
from leaklab.render.page import page
from leaklab.render.parts import ACCENT, CALM, GOOD, bullets, code, escaped, faint, fold, panel, table
from leaklab.render.texts import SHOWN_LIMIT, clipped
from leaklab.render.wording import shorten
from leaklab.words import format_bytes

_FONT = "font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif"
_FRAGMENT = f"{_FONT};font-size:14px;line-height:1.45;color:inherit;max-width:1000px"
_LIMIT = 200
_N_ROWS = 30
_RIGHT = frozenset({"change", "bytes", "before", "after", "tensors", "storages"})


def render_difference_html(difference: Difference) -> str:
    """Return the difference as a fragment that survives the sanitizers of notebooks."""
    return _fragment(difference, is_page=False)


def render_difference_page(difference: Difference) -> str:
    """Return the difference as a page of its own that asks nothing of any server."""
    return page(f"memdiff: {title(difference)}", _fragment(difference, is_page=True))


def _fragment(difference: Difference, *, is_page: bool) -> str:
    difference = clipped(difference, SHOWN_LIMIT)
    lines = lines_of(difference)
    parts = [_banner(difference, lines)]
    for number, (group, members) in enumerate(groupby(lines, key=lambda line: line.group)):
        shown = list(members)
        left_out = "" if len(shown) <= _N_ROWS else faint(f"{len(shown) - _N_ROWS:,} more are in .{group}")
        markup = _line_table(shown[:_N_ROWS]) + left_out
        parts.append(fold(f"{group.capitalize()} ({len(shown):,})", markup, is_open=is_page or number == 0))
    if lines:
        parts += _devices(difference, is_page=is_page)
    if notes := remarks(difference):
        parts.append(fold("Notes", bullets([escaped(note) for note in notes]), is_open=True))
    return f'<div style="{_FRAGMENT}">{"".join(parts)}</div>'


def _banner(difference: Difference, lines: Sequence[Line]) -> str:
    grows = sum(row.bytes_after - row.bytes_before for row in difference.devices) > 0
    colour = (ACCENT if grows else CALM) if lines else GOOD
    words = [f'<div style="font-size:17px"><b>{escaped(headline(difference))}</b></div>']
    words.append(f"<div>{faint(escaped(title(difference)))}</div>")
    if lines:
        words.append(f"<div>{faint(escaped(levels(difference)))}</div>")
    return panel("".join(words), colour)


def _line_table(lines: Sequence[Line]) -> str:
    rows = [
        (
            f"{line.count:+,}" if line.count else "",
            code(shorten(line.what, _LIMIT)),
            escaped(format_bytes(line.n_bytes)) if line.n_bytes else "",
            ", ".join(code(shorten(holder, _LIMIT)) for holder in line.holders),
        )
        for line in lines
    ]
    return table(("change", "what", "bytes", "held by"), rows, right=_RIGHT)


def _devices(difference: Difference, *, is_page: bool) -> Iterator[str]:
    rows = [
        (
            code(row.device), f"{row.tensors_before:,} &rarr; {row.tensors_after:,}",
            f"{row.storages_before:,} &rarr; {row.storages_after:,}",
            escaped(format_bytes(row.bytes_before)), escaped(format_bytes(row.bytes_after)),
        )
        for row in difference.devices
    ]  # fmt: skip
    if rows:
        markup = table(("device", "tensors", "storages", "before", "after"), rows, right=_RIGHT)
        yield fold(f"Devices ({len(rows):,})", markup, is_open=is_page)

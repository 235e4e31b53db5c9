"""Write a difference between two moments as plain text, at most 100 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import groupby

from leaklab.model.differences import DeviceChange, Difference
from leaklab.render.moment_wording import headline, levels, lines_of, remarks, signed_bytes, title
from leaklab.render.path import WIDTH
from leaklab.render.texts import SHOWN_LIMIT, clipped
from leaklab.render.wording import shorten, visible
from leaklab.words import format_bytes

_N_LINES = 12
_LINE_LIMIT = 300


def render_difference(difference: Difference) -> str:
    """Return the sums, then one line a change, largest first; of many in one group the first dozen."""
    difference = clipped(difference, SHOWN_LIMIT)
    lines = lines_of(difference)
    rows = [*_wrap(f"{title(difference)}: {headline(difference)}", "")]
    for group, members in groupby(lines, key=lambda line: line.group):
        shown = list(members)
        for line in shown[:_N_LINES]:
            rows += _wrap(shorten(str(line), _LINE_LIMIT), "  ")
        if len(shown) > _N_LINES:
            rows.append(f"  ... {len(shown) - _N_LINES:,} more in .{'tensors' if group == 'tensors' else group}")
    if lines:
        rows += _devices(difference.devices)
        rows += _wrap(levels(difference), "  ")
    for remark in remarks(difference):
        rows += _wrap(f"- {remark}", "  ")
    return "\n".join(rows) + "\n"


def _devices(devices: tuple[DeviceChange, ...]) -> Iterator[str]:
    for row in devices:
        if (row.bytes_before, row.tensors_before) != (row.bytes_after, row.tensors_after):
            n_bytes = f"{format_bytes(row.bytes_before)} -> {format_bytes(row.bytes_after)}"
            words = f"{row.device}: {n_bytes} ({signed_bytes(row.bytes_after - row.bytes_before)})"
            yield from _wrap(f"{words}, {row.tensors_before:,} -> {row.tensors_after:,} tensors", "  ")


def _wrap(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        visible(text), WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False
    )

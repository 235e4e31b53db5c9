"""Say what each statement of a cell left behind, for all renderers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leaklab.model import StatementGrowth
from leaklab.text import format_bytes, format_rate

STATEMENTS_TITLE = "Left behind per run, statement by statement"
STATEMENTS_NOTE = (
    "Counted is what a statement made that was still alive runs later; another statement may be the one that keeps it. "
    "Numbers, strings and arrays are not counted."
)
STATEMENT_COLUMNS = ("line", "objects", "tensors", "bytes")
_NOTHING = "."
"""Zeros would hide the few figures that matter."""


class StatementRow(NamedTuple):
    """One statement in words.

    Attributes:
        cells: Line, objects, tensors and bytes.
        source: The first line of its text.
        keeps: For which leaks it is the line that keeps; empty for none.
    """

    cells: tuple[str, str, str, str]
    source: str
    keeps: str


def statement_rows(statements: Sequence[StatementGrowth]) -> list[StatementRow]:
    """Return a row for each of *statements*."""
    return [_row(statement) for statement in statements]


def _row(one: StatementGrowth) -> StatementRow:
    lines = str(one.line) if one.end_line == one.line else f"{one.line}-{one.end_line}"
    figures = (
        format_rate(one.objects_per_run) if one.objects_per_run else _NOTHING,
        format_rate(one.tensors_per_run) if one.tensors_per_run else _NOTHING,
        format_bytes(one.bytes_per_run) if one.bytes_per_run else _NOTHING,
    )
    first, *rest = one.source.splitlines() or [""]
    keeps = "^ the line that keeps: " + ", ".join(f"`{holder}`" for holder in one.holders)
    return StatementRow((lines, *figures), first + (" ..." if rest else ""), keeps if one.holders else "")

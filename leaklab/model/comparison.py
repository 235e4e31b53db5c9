"""The records of a comparison: what there was before, what there is after, and what became of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

BEFORE_AFTER_SCHEMA = 1
"""Raised whenever the record changes so that older files cannot be read any more."""


class Fate(str, enum.Enum):
    """What became of something between two reports."""

    NEW = "new"
    STILL = "still there"
    GONE = "gone"
    FIXED = "fixed"  # gone, and the second report proves it
    UNPROVEN = "not proven"  # not seen in the second report, which proves nothing


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One thing before and after.

    Attributes:
        name: What it is: an expression, a type, a line.
        fate: What became of it.
        before: How much of it there was, in bytes where these are known; 0.0 where there was none.
        after: The same afterwards.
        words: Both in words: ``4.88 KiB -> 0 B every run``.
    """

    name: str
    fate: Fate
    before: float
    after: float
    words: str


@dataclass(frozen=True, slots=True)
class BeforeAfter:
    """Two reports of one kind, side by side.

    Attributes:
        kind: Of which kind they are, ``training runs``.
        before: Name of the first one.
        after: Name of the second.
        levels: Sums, as bars: memory, objects.
        rows: The single things, the largest change first.
        notes: What the reader should know.
    """

    kind: str
    before: str
    after: str
    levels: tuple[ChangeRow, ...]
    rows: tuple[ChangeRow, ...]
    notes: tuple[str, ...] = ()
    schema: int = BEFORE_AFTER_SCHEMA
